"""The agent's side of ``transport``: its calls, over a channel that connects again by itself."""

import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlead.cluster.agent.report_stream import ReportStream
from fairlead.cluster.protocol.messages import (
    ASSIGNMENT_BYTES,
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
from fairlead.cluster.protocol.quiet_grpc import grpc
from fairlead.cluster.protocol.validation_messages import UNREADABLE
from fairlead.errors import ConfigError, FairleadError

_OVERHEAD_BYTES = 1 << 20  # bytes of orders: leases, reasons, what is to be forgotten
_MAX_GRPC_MESSAGE = (1 << 31) - 1
CONNECT_S = 2.0  # longest wait between two attempts to connect
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000

_Answer = TypeVar("_Answer")
_REFUSALS = frozenset(
    (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)


class RefusedError(FairleadError):
    """The server refuses, and would refuse again: bad message, token or version."""


class UnknownTokenError(RefusedError):
    """The server does not know the token."""


class MalformedError(RefusedError):
    """The server cannot understand the message, or finds something in it that cannot be."""


class TooLargeError(FairleadError):
    """A message, or the answer to it, is larger than the other side takes."""


class ServerUnreachableError(FairleadError):
    """There was no answer: the server is away, too slow or in trouble. Try again."""


class RegisterAgainError(FairleadError):
    """The server does not know this incarnation of the node."""


class AgentClient:
    """The calls of ``protocol``. Open, use and close it on one event loop.

    Each raises RefusedError, TooLargeError, ServerUnreachableError or RegisterAgainError, with the
    server's sentence.
    """

    def __init__(
        self,
        address: str,
        token: str,
        ca: Path | None = None,
        timeout_s: float = 5.0,
        *,
        devices: int = 1,
    ) -> None:
        """address: host:port. ca: PEM file with the certificate to trust; None = without TLS.
        timeout_s: of a call with one answer. devices: of the node, by which its orders are bounded.
        ConfigError: the token cannot be one."""
        self.address = address
        self.ca = ca
        self.timeout_s = timeout_s
        self._options = [*_OPTIONS, ("grpc.max_receive_message_length", orders_bytes(devices))]
        self._has_answered = False  # so the address and the certificate are right
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, Any] = {}
        self._reports = ReportStream(lambda: self._call("Report")(metadata=self._metadata))
        self.use(token)

    def use(self, token: str) -> None:
        """Call with this token from now on. ConfigError: it cannot be one."""
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ConfigError("the token: must be of printable ASCII characters, without spaces")
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._reports.end()

    async def open(self) -> "AgentClient":
        """Make the channel, which connects with the first call. ConfigError: the CA file is no good."""
        if self.ca is None:
            channel = grpc.aio.insecure_channel(self.address, options=self._options)
        else:
            trusted = grpc.ssl_channel_credentials(_read(self.ca))
            channel = grpc.aio.secure_channel(self.address, trusted, options=self._options)
        for name in ("Register", "Log", "Metrics"):
            self._calls[name] = channel.unary_unary(f"/{SERVICE}/{name}", None, None)
        self._calls["Report"] = channel.stream_stream(f"/{SERVICE}/Report", None, None)
        self._calls["Watch"] = channel.unary_stream(f"/{SERVICE}/Watch", None, None)
        self._channel = channel
        return self

    async def close(self) -> None:
        """Break off what is under way; a second call does nothing."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            self._calls.clear()
            self._reports.end()
            await channel.close(None)

    async def __aenter__(self) -> "AgentClient":
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def register(self, message: Register) -> Welcome:
        """See ``protocol``, as for the others. A token of the node's own is used from now on."""
        welcome = await self._unary("Register", message, _WELCOME)
        if welcome.token:
            self.use(welcome.token)
        return welcome

    async def report(self, message: NodeReport) -> Orders:
        """Heartbeat and renewal. One report at a time."""
        try:
            reply = await self._reports.ask(msgspec.msgpack.encode(message), self.timeout_s)
        except grpc.aio.AioRpcError as problem:
            raise self._error(problem) from None
        except TimeoutError:
            raise ServerUnreachableError(
                f"{self.address}: deadline exceeded (no answer within {self.timeout_s:g} s)"
            ) from None
        if reply is None:
            raise ServerUnreachableError(f"{self.address}: has ended the stream of reports")
        self._has_answered = True
        return _decode(_ORDERS, reply)

    async def log(self, message: LogChunk) -> LogOffset:
        """A piece of output."""
        return await self._unary("Log", message, _LOG_REQUEST)

    async def metrics(self, message: MetricChunk) -> LogOffset:
        """A piece of what a job reports."""
        return await self._unary("Metrics", message, _LOG_REQUEST)

    async def watch(self, message: WatchRequest) -> AsyncGenerator[Orders, None]:
        """Orders as they change, until the server ends it or cannot be reached any more."""
        data = msgspec.msgpack.encode(message)
        call = self._call("Watch")(data, metadata=self._metadata)
        try:
            async for reply in call:
                yield _decode(_ORDERS, reply)
        except grpc.aio.AioRpcError as problem:
            raise self._error(problem) from None
        finally:
            call.cancel()

    async def _unary(
        self, name: str, message: Any, decoder: msgspec.msgpack.Decoder[_Answer]
    ) -> _Answer:
        data = msgspec.msgpack.encode(message)
        try:
            reply: bytes = await self._call(name)(
                data, metadata=self._metadata, timeout=self.timeout_s
            )
        except grpc.aio.AioRpcError as problem:
            raise self._error(problem) from None
        self._has_answered = True
        return _decode(decoder, reply)

    def _call(self, name: str) -> Any:
        if not self._calls:
            raise ServerUnreachableError(f"{self.address}: the channel is closed")
        return self._calls[name]

    def _error(self, problem: grpc.aio.AioRpcError) -> FairleadError:
        address = self.address
        code, details = problem.code(), problem.details() or ""
        if code is grpc.StatusCode.ABORTED:
            return RegisterAgainError(details)
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            return MalformedError(f"{address}: {details}")
        if (
            code is grpc.StatusCode.RESOURCE_EXHAUSTED and "metadata" not in details
        ):  # which are the token
            return TooLargeError(f"{address}: {details}")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return UnknownTokenError(f"{address}: {details}")
        if code in _REFUSALS:
            return RefusedError(f"{address}: {details}")
        hint = "" if self._has_answered else _hint(details, tls=self.ca is not None)
        return ServerUnreachableError(
            f"{address}: {code.name.lower().replace('_', ' ')} ({details}){hint}"
        )


def orders_bytes(devices: int) -> int:
    """The largest orders that a node of so many devices can be given: two jobs share a device at most."""
    return min(_OVERHEAD_BYTES + 2 * devices * ASSIGNMENT_BYTES, _MAX_GRPC_MESSAGE)


def _decode(decoder: msgspec.msgpack.Decoder[_Answer], data: bytes) -> _Answer:
    try:
        return decoder.decode(data)
    except UNREADABLE as problem:
        raise RefusedError(f"the server's answer cannot be read ({problem})") from None


def _hint(details: str, *, tls: bool) -> str:
    """Return a guess why a connection is not made, by gRPC's words for it; "" = there is none."""
    if tls and "ALPN" in details:
        return (
            "; is that the port for people? `fairlead serve` has another for agents (--agent-port)"
        )
    if tls and "handshake" in details.lower():
        return (
            "; --ca has to be the certificate of that server, and it has to be for this host name"
        )
    if not tls and "Socket closed" in details:
        return "; does it speak TLS? Then say --ca FILE"
    return ""


def _read(ca: Path) -> bytes:
    try:
        content = ca.read_bytes()
        ssl.create_default_context(cadata=content.decode("ascii") or "none")
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"--ca {ca}: has no certificate (PEM)") from None
    except OSError as problem:
        raise ConfigError(f"--ca {ca}: cannot be read ({problem.strerror})") from None
    return content


_WELCOME = msgspec.msgpack.Decoder(Welcome)
_ORDERS = msgspec.msgpack.Decoder(Orders)
_LOG_REQUEST = msgspec.msgpack.Decoder(LogOffset)
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.enable_http_proxy", 0),  # agents and server talk directly
    ("grpc.use_local_subchannel_pool", 1),  # clients of one process each have a connection
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", int(CONNECT_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(CONNECT_S * 1000)),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
