"""A client of a live cluster, for the command line and for Python programs."""

import ssl
import uuid
from collections.abc import Iterator, Sequence
from datetime import date
from functools import cached_property
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from fairlead.cluster.connection_hints import refused_hint, silence_hint
from fairlead.cluster.protocol.access import Role
from fairlead.cluster.protocol.accounting import UsageView
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    Comparison,
    DeviceUsageView,
    Explanation,
    JobView,
    LostWork,
    NodeView,
    ReloadAnswer,
    Sample,
    StatusView,
    UserView,
    WhatIf,
)
from fairlead.cluster.protocol.audit import AuditPage
from fairlead.cluster.protocol.engine_views import EngineView
from fairlead.cluster.protocol.job_search import FoundJobs, JobQuery
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.metrics import MetricCurve
from fairlead.cluster.protocol.read_job_spec import SPECS, check_spec
from fairlead.cluster.protocol.read_study import check_study, read_study
from fairlead.cluster.protocol.study import SearchView, StudySpec
from fairlead.errors import FairleadError, InputError, UnreachableError
from fairlead.model.argument_checks import (
    NUMBER,
    TEXT,
    brief_repr,
    check_arguments,
    is_number,
    is_whole,
    or_none,
)

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8470"
LONGEST_URL = 2_000  # characters of the address of a server
PAGE = 1_000  # jobs asked for at once
_NOT_FAIRLEAD = "does not look like the HTTP port of `fairlead serve`"
_SILENT = "Server disconnected without sending a response."  # of httpcore; a server that dies does it, too
_TYPES = {"url": TEXT, "token": TEXT, "ca": or_none(TEXT), "timeout_s": NUMBER}
MAX_TRIES = 3  # of a request whose connection breaks; none counts twice


class Client:
    """Talks to ``fairlead serve``. To be closed, or used in a ``with`` block.

    token: of `fairlead user add`. ca: a file of certificates to trust instead of the system's.
    timeout_s: without a byte. What the server refuses raises InputError with its sentence; a server
    that does not answer, UnreachableError.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str = "",
        ca: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        given = {"url": url, "token": token, "ca": ca, "timeout_s": timeout_s}
        check_arguments("Client", given, _TYPES)
        self.url = url.rstrip("/")
        self.token = token
        self.ca = ca
        self.timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if "_http" in self.__dict__:
            self._http.close()
            del self._http

    # --- jobs ------------------------------------------------------------------------------------
    def submit(self, specs: Sequence[JobSpec], tenant: str = "", key: str = "") -> list[int]:
        """Submit jobs. Returns their ids, in the order of ``specs`` and of the tasks of arrays, once they are
        durable.

        tenant: for admins, who may submit for another. key: the same key again returns the same ids and
        submits nothing; "" = one of its own, so that a connection that breaks submits nothing twice. Raises
        ConfigError for a spec that cannot be used.
        """
        for position, spec in enumerate(specs):
            if not isinstance(spec, JobSpec):
                raise InputError(f"{SPECS}[{position}]: expected a JobSpec, got {brief_repr(spec)}")
            check_spec(spec, f"{SPECS}[{position}]")
        sent = {"Idempotency-Key": key or uuid.uuid4().hex}
        ask = {"tenant": tenant} if tenant else {}
        found = self._call("POST", "/v1/jobs", dict[str, list[int]], ask, list(specs), sent)
        return found["ids"]

    def jobs(
        self,
        state: str = "",
        tenant: str = "",
        after: int = -1,
        limit: int = PAGE,
        array: int | None = None,
    ) -> list[JobView]:
        """Return one page of jobs in order of id: at most ``limit`` with ids above ``after``. state: "" =
        all, "open" = not ended, or one of the states; tenant: "" = all that the caller may see; array: only
        the tasks of this one."""
        ask = {"state": state, "tenant": tenant, "after": after, "limit": limit}
        if array is not None:
            ask["array"] = array
        return self._call("GET", "/v1/jobs", list[JobView], ask)

    def find_jobs(self, query: JobQuery) -> FoundJobs:
        """Return a page of the jobs that a query asks for, and how many there are in all."""
        ask = msgspec.to_builtins(query)
        ask["descending"] = "true" if query.descending else "false"
        if query.array is None:
            del ask["array"]
        return self._call("GET", "/v1/jobs/search", FoundJobs, ask)

    def all_jobs(
        self, state: str = "", tenant: str = "", after: int = -1, array: int | None = None
    ) -> Iterator[JobView]:
        """Yield all jobs in order of id, asked for page by page. The arguments are those of ``jobs``."""
        while True:
            page = self.jobs(state, tenant, after, array=array)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].id

    def job(self, job: int) -> JobView:
        """Return a job as it is now. Raises InputError where there is none that the caller may see."""
        return self._call("GET", f"/v1/jobs/{_id('job', job)}", JobView)

    def attempts(self, job: int) -> list[AttemptView]:
        """Return every attempt of a job, oldest first."""
        return self._call("GET", f"/v1/jobs/{_id('job', job)}/attempts", list[AttemptView])

    def usage(self, job: int) -> list[DeviceUsageView]:
        """Return how busy the devices of a job were over time, by attempt and rank; [] = not known."""
        return self._call("GET", f"/v1/jobs/{_id('job', job)}/usage", list[DeviceUsageView])

    def metrics(self, job: int, name: str = "") -> list[MetricCurve]:
        """Return the metrics that a job has reported, in order of name. name: only this one, "" = all."""
        ask = {"name": name} if name else {}
        return self._call("GET", f"/v1/jobs/{_id('job', job)}/metrics", list[MetricCurve], ask)

    def explain(self, job: int) -> Explanation:
        """Return where a job is and why, its attempts, and when it is forecast to end."""
        return self._call("GET", f"/v1/jobs/{_id('job', job)}/explain", Explanation)

    def log(self, job: int, cursor: str = "", limit: int = 1 << 16) -> tuple[str, str]:
        """Return output of a job and the cursor after it. cursor: where to begin, "" = at the beginning,
        "tail" = at the end of the newest attempt; limit: bytes at most."""
        ask = {"cursor": cursor, "limit": limit}
        found = self._call("GET", f"/v1/jobs/{_id('job', job)}/log", dict[str, str], ask)
        return found["text"], found["cursor"]

    def cancel(self, job: int) -> None:
        """End a job for good. One that has ended stays as it is."""
        self._call("POST", f"/v1/jobs/{_id('job', job)}/cancel")

    def cancel_array(self, array: int) -> list[int]:
        """End all tasks of an array for good that have not ended. Returns their ids."""
        return self._call("POST", f"/v1/arrays/{_id('array', array)}/cancel", dict[str, list[int]])[
            "ids"
        ]

    def pause(self, job: int) -> list[str]:
        """Have a job save its state and leave its devices until it is resumed. Returns a sentence where it
        cannot save, and loses work."""
        return self._call("POST", f"/v1/jobs/{_id('job', job)}/pause", LostWork).lost_work

    def resume(self, job: int, *, accept_loss: bool = False) -> None:
        """Let a paused job run again. Raises InputError for one that is not paused. accept_loss: also one
        that waits for its checkpoints; its next attempt begins with whatever is there."""
        ask = {"accept_loss": "true"} if accept_loss else {}
        self._call("POST", f"/v1/jobs/{_id('job', job)}/resume", ask=ask)

    def set_weight(self, job: int, weight: float) -> None:
        """Give a job another weight, from the next round on. Raises InputError for one that no job
        can have."""
        if not is_number(weight) or not isfinite(weight):  # JSON has no word for infinity
            raise InputError(f"weight: must be a finite number, got {brief_repr(weight)}")
        self._call("PUT", f"/v1/jobs/{_id('job', job)}/weight", body={"weight": weight})

    # --- searches --------------------------------------------------------------------------------
    def search(self, study: StudySpec | str | Path, tenant: str = "", key: str = "") -> int:
        """Begin a search for good parameters. Returns its id once it is durable.

        study: what to search, or the path of a file that says so. tenant, key: as of ``submit``. Raises
        InputError for a study that cannot be used.
        """
        if not isinstance(study, StudySpec):
            study = read_study(study)
        check_study(study)
        sent = {"Idempotency-Key": key or uuid.uuid4().hex}
        ask = {"tenant": tenant} if tenant else {}
        return self._call("POST", "/v1/searches", dict[str, int], ask, study, sent)["id"]

    def searches(self) -> list[SearchView]:
        """Return the searches in order of id, with their best trials, and without the others."""
        return self._call("GET", "/v1/searches", list[SearchView])

    def search_status(self, search: int) -> SearchView:
        """Return a search with all its trials."""
        return self._call("GET", f"/v1/searches/{_id('search', search)}", SearchView)

    def search_curves(self, search: int) -> dict[int, MetricCurve]:
        """Return what the newest 500 trials of a search have reported of its metric, by number."""
        return self._call(
            "GET", f"/v1/searches/{_id('search', search)}/curves", dict[int, MetricCurve]
        )

    def stop_search(self, search: int) -> None:
        """End a search and its trials for good. Raises InputError for one that has ended."""
        self._call("POST", f"/v1/searches/{_id('search', search)}/stop")

    # --- cluster ---------------------------------------------------------------------------------
    def me(self) -> UserView:
        """Return who this client is to the server."""
        return self._call("GET", "/v1/me", UserView)

    def status(self) -> StatusView:
        """Return the state of the cluster: devices, tenants, policy, round, counts of jobs."""
        return self._call("GET", "/v1/status", StatusView)

    def nodes(self) -> list[NodeView]:
        """Return all nodes, with their states and what their devices are used for."""
        return self._call("GET", "/v1/nodes", list[NodeView])

    def engine_plan(self) -> EngineView:
        """Return what the engine that starts nodes is asked for now, and why. For admins.

        Raises ConflictError where the server has none."""
        return self._call("GET", "/v1/engine", EngineView)

    def drain(self, node: str) -> list[str]:
        """Take a node out of service: its jobs save and move, and none comes to it. Returns a sentence for
        each job that cannot save, and loses work. For admins."""
        return self._call("POST", f"/v1/nodes/{_part(node)}/drain", LostWork).lost_work

    def undrain(self, node: str) -> None:
        """Put a drained node back into service. For admins."""
        self._call("POST", f"/v1/nodes/{_part(node)}/undrain")

    def remove_node(self, node: str) -> None:
        """Forget a node that is drained, offline or lost. For admins."""
        self._call("DELETE", f"/v1/nodes/{_part(node)}")

    def revoke_node(self, node: str) -> None:
        """Refuse whatever a node says until it is put back into service. For admins."""
        self._call("POST", f"/v1/nodes/{_part(node)}/revoke")

    def set_policy(self, policy: str) -> None:
        """Decide by another policy, ``NAME[:ARG]``, from the next round on. For admins."""
        self._call("PUT", "/v1/policy", body={"policy": policy})

    def reload(self) -> ReloadAnswer:
        """Have the server take over what its configuration file says now. Raises InputError where something
        is wrong with the file; then nothing changes. For admins."""
        return self._call("POST", "/v1/reload", ReloadAnswer)

    def what_if(self, question: WhatIf) -> Comparison:
        """Return forecasts of the cluster as it is and with the changes of ``question``. Nothing changes."""
        return self._call("POST", "/v1/what-if", Comparison, body=question)

    def samples(self, since_s: float = 0.0) -> list[Sample]:
        """Return samples of the cluster, one per round, from ``since_s`` (s since the cluster was first
        started) on, oldest first; older ones are thinned out."""
        return self._call("GET", "/v1/samples", list[Sample], {"since_s": since_s})

    # --- records ---------------------------------------------------------------------------------
    def audit(
        self,
        *,
        user: str = "",
        action: str = "",
        since: float | None = None,
        until: float | None = None,
        cursor: str = "",
        limit: int = PAGE,
    ) -> AuditPage:
        """Return a page of the audit log, oldest entry first: at most ``limit`` entries from the cursor on
        ("" = from the oldest). since, until: seconds since 1970. For admins."""
        ask = {"user": user, "action": action, "cursor": cursor, "limit": limit}
        times = {"since": since, "until": until}
        ask |= {name: at for name, at in times.items() if at is not None}
        return self._call("GET", "/v1/audit", AuditPage, ask)

    def accounting(
        self, by: Sequence[str] = (), since: date | None = None, until: date | None = None
    ) -> UsageView:
        """Return device time and costs by groups: some of tenant, user, type, and one of day, week and month.
        since, until: the first day, and the one after the last (UTC). To a user their tenant's."""
        days = {"since": since, "until": until}
        ask = {name: day.isoformat() for name, day in days.items() if day is not None}
        return self._call("GET", "/v1/accounting", UsageView, {"by": ",".join(by), **ask})

    # --- people ----------------------------------------------------------------------------------
    def users(self) -> list[UserView]:
        """Return all users with their tenants and roles. For admins."""
        return self._call("GET", "/v1/users", list[UserView])

    def backup(self) -> Iterator[bytes]:
        """Yield a backup of the cluster's state, made now, in chunks of bytes. For admins."""
        try:
            with self._http.stream("GET", "/v1/backup") as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(self.url, answer)
                yield from answer.iter_bytes()
        except httpx.ConnectError as problem:
            raise self._unreachable(problem) from None
        except httpx.TransportError as problem:
            raise UnreachableError(f"server {self.url}: broke off: {problem}") from None

    def add_user(self, user: str, tenant: str, role: Role, lasts_s: float | None = None) -> str:
        """Add a user, or give a known one another token. Returns the token, which is shown only once.
        lasts_s: seconds for which it is good, None = until there is another. For admins."""
        new = {"user": user, "tenant": tenant, "role": role, "lasts_s": lasts_s}
        return self._call("POST", "/v1/users", dict[str, str], body=new)["token"]

    def remove_user(self, user: str) -> None:
        """Remove a user, whose token is refused from now on; jobs stay. For admins."""
        self._call("DELETE", f"/v1/users/{_part(user)}")

    # --- below -----------------------------------------------------------------------------------
    @cached_property
    def _http(self) -> httpx.Client:
        """Made when it is first needed. No proxy from the environment gets to see the token."""
        if problem := address_problem(self.url):
            raise InputError(f"server {problem}")
        if not all("!" <= letter <= "~" for letter in self.token):
            raise InputError("the token: must be of printable ASCII characters, without spaces")
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
            timeout=self.timeout_s,
            verify=self._trust(),
            trust_env=False,
        )

    def _trust(self) -> ssl.SSLContext | bool:
        if not self.url.startswith("https:"):
            return False  # nothing to verify, so no certificates need to be read
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as problem:
            raise InputError(f"{self.ca}: cannot be used as certificates: {problem}") from None

    def _call(
        self,
        method: str,
        path: str,
        kind: type[T] = dict,  # type: ignore[assignment]
        ask: dict[str, Any] | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> T:
        sent = dict(headers or {})
        content = None
        if body is not None:
            try:
                content = msgspec.json.encode(body)
            except (TypeError, ValueError) as problem:  # also: half of a surrogate pair
                raise InputError(f"{method} {path}: cannot be sent as JSON: {problem}") from None
            sent["Content-Type"] = "application/json"
        answer = self._send(method, path, ask, content, sent)
        if not answer.is_success:
            raise _refusal(self.url, answer)
        try:
            return msgspec.json.decode(answer.content or b"{}", type=kind)
        except msgspec.DecodeError as problem:
            raise FairleadError(
                f"server {self.url}: {_NOT_FAIRLEAD}, or is of another version: {problem}"
            ) from None

    def _send(
        self,
        method: str,
        path: str,
        ask: dict[str, Any] | None,
        content: bytes | None,
        headers: dict[str, str],
    ) -> httpx.Response:
        """All requests may be repeated: they set a state, ask for one, or carry a key."""
        for left in reversed(range(MAX_TRIES)):
            try:
                return self._http.request(
                    method, path, params=ask, content=content, headers=headers
                )
            except httpx.InvalidURL as problem:  # longer than 65,536 characters
                where = f"{method} {path[:60]}"
                raise InputError(
                    f"{where}: an argument cannot be in an address: {problem}"
                ) from None
            except UnicodeEncodeError as problem:
                raise InputError(f"{brief_repr(problem.object)} is not valid Unicode") from None
            except httpx.ConnectError as problem:
                raise self._unreachable(problem) from None
            except httpx.TimeoutException:
                raise UnreachableError(
                    f"server {self.url}: no answer within {self.timeout_s:g} s"
                ) from None
            except httpx.ProtocolError as problem:
                if str(problem) != _SILENT:
                    raise InputError(f"server {self.url}: {_NOT_FAIRLEAD}: {problem}") from None
                if not left:
                    raise UnreachableError(
                        f"server {self.url}: {_NOT_FAIRLEAD}: {problem}{silence_hint(self.url)}"
                    ) from None
            except httpx.TransportError as problem:
                if not left:
                    raise UnreachableError(f"server {self.url}: broke off: {problem}") from None
        raise AssertionError("the last try returns or raises")

    def _unreachable(self, problem: httpx.ConnectError) -> UnreachableError:
        hint = refused_hint(problem, self.ca)
        return UnreachableError(f"server {self.url}: cannot be reached: {problem}{hint}")


def _refusal(url: str, answer: httpx.Response) -> FairleadError:
    try:
        sentence = msgspec.json.decode(answer.content, type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return FairleadError(f"server {url}: {_NOT_FAIRLEAD}: it answered {answer.status_code}")
    if answer.status_code == 401:
        sentence = f"server {url}: {sentence}; use `fairlead login`, FAIRLEAD_TOKEN or --token-file"
    # 429: nothing is wrong with what was asked, only with when
    kind = FairleadError if answer.status_code == 429 or answer.status_code >= 500 else InputError
    return kind(sentence)


def address_problem(url: str) -> str:
    """Return what is wrong with the address of a server, behind the address; "" = nothing. Never a password
    in it."""
    if "@" in url:
        _, _, host = url.rpartition("@")
        return f"'...@{host}': has a user or a password in it; a token is all that is asked for"
    return "" if _is_address(url) else f"{brief_repr(url)}: is no address of the form {DEFAULT_URL}"


def _is_address(url: str) -> bool:
    if len(url) > LONGEST_URL or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port above 65535, or a bracket that is not closed
        return False


def _id(name: str, value: int) -> str:
    """An id as a part of a path."""
    if not is_whole(value):
        raise InputError(f"{name}: expected a whole number, got {brief_repr(value)}")
    return f"{value:d}"


def _part(name: str) -> str:
    """A name as one part of a path."""
    if not isinstance(name, str):
        raise InputError(f"expected a name, got {brief_repr(name)}")
    if not name or not all(
        letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name
    ):
        raise InputError(f"{name!r}: a name has letters, digits, '.', '_' and '-' only")
    return name
