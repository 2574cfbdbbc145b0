"""Who asked for what, as the front sees it: an entry of the audit log for each request that changes something
and for each that is refused for lack of rights, durable before it is answered.

``AuditTrail`` stands around the whole application. It gives each request a record, in a context variable that
goes along to the thread that answers; ``AuditedFacade`` notes there who asks, and what is changed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias, cast

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.cluster.front.audit_writer import AuditWriter, RefusalLimiter
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.audit import MAX_TEXT, AuditEntry, Outcome, audit_time, jobs_text
from fairlead.cluster.store.tokens import hash_token
from fairlead.errors import FairleadError, StoreError

TOKEN_DIGITS = 12  # of the hash of a token, by which it is named
_NO_RIGHTS = (401, 403)
_Name: TypeAlias = Callable[..., str]


@dataclass
class RequestRecord:
    """The facts that are known of a request so far."""

    source: str = ""  # the other end of the connection
    forwarded_for: str = ""
    caller: Caller | None = None
    token_kind: str = "none"
    token_id: str = ""
    action: str = ""  # the method of the facade that was called, if it does not only ask
    object: str = ""
    reason: str = ""


_record: ContextVar[RequestRecord | None] = ContextVar("audited request", default=None)


def _job(job: int, *_: object) -> str:
    return f"job {job}"


def _node(node: str) -> str:
    return f"node {node}"


def _unnamed(*_: object) -> str:
    return ""


# Methods of the facade that only ask. All others are noted: one that nobody has thought of changes something.
ASKING = frozenset({
    "users", "jobs", "find_jobs", "jobs_of", "job", "attempts", "usage", "explain", "log", "metrics",
    "searches", "search", "search_curves", "status", "nodes", "failed_nodes", "engine_plan", "what_if",
    "samples", "audit", "accounting",
})  # fmt: skip
# How what the others are about is named from their arguments behind the caller.
NAMED: dict[str, _Name] = {
    "submit": lambda specs, tenant="", *_: (
        f"{len(specs)} jobs" + f" for tenant {tenant}" * bool(tenant)
    ),
    "cancel": _job,
    "cancel_array": lambda array: f"array {array}",
    "submit_search": lambda study, tenant="", *_: (
        f"search {study.name!r}" + f" for tenant {tenant}" * bool(tenant)
    ),
    "stop_search": lambda search: f"search {search}",
    "pause": _job,
    "resume": lambda job, accept_loss=False: _job(job) + ", accepting loss" * accept_loss,
    "set_weight": lambda job, weight: f"job {job}: weight {weight:g}",
    "drain": _node,
    "undrain": _node,
    "remove_node": _node,
    "revoke_node": _node,
    "set_policy": lambda policy: f"policy {policy}",
    "add_user": lambda user, tenant, role, *_: (
        f"user {user}: {role}" + f" of tenant {tenant}" * bool(tenant)
    ),
    "remove_user": lambda user: f"user {user}",
    "backup": lambda: "",
    "reload": lambda: "",
}


class AuditedFacade:
    """``facade.Facade`` whose calls are noted in the record of the request that they belong to."""

    def __init__(self, facade: Facade, writer: AuditWriter) -> None:
        self._facade = facade
        self._writer = writer

    def authenticate(self, token: str) -> Caller | None:
        """Return the caller with this token; None if there is none."""
        caller = self._facade.authenticate(token)
        record = _record.get()
        if record is not None:
            record.caller = caller
            record.token_kind = "unknown" if caller is None else caller.role
            record.token_id = "" if caller is None else token_id(token)
        return caller

    def __getattr__(self, method: str) -> Any:
        do = getattr(self._facade, method)
        return do if method in ASKING else self._noted(method, do, NAMED.get(method, _unnamed))

    def _noted(self, method: str, do: Callable[..., Any], name: _Name) -> Callable[..., Any]:
        @wraps(do)
        def run(caller: Caller, *given: Any) -> Any:
            record = _record.get() or RequestRecord(caller=caller)
            record.action, record.object = method, name(*given)[:MAX_TEXT]
            self._writer.check()
            try:
                result = do(caller, *given)
            except FairleadError as problem:
                record.reason = str(problem)
                raise
            tenant = f" for tenant {given[1]}" if given[1:2] and given[1] else ""
            if method == "submit":
                record.object = jobs_text(result) + tenant
            elif method == "submit_search":
                record.object = f"search {result} {given[0].name!r}{tenant}"[:MAX_TEXT]
            return result

        return run


def audited(facade: Facade, writer: AuditWriter) -> Facade:
    """Return the facade with its calls noted, with the type that its callers use."""
    return cast(Facade, AuditedFacade(facade, writer))


def token_id(token: str) -> str:
    """By what a token is named: not enough of its hash to be of use to anybody else."""
    return hash_token(token).hex()[:TOKEN_DIGITS]


class AuditTrail:
    """The application, with its audit log. Outside of what believes a proxy's headers: the source is the
    other end of the connection."""

    def __init__(self, app: ASGIApp, writer: AuditWriter) -> None:
        self._app = app
        self.writer = writer
        self.limiter = RefusalLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord()
        record.source, record.forwarded_for = _source(scope)
        _record.set(record)
        unwritten = False

        async def send_audited(message: Message) -> None:
            nonlocal unwritten
            if unwritten:
                return
            if message["type"] == "http.response.start":
                problem = await self._note(_entry(record, scope, message["status"]))
                if problem is not None and record.action and message["status"] < 400:
                    unwritten = True
                    await _send_unwritten(send, problem)
                    return
            await send(message)

        await self._app(scope, receive, send_audited)

    async def _note(self, entry: AuditEntry | None) -> StoreError | None:
        """Have an entry written, and wait until it is durable. Returns why it is not."""
        if entry is None:
            return None
        entries = [entry] if entry.outcome == "accepted" else self.limiter.admit(entry)
        return await write_all(self.writer, entries)

    async def note_agent(self, call: "AgentCall") -> None:
        """An agent has enrolled its node, or was refused. Raises StoreError where an enrolment cannot be
        written down."""
        problem = await self._note(_agent_entry(call))
        if problem is not None and not call.refusal:
            raise problem

    def tick(self) -> None:
        """Write what was left out of refusals whose minute is over."""
        for entry in self.limiter.summaries():
            self.writer.write(entry)


async def write_all(writer: AuditWriter, entries: Sequence[AuditEntry]) -> StoreError | None:
    """Have entries written. Returns why they are not."""
    written = [asyncio.wrap_future(writer.write(entry)) for entry in entries]
    for result in await asyncio.gather(*written, return_exceptions=True):
        if isinstance(result, StoreError):
            return result
        if isinstance(result, BaseException):
            raise result
    return None


def _source(scope: Scope) -> tuple[str, str]:
    """The other end of the connection, and what the request says of whom it was forwarded for."""
    client = scope.get("client")
    forwarded = ", ".join(Headers(scope=scope).getlist("x-forwarded-for"))
    return client[0] if client else "", forwarded[:MAX_TEXT]


def _entry(
    record: RequestRecord, scope: MutableMapping[str, Any], status: int
) -> AuditEntry | None:
    """The entry of a request that is answered with this status; None = it needs none."""
    action, about = record.action, record.object
    if not action:
        if status not in _NO_RIGHTS:
            return None
        endpoint = getattr(scope.get("endpoint"), "__name__", "")
        is_api = str(scope["path"]).startswith("/v1/") and endpoint
        action = endpoint if is_api else str(scope["method"])
        about = str(scope["path"])[:MAX_TEXT]
    outcome: Outcome = "accepted" if status < 400 else "refused" if status < 500 else "failed"
    caller = record.caller
    return AuditEntry(
        time=audit_time(time.time()),
        user="" if caller is None else caller.user,
        tenant="" if caller is None else caller.tenant,
        token_kind=record.token_kind,
        token_id=record.token_id,
        source=record.source,
        forwarded_for=record.forwarded_for,
        action=action,
        object=about,
        outcome=outcome,
        status=status,
        reason=record.reason[:MAX_TEXT],
    )


async def _send_unwritten(send: Send, problem: StoreError) -> None:
    body = msgspec.json.encode({"error": f"done, but not in the audit log: {problem}"})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an agent that belongs in the audit log."""

    method: str  # of gRPC
    node: str  # "" = it is not known
    caller: Caller | None
    token: str
    peer: str  # as gRPC names it
    refusal: str  # a sentence, "" = it was accepted


AuditAgent: TypeAlias = Callable[[AgentCall], Awaitable[None]]


def _agent_entry(call: AgentCall) -> AuditEntry:
    caller = call.caller
    kind = "unknown" if call.token else "none"
    if caller is not None:
        kind = "node" if caller.node else caller.role
    return AuditEntry(
        time=audit_time(time.time()),
        user="" if caller is None else caller.user,
        tenant="" if caller is None else caller.tenant,
        token_kind=kind,
        token_id="" if caller is None else token_id(call.token),
        source=_address(call.peer),
        action="enrol" if call.method == "Register" else f"agent {call.method.lower()}",
        object=f"node {call.node}" if call.node else "",
        outcome="refused" if call.refusal else "accepted",
        reason=call.refusal[:MAX_TEXT],
    )


def _address(peer: str) -> str:
    """The address in gRPC's name of a peer, as ``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``."""
    _, _, rest = peer.partition(":")
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
