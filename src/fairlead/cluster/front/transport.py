"""gRPC between agents and server: the calls of ``protocol`` as generic handlers on msgpack.

Every call carries a token. What arrives is checked against the structs before anybody sees it, and every
refusal is a gRPC status with one sentence; what a stranger sends ends no more than its own call.
"""

import logging
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from fairlead.cluster.front.audit import AgentCall, AuditAgent
from fairlead.cluster.front.facade import InvalidTokenError, TooManyError
from fairlead.cluster.front.message_intake import (
    OF_ONE_ADDRESS,
    OF_ONE_CALLER,
    STREAM_WINDOW,
    STREAMS,
    IntakeFullError,
    MessageIntake,
)
from fairlead.cluster.front.messages import PublishedOrders
from fairlead.cluster.front.report_streams import ReportStreams
from fairlead.cluster.front.request_timeout import HANDSHAKE_TIMEOUT_S
from fairlead.cluster.protocol.access import Caller, TokenKind
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    SERVICE,
    LogChunk,
    LogOffset,
    MetricChunk,
    NodeReport,
    Orders,
    Register,
    WatchRequest,
    Welcome,
)
from fairlead.cluster.protocol.plausible import sanitise
from fairlead.cluster.protocol.quiet_grpc import grpc
from fairlead.cluster.protocol.validation_messages import UNREADABLE, describe_decode_error
from fairlead.cluster.shortage import Shortage, is_shortage, lacking
from fairlead.errors import ConfigError, InputError, StaleError, StoreError

MAX_MESSAGE_BYTES = 4 << 20  # bytes of a message
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000

_Message = TypeVar("_Message")
_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
_Handle: TypeAlias = Callable[[Any], Awaitable[Any]]
_Refusal: TypeAlias = tuple[grpc.StatusCode, str]
_CalledBy: TypeAlias = Callable[[Any, Caller], Awaitable[Any]]
REPEAT_S = 60.0  # after which the same problem of the store is written to the log again
_log = logging.getLogger(__name__)


class AgentHandler(Protocol):
    """The server's handler of the calls of agents; all on its event loop, none may block it.

    InputError becomes INVALID_ARGUMENT, StaleError ABORTED, StoreError and TooManyError UNAVAILABLE.
    """

    def authenticate(self, token: str) -> Caller | None:
        """Return whose token this is; None = nobody's."""

    def needs_own_token(self, node: str) -> bool:
        """Return whether only the token of this node is good for its calls."""

    async def register(self, message: Register, *, token: TokenKind) -> Welcome:
        """Take in a node. Returns what its agent is to know before its first report. token: with which it
        comes; with that which enrols nodes, it is given one of its own."""

    async def report(self, message: NodeReport) -> Orders | PublishedOrders:
        """Take over what a node reports. Returns its newest orders, and renews its lease."""

    async def log(self, message: LogChunk) -> LogOffset:
        """Store a chunk of a rank's output. Returns the offset that is to be sent next."""

    async def metrics(self, message: MetricChunk) -> LogOffset:
        """Store a chunk of the metrics of an attempt. Returns the offset that is to be sent next."""

    def watch(self, message: WatchRequest) -> AsyncGenerator[Orders | PublishedOrders, None]:
        """Yield the orders of a node as they change. Closed when the agent goes away; may end by itself."""


class Tls(NamedTuple):
    """PEM files of a server: its key, and its certificate with those of the chain behind it."""

    key: Path
    certificate: Path

    def credentials(self) -> grpc.ServerCredentials:
        """For gRPC. Raises ConfigError for files that are not there or do not fit each other."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            pair = (self.key.read_bytes(), self.certificate.read_bytes())
        except OSError as problem:  # ssl.SSLError is one
            raise ConfigError(
                f"{self.certificate}, {self.key}: not a certificate and its key ({problem})"
            ) from None
        return grpc.ssl_server_credentials([pair])


class AgentServer:
    """FrontListening for agents. Start and stop it on one event loop."""

    def __init__(
        self,
        handler: AgentHandler,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
        largest: int = MAX_MESSAGE_BYTES,
        audit: AuditAgent | None = None,
    ) -> None:
        """port: 0 = any that is free, see ``port`` after the start. largest: bytes of a message. audit: is
        told of enrolments, before they are answered, and of calls that are refused for lack of rights."""
        self.handler = handler
        self.host, self.port = host, port
        self.tls = tls
        self.largest = largest
        self._audit = audit
        self._intake = MessageIntake()
        self._streams = ReportStreams()
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        """host:port, as an agent needs it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises ConfigError where that is not possible."""
        credentials = None if self.tls is None else self.tls.credentials()
        server = grpc.aio.server(options=_server_options(self.largest))
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            if credentials is None:
                self.port = server.add_insecure_port(self.address)
            else:
                self.port = server.add_secure_port(self.address, credentials)
        except RuntimeError:
            await server.stop(None)
            raise ConfigError(f"{self.address}: cannot listen there (is it in use?)") from None
        await server.start()
        self._server = server

    async def stop(self, grace_s: float = 1.0) -> None:
        """Let calls end for so long, then break them off. Watches are broken off then."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace_s)

    async def __aenter__(self) -> "AgentServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(0.0)

    def _handlers(self) -> "grpc.GenericRpcHandler[bytes, bytes]":
        """Each takes a stream, of which it reads one message: else gRPC would have received that before the
        token is looked at. Who calls does not notice."""
        handler = self.handler
        unary = grpc.stream_unary_rpc_method_handler
        streamed = grpc.stream_stream_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Register": unary(self._unary(Register, self._register)),
                "Log": unary(self._unary(LogChunk, self._of_node(handler.log))),
                "Metrics": unary(self._unary(MetricChunk, self._of_node(handler.metrics))),
                "Report": streamed(self._reports),
                "Watch": streamed(self._watch),
            },
        )

    def _unary(self, kind: type[Any], handle: _CalledBy) -> Any:
        """The handler of a call with one answer."""
        decoder = msgspec.msgpack.Decoder(kind)

        async def call(_messages: object, context: _Context) -> bytes:
            caller = message = None
            try:
                caller = self._admit(context)
                message = decode(decoder, await self._receive(context, caller))
                encoded = msgspec.msgpack.encode(await handle(message, caller))
                if _enrols(message, caller):
                    await self._note(context, caller, message)
                return encoded
            except Exception as problem:
                refusal = _refusal(problem)
            if refusal[0] in _NO_RIGHTS or _enrols(message, caller):
                await self._note_refusal(context, caller, message or kind, refusal[1])
            return await _abort(context, refusal)

        return call

    async def _register(self, message: Register, caller: Caller) -> Welcome:
        _check_own(message.node, caller)
        return await self.handler.register(message, token=caller.token_kind)

    def _of_node(self, handle: _Handle) -> _CalledBy:
        """The handler of a call that a node makes once it is enrolled."""

        async def checked(message: Any, caller: Caller) -> Any:
            self._check_enrolled(message.node, caller)
            return await handle(message)

        return checked

    async def _receive(self, context: _Context, caller: Caller) -> bytes:
        """Return the message of a call."""
        # Nodes that are not enrolled share a token, and a slow one of them must not hold up the others
        own = caller.token_kind == "own"
        host = "" if own else context.peer().rpartition(":")[0]
        most = OF_ONE_CALLER if own else OF_ONE_ADDRESS
        try:
            async with self._intake.slot(f"{caller.user} {host}", most):
                data = await context.read()
        except TimeoutError:
            raise InputError("the message did not become whole in time") from None
        except IntakeFullError:
            raise TooManyError("too many messages that do not become whole; try again") from None
        return data if isinstance(data, bytes) else b""  # EOF

    async def _reports(self, _messages: object, context: _Context) -> None:
        """Answer the reports of a node one by one, until it has no more."""
        decoder = msgspec.msgpack.Decoder(NodeReport)
        caller: Caller | None = None
        message: Any = NodeReport
        try:
            with self._streams.open() as stream:
                caller = self._admit(context)
                data: Any = await self._receive(context, caller)
                while isinstance(data, bytes):
                    message = decode(decoder, data)
                    self._check_enrolled(message.node, caller)
                    orders = await self.handler.report(message)
                    stream.reported(message.node)
                    await context.write(msgspec.msgpack.encode(orders))
                    data = await stream.next(context.read)
                    caller = self._admit(context)  # not revoked since
            return
        except Exception as problem:
            refusal = _refusal(problem)
        await self._refuse(context, caller, message, refusal)

    async def _watch(self, _messages: object, context: _Context) -> AsyncIterator[bytes]:
        decoder = msgspec.msgpack.Decoder(WatchRequest)
        caller: Caller | None = None
        message: Any = WatchRequest
        try:
            caller = self._admit(context)
            message = decode(decoder, await self._receive(context, caller))
            self._check_enrolled(message.node, caller)
            async with aclosing(self.handler.watch(message)) as stream:
                async for orders in stream:
                    self._check_enrolled(message.node, self._admit(context))  # not revoked since
                    yield msgspec.msgpack.encode(orders)
            return
        except Exception as problem:
            refusal = _refusal(problem)
        await self._refuse(context, caller, message, refusal)

    async def _refuse(
        self, context: _Context, caller: Caller | None, message: Any, refusal: _Refusal
    ) -> NoReturn:
        """End a stream; lack of rights is written into the audit log. message: as of ``_note``."""
        if refusal[0] in _NO_RIGHTS:
            await self._note_refusal(context, caller, message, refusal[1])
        await _abort(context, refusal)

    async def _note(
        self, context: _Context, caller: Caller | None, message: Any, refusal: str = ""
    ) -> None:
        """Have a call written into the audit log. message: what was called with, or its class."""
        if self._audit is None:
            return
        kind = message if isinstance(message, type) else type(message)
        _, token = _token(context)
        call = AgentCall(
            method=_METHODS[kind],
            node=getattr(message, "node", "") if kind is not message else "",
            caller=caller or self.handler.authenticate(token),
            token=token,
            peer=context.peer(),
            refusal=refusal,
        )
        await self._audit(call)

    async def _note_refusal(
        self, context: _Context, caller: Caller | None, message: Any, refusal: str
    ) -> None:
        """Have a refusal written into the audit log; it stands whatever becomes of that."""
        try:
            await self._note(context, caller, message, refusal)
        except Exception:
            _log.exception("a refusal could not be written into the audit log")

    def _check_enrolled(self, node: str, caller: Caller) -> None:
        _check_own(node, caller)
        if caller.token_kind != "own" and self.handler.needs_own_token(node):
            raise StaleError(f"node {node!r}: has a token of its own; register again")

    def _admit(self, context: _Context) -> Caller:
        """Return who calls. Only agents, and admins, may."""
        scheme, token = _token(context)
        caller = self.handler.authenticate(token) if scheme.lower() == "bearer" else None
        if caller is None:
            raise InvalidTokenError("no valid token came with the call")
        if caller.role == "user":
            raise _NotAllowedError(f"the token of user {caller.user!r} is not one for agents")
        return caller


def _token(context: _Context) -> tuple[str, str]:
    """The scheme and the token of a call; "" where there is none."""
    given = dict(context.invocation_metadata() or ()).get("authorization", "")
    scheme, _, token = given.partition(" ") if isinstance(given, str) else ("", "", "")
    return scheme, token


def _enrols(message: Any, caller: Caller | None) -> bool:
    """Return whether a call asks for a token of a node."""
    enrols = caller is not None and caller.token_kind == "enrolment"
    return isinstance(message, Register) and enrols


def _check_own(node: str, caller: Caller) -> None:
    if caller.node not in ("", node):
        raise _NotAllowedError(
            f"the token of {caller.user} is not one for node {node!r}; each node needs a --state "
            "directory of its own"
        )


class _NotAllowedError(Exception):
    """A call with a token of the wrong role."""


class _VersionError(Exception):
    """A call in another version of the protocol."""


class _StoreProblems:
    """What the server cannot write, for its log: agents try again every second, and each once a minute is
    enough."""

    def __init__(self) -> None:
        self._said_s: dict[str, float] = {}  # problem -> when it was said (monotonic)

    def log(self, problem: str) -> None:
        """Write it to the log, unless that was done a short while ago."""
        now = time.monotonic()
        self._said_s = {one: at for one, at in self._said_s.items() if now - at < REPEAT_S}
        if problem not in self._said_s:
            self._said_s[problem] = now
            _log.error("a call of an agent failed, and is tried again: %s", problem)


_CODES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (InvalidTokenError, grpc.StatusCode.UNAUTHENTICATED),
    (_NotAllowedError, grpc.StatusCode.PERMISSION_DENIED),
    (_VersionError, grpc.StatusCode.FAILED_PRECONDITION),
    (StaleError, grpc.StatusCode.ABORTED),
    (TooManyError, grpc.StatusCode.UNAVAILABLE),
    (InputError, grpc.StatusCode.INVALID_ARGUMENT),
    (grpc.aio.BaseError, grpc.StatusCode.UNAVAILABLE),  # the server ends
)
_NO_RIGHTS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_shortage = Shortage()
_store_problems = _StoreProblems()
_METHODS: dict[type[Any], str] = {
    Register: "Register",
    NodeReport: "Report",
    LogChunk: "Log",
    MetricChunk: "Metrics",
    WatchRequest: "Watch",
}


async def _abort(context: _Context, refusal: _Refusal) -> NoReturn:
    """Outside of the handling of what went wrong, so that gRPC does not log that too."""
    await context.abort(*refusal)
    raise AssertionError("abort() does not return")


def _refusal(problem: Exception) -> _Refusal:
    """Return the status and sentence for the caller. What went wrong inside is for the log alone."""
    for kind, code in _CODES:
        if isinstance(problem, kind):
            return code, str(problem)
    if isinstance(problem, StoreError):
        _store_problems.log(str(problem))
        return grpc.StatusCode.UNAVAILABLE, "the server cannot write its state now"
    if is_shortage(problem):
        _shortage.log(problem)
        return grpc.StatusCode.UNAVAILABLE, f"the server lacks something now: {lacking(problem)}"
    _log.error("a call of an agent failed", exc_info=problem)
    return grpc.StatusCode.INTERNAL, "the server failed at this call; its log says why"


def decode(decoder: msgspec.msgpack.Decoder[_Message], data: bytes) -> _Message:
    """The message in ``data``. Raises ConfigError with the field and its value."""
    try:
        message = decoder.decode(data)
    except UNREADABLE as problem:
        if decoder.type is Register:
            _check_version(_decode_version(data))
        name = getattr(decoder.type, "__name__", "message")
        raise ConfigError(describe_decode_error(name, data, problem)) from None
    if isinstance(message, Register):
        _check_version(message.protocol)
    return sanitise(message)


class _VersionOnly(msgspec.Struct):
    """The part that every version of ``Register`` has."""

    protocol: int


def _decode_version(data: bytes) -> int:
    """The version that a message of unknown form is in; ours if it does not say."""
    try:
        return msgspec.msgpack.decode(data, type=_VersionOnly).protocol
    except UNREADABLE:
        return PROTOCOL


def _check_version(version: int) -> None:
    if version != PROTOCOL:
        raise _VersionError(
            f"the agent speaks version {version} of the protocol, the server version {PROTOCOL}"
        )


def _server_options(largest: int) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.http.overload_protection", 0),  # it refuses calls of those who keep to that, too
        ("grpc.http2.lookahead_bytes", STREAM_WINDOW),
        (
            "grpc.http2.bdp_probe",
            0,
        ),  # or the windows of streams that nobody reads grow to megabytes
        ("grpc.so_reuseport", 0),  # or a second server would share the port without a word
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_TIMEOUT_S * 1000)),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ]
