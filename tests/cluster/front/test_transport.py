import asyncio
import logging
import os
import random
import socket
import struct
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest
from tests.cluster.tls import certificate

from fairlead.cluster.agent.server_client import (
    AgentClient,
    RefusedError,
    RegisterAgainError,
    ServerUnreachableError,
)
from fairlead.cluster.front import message_intake, transport
from fairlead.cluster.front.facade import TooManyError
from fairlead.cluster.front.message_intake import (
    OF_ONE_CALLER,
    STREAM_WINDOW,
    STREAMS,
    IntakeLimit,
)
from fairlead.cluster.front.transport import (
    MAX_MESSAGE_BYTES,
    AgentServer,
    Tls,
)
from fairlead.cluster.protocol.access import Caller, Role, TokenKind
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    SERVICE,
    AttemptStatus,
    LogChunk,
    LogOffset,
    MetricChunk,
    NodeReport,
    Orders,
    Register,
    WatchRequest,
    Welcome,
)
from fairlead.errors import ConfigError, StaleError, StoreError

WAIT_S = 180.0  # for a slow machine
ROLES: dict[str, Role] = {"agent-token": "agent", "admin-token": "admin", "user-token": "user"}


class Handler:
    """A server's side that does as the name of the node says."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.watched = 0
        self.enrolled: set[str] = set()
        self.gives_tokens = False
        self.unwatched = asyncio.Event()

    def authenticate(self, token: str) -> Caller | None:
        role = ROLES.get(token)
        if token.startswith("token-of-"):
            node = token.removeprefix("token-of-")
            return Caller(user=f"node {node}", tenant="", role="agent", node=node)
        return None if role is None else Caller(user="someone", tenant="t", role=role)

    def needs_own_token(self, node: str) -> bool:
        return node in self.enrolled

    async def register(self, message: Register, *, token: TokenKind) -> Welcome:
        self.seen.append(message)
        orders = Orders(seq=0, desired=())
        own = f"token-of-{message.node}" if token == "enrolment" and self.gives_tokens else ""
        return Welcome(heartbeat_s=1.0, lease_s=3.0, rate_bound=0.01, orders=orders, token=own)

    async def report(self, message: NodeReport) -> Orders:
        match message.node:
            case "unknown":
                raise StaleError("node 'unknown': has not registered")
            case "wrong":
                raise ConfigError("node 'wrong': has no device 7")
            case "many":
                raise TooManyError("node 'x': 5,000 new nodes have enrolled")
            case "full":
                raise StoreError("/var/lib/secret: disk full")
            case "broken":
                raise ZeroDivisionError("inner secret")
            case "slow":
                await asyncio.sleep(WAIT_S)
        self.seen.append(message)
        return Orders(seq=message.seq, desired=(), leases={1: 2.5})

    async def log(self, message: LogChunk) -> LogOffset:
        return LogOffset(offset=message.offset + len(message.data))

    async def metrics(self, message: MetricChunk) -> LogOffset:
        return LogOffset(offset=message.offset + len(message.data))

    async def watch(self, message: WatchRequest) -> AsyncGenerator[Orders, None]:
        if message.node == "unknown":
            raise StaleError("node 'unknown': has not registered")
        self.watched += 1
        try:
            seq = 0
            while True:
                yield Orders(seq=seq, desired=())
                seq += 1
                await asyncio.sleep(0.001)
        finally:
            self.unwatched.set()


REGISTER = Register(
    protocol=PROTOCOL,
    version="0",
    node="n",
    incarnation="i",
    host="localhost",
    accelerator="v100",
    devices=4,
    holds=(AttemptStatus(job=1, attempt=2, state="running", step=7),),
)
WATCH = WatchRequest(node="n", incarnation="i")
CHUNK = LogChunk(node="n", incarnation="i", job=1, attempt=1, rank=0, offset=3, data=b"\x00\xff")
Scene = Callable[[Handler, AgentServer, AgentClient], Awaitable[None]]


def report(node: str = "n", seq: int = 1) -> NodeReport:
    return NodeReport(node=node, incarnation="i", seq=seq, holds=())


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, WAIT_S))


def with_server(scene: Scene, token: str = "agent-token") -> None:
    """Play a scene with a server and one client."""

    async def play() -> None:
        handler = Handler()
        async with (
            AgentServer(handler) as server,
            AgentClient(server.address, token, timeout_s=WAIT_S) as client,
        ):
            await scene(handler, server, client)

    run(play())


def test_the_four_calls() -> None:
    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        assert (await client.register(REGISTER)).lease_s == 3.0
        assert await client.report(report(seq=5)) == Orders(seq=5, desired=(), leases={1: 2.5})
        assert handler.seen == [REGISTER, report(seq=5)]
        assert await client.log(CHUNK) == LogOffset(offset=5)
        stream = client.watch(WATCH)
        assert [(await anext(stream)).seq for _ in range(4)] == [0, 1, 2, 3]
        await stream.aclose()
        await handler.unwatched.wait()  # the server notices

    with_server(scene)


def test_a_node_is_given_a_token_and_is_no_other_node_with_it() -> None:
    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        handler.gives_tokens = True
        handler.enrolled.add("n")
        with pytest.raises(RegisterAgainError, match="'n': has a token of its own"):
            await client.report(report())
        assert (await client.register(REGISTER)).token == "token-of-n"
        assert (await client.report(report(seq=5))).seq == 5  # with that
        of_other = "the token of node n is not one for node 'other'"
        for call in (
            client.report(report("other")),
            client.register(msgspec.structs.replace(REGISTER, node="other")),
            client.log(msgspec.structs.replace(CHUNK, node="other")),
            anext(client.watch(msgspec.structs.replace(WATCH, node="other"))),
        ):
            with pytest.raises(RefusedError, match=of_other):
                await call
        assert [one.node for one in handler.seen] == ["n", "n"]

    with_server(scene)


def test_orders_are_not_pushed_to_a_node_whose_token_was_revoked() -> None:
    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        handler.gives_tokens = True
        await client.register(REGISTER)
        stream = client.watch(WATCH)
        await anext(stream)
        authenticate = handler.authenticate
        handler.authenticate = lambda token: None  # type: ignore[method-assign]
        with pytest.raises(RefusedError, match="no valid token"):
            [one async for one in stream]
        handler.authenticate = authenticate  # type: ignore[method-assign]
        await handler.unwatched.wait()

    with_server(scene)


async def is_replaced(stream: Any) -> bool:
    """How a stream ends that another one of its node has replaced."""
    code, details = await stream.code(), await stream.details()
    return (code, details) == (
        grpc.StatusCode.UNAVAILABLE,
        "node 'n': reports in another stream",
    )


def reports(channel: grpc.aio.Channel, token: str = "agent-token") -> Any:
    """A stream of reports."""
    metadata = (("authorization", f"Bearer {token}"),)
    call: Any = channel.stream_stream(f"/{SERVICE}/Report", None, None)
    return call(metadata=metadata)


async def answered(stream: Any, message: NodeReport) -> Orders:
    await stream.write(msgspec.msgpack.encode(message))
    return msgspec.msgpack.decode(await stream.read(), type=Orders)


def test_reports_are_not_taken_of_a_node_whose_token_was_revoked() -> None:
    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        assert (await client.report(report())).seq == 1
        authenticate = handler.authenticate
        handler.authenticate = lambda token: None  # type: ignore[method-assign]
        for seq in (2, 2):
            with pytest.raises(RefusedError, match="no valid token"):
                await client.report(report(seq=seq))
        handler.authenticate = authenticate  # type: ignore[method-assign]
        assert (await client.report(report(seq=3))).seq == 3
        assert [message.seq for message in handler.seen] == [1, 3]

    with_server(scene)


def test_a_node_has_one_stream_of_reports_the_newest() -> None:
    """Each keeps what has come of a message that is not whole."""

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            streams = [reports(channel) for _ in range(4)]
            for seq, stream in enumerate(streams):
                assert (await answered(stream, report(seq=seq))).seq == seq
            other = reports(channel)
            assert (await answered(other, report("m"))).seq == 1
            for stream in streams[:-1]:
                assert await is_replaced(stream)
            assert (await answered(streams[-1], report(seq=8))).seq == 8
            assert (await answered(other, report("n", seq=9))).seq == 9  # of another node now
            assert await is_replaced(streams[-1])
            assert list(server._streams.of_node) == ["n"]
            await other.done_writing()
            assert not isinstance(await other.read(), bytes)  # the end
            assert await other.code() is grpc.StatusCode.OK
        assert not server._streams.of_node

    with_server(scene)


def test_a_report_that_is_refused_does_not_replace_the_stream_of_a_node() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        assert (await client.report(report())).seq == 1
        async with AgentClient(server.address, "token-of-m", timeout_s=WAIT_S) as other:
            with pytest.raises(RefusedError, match="is not one for node 'n'"):
                await other.report(report())
        mine = server._streams.of_node["n"]
        assert (await client.report(report(seq=2))).seq == 2
        assert server._streams.of_node["n"] is mine

    with_server(scene)


def test_reports_that_come_at_once_in_many_streams_of_a_node_end_in_order() -> None:
    """gRPC cannot end a call while it sends an answer: it raised."""

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            streams = [reports(channel) for _ in range(8)]
            for seq, stream in enumerate(streams):
                await stream.write(msgspec.msgpack.encode(report(seq=seq)))
            for seq, stream in enumerate(streams):
                assert msgspec.msgpack.decode(await stream.read(), type=Orders).seq == seq
            while len(server._streams.of_node) > 1 or sum(one.done() for one in streams) < 7:
                await asyncio.sleep(0.01)
            assert all([await is_replaced(one) for one in streams if one.done()])

    with_server(scene)


def test_the_answer_to_a_report_that_was_given_up_is_not_taken_for_that_to_the_next() -> None:
    async def scene(handler: Handler, server: AgentServer, _: AgentClient) -> None:
        async with AgentClient(server.address, "agent-token", timeout_s=WAIT_S) as client:
            assert (await client.report(report(seq=3))).seq == 3
            given_up = asyncio.ensure_future(client.report(report("slow", seq=4)))
            await asyncio.sleep(0.05)
            given_up.cancel()
            assert (await client.report(report(seq=5))).seq == 5

    with_server(scene)


@pytest.mark.parametrize(
    ("node", "error", "sentence"),
    [
        ("unknown", RegisterAgainError, "node 'unknown': has not registered"),
        ("wrong", RefusedError, "node 'wrong': has no device 7"),
        ("full", ServerUnreachableError, "the server cannot write its state now"),
        ("many", ServerUnreachableError, "node 'x': 5,000 new nodes have enrolled"),
        ("broken", ServerUnreachableError, "the server failed at this call; its log says why"),
    ],
)
def test_what_the_handler_raises_reaches_the_agent_without_what_is_inside(
    node: str,
    error: type[Exception],
    sentence: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_store_problems", transport._StoreProblems())  # said before?

    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        with pytest.raises(error) as raised:
            await client.report(report(node))
        assert sentence in str(raised.value)
        assert "secret" not in str(raised.value)
        assert (await client.report(report())).seq == 1

    with caplog.at_level(logging.ERROR, "fairlead"):
        with_server(scene)
    assert ("secret" in caplog.text) == (node in ("full", "broken"))


def test_what_cannot_be_written_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Agents try again every second: the log was full of it."""
    now = [0.0]
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(transport, "_store_problems", transport._StoreProblems())
    tries = ((0.0, "full"), (1.0, "full"), (2.0, "away"), (59.0, "full"), (61.0, "full"))
    for now[0], why in tries:
        status, told = transport._refusal(StoreError(why))
        assert (status, told) == (
            grpc.StatusCode.UNAVAILABLE,
            "the server cannot write its state now",
        )
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["full", "away", "full"]
    assert not any(record.exc_info for record in caplog.records)


def test_a_watch_can_be_refused() -> None:
    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        with pytest.raises(RegisterAgainError):
            await anext(client.watch(msgspec.structs.replace(WATCH, node="unknown")))

    with_server(scene)


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("", "no valid token"),
        ("agent-token2", "no valid token"),
        ("user-token", "the token of user 'someone' is not one for agents"),
        ("x" * 100_000, "metadata"),
    ],
)
def test_strangers_and_users_are_refused_everywhere(token: str, sentence: str) -> None:
    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        chunk = LogChunk(node="n", incarnation="i", job=1, attempt=1, rank=0, offset=0, data=b"")
        calls: list[Awaitable[Any]] = [
            client.register(REGISTER),
            client.report(report()),
            client.log(chunk),
            anext(client.watch(WATCH)),
        ]
        for call in calls:
            with pytest.raises(RefusedError, match=sentence):
                await call
        assert not handler.seen
        assert not handler.watched

    with_server(scene, token)


def test_an_admin_may_call() -> None:
    async def scene(handler: Handler, _: AgentServer, client: AgentClient) -> None:
        assert (await client.report(report())).seq == 1

    with_server(scene, "admin-token")


def test_a_token_that_no_header_can_carry_is_refused_at_once() -> None:
    for token in ("a b", "ä", "a\n"):
        with pytest.raises(ConfigError, match="printable ASCII"):
            AgentClient("localhost:1", token)


def test_a_call_without_metadata_is_refused() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            code, message = await raw(
                channel, "Report", msgspec.msgpack.encode(report()), token=None
            )
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert message == "no valid token came with the call"
            code, _ = await raw(channel, "Shutdown", b"")
            assert code is grpc.StatusCode.UNIMPLEMENTED

    with_server(scene)


def begun(channel: grpc.aio.Channel, name: str, token: str | None) -> Any:
    """A call of which the headers are sent, and nothing of its message."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    return channel.stream_unary(f"/{SERVICE}/{name}", None, None)(None, metadata=metadata)


@pytest.mark.parametrize("name", ["Register", "Report", "Log", "Metrics", "Watch"])
def test_a_stranger_is_refused_before_anything_of_the_message_is_received(name: str) -> None:
    """Messages that never became whole filled the memory."""

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            for token, code in (
                (None, grpc.StatusCode.UNAUTHENTICATED),
                ("wrong", grpc.StatusCode.UNAUTHENTICATED),
                ("user-token", grpc.StatusCode.PERMISSION_DENIED),
            ):
                assert await begun(channel, name, token).code() is code

    with_server(scene)


def test_few_messages_of_a_caller_are_received_at_once_and_others_are_not_held_up() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        intake = server._intake
        async with grpc.aio.insecure_channel(server.address) as channel:
            calls = [begun(channel, "Log", "token-of-n") for _ in range(OF_ONE_CALLER.at_once + 2)]
            for call in calls:
                await call.wait_for_connection()
            while intake.calls < len(calls):
                await asyncio.sleep(0.01)
            assert intake.receiving == OF_ONE_CALLER.at_once
            async with AgentClient(server.address, "token-of-m", timeout_s=WAIT_S) as other:
                assert (await other.report(report("m"))).seq == 1
            for call in calls:  # whichever of them are received now
                await call.write(msgspec.msgpack.encode(CHUNK))
            for call in calls:
                assert msgspec.msgpack.decode(await call, type=LogOffset).offset == 5
        assert (intake.calls, intake.receiving) == (0, 0)

    with_server(scene)


def test_a_message_that_does_not_become_whole_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_intake, "SLOW_S", 0.05)
    monkeypatch.setattr(message_intake, "RECEIVE_TIMEOUT_S", 0.1)

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = begun(channel, "Report", "token-of-n")
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "did not become whole" in await call.details()
        assert server._intake.calls == 0
        assert (await client.report(report())).seq == 1

    with_server(scene)


def test_few_messages_of_an_address_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of it are refused, and what is whole at once is received all the same."""
    monkeypatch.setattr(message_intake, "SLOW_S", 0.05)
    monkeypatch.setattr(transport, "OF_ONE_ADDRESS", IntakeLimit(at_once=8, slow=3))

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            calls = [begun(channel, "Report", "agent-token") for _ in range(8)]
            ends = [asyncio.ensure_future(call.code()) for call in calls]
            while sum(end.done() for end in ends) < 5:
                await asyncio.sleep(0.01)
            assert {end.result() for end in ends if end.done()} == {grpc.StatusCode.UNAVAILABLE}
            assert server._intake.receiving == 3
            assert (await client.report(report())).seq == 1
        while server._intake.calls:
            await asyncio.sleep(0.01)
        assert server._intake._all.slow == 0

    with_server(scene)


def test_the_end_of_the_server_while_a_message_is_received_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = begun(channel, "Report", "token-of-n")
            while server._intake.receiving < 1:
                await asyncio.sleep(0.01)
            await server.stop(0.0)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
        while server._intake.calls:
            await asyncio.sleep(0.01)

    with_server(scene)
    assert not caplog.records


def test_the_end_of_the_server_while_a_node_has_nothing_to_report_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stream = reports(channel)
            assert (await answered(stream, report())).seq == 1
            await server.stop(0.0)
            assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        while server._streams.of_node:
            await asyncio.sleep(0.01)

    with_server(scene)
    assert not caplog.records


def test_a_connection_has_few_streams_with_small_windows() -> None:
    """What comes of messages before they are asked for is kept: so much of each stream."""

    def settings(port: int) -> dict[int, int]:
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as stranger:
            stranger.sendall(
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            )
            received = stranger.makefile("rb")
            head = received.read(9)
            assert head[3] == 4  # SETTINGS
            body = received.read(int.from_bytes(head[:3], "big"))
        pairs = struct.iter_unpack(">HI", body)
        return dict(pairs)

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        told = await asyncio.to_thread(settings, server.port)
        assert told[3] == STREAMS  # MAX_CONCURRENT_STREAMS
        assert told.get(4, (1 << 16) - 1) == STREAM_WINDOW  # INITIAL_WINDOW_SIZE

    with_server(scene)


async def raw(
    channel: grpc.aio.Channel, name: str, data: bytes, token: str | None = "agent-token"
) -> tuple[grpc.StatusCode, str]:
    """Send bytes as a call; how it ends."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    kind: Any = channel.unary_stream if name == "Watch" else channel.unary_unary
    call = kind(f"/{SERVICE}/{name}", None, None)(data, metadata=metadata)
    try:
        if name == "Watch":
            await call.read()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as problem:
        return problem.code(), problem.details() or ""
    return grpc.StatusCode.OK, ""


def changed(message: Any, **fields: Any) -> bytes:
    return msgspec.msgpack.encode(msgspec.to_builtins(message) | fields)


WRONG: list[tuple[str, bytes, str]] = [
    ("Report", b"", "Report: 0 bytes that are not a whole message"),
    ("Report", changed(report(), seq="x"), "Report.seq: expected int, got str (it is 'x')"),
    ("Report", changed(report(), seq=-1), "Report.seq: expected int >= 0 (it is -1)"),
    ("Report", changed(report(), seq=2**63), "Report.seq: expected int <= 9007199254740992"),
    ("Report", changed(report(), node="../x"), "(it is '../x')"),
    ("Report", changed(report(), node=".."), "(it is '..')"),
    ("Report", changed(report(), node="y" * 10**6), "yyy..."),
    ("Report", changed(report(), holds=[{"job": None}]), "Report.holds[0].job: expected int"),
    ("Register", changed(REGISTER, devices=0), "Register.devices: expected int >= 1 (it is 0)"),
    ("Register", b"\x91" * 100_000, "Register"),
    ("Watch", b"\xc1", "WatchRequest: 1 bytes that are not a whole message"),
    (
        "Log",
        msgspec.msgpack.encode({"node": "n"}),
        "LogChunk: object missing required field incarnation",
    ),
]


@pytest.mark.parametrize(("name", "data", "sentence"), WRONG)
def test_a_malformed_message_is_refused_with_field_and_value(
    name: str, data: bytes, sentence: str
) -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            code, message = await raw(channel, name, data)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert sentence in message
        assert "\n" not in message
        assert len(message) < 300
        assert not handler.seen

    with_server(scene)


def test_not_a_number_is_no_duration() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        for bad in (float("nan"), float("inf"), -2.0):
            held = AttemptStatus(job=1, attempt=1, state="running", ran_s=bad)
            with pytest.raises(RefusedError, match=r"Report\.holds\[0\]\.ran_s: expected float"):
                await client.report(msgspec.structs.replace(report(), holds=(held,)))

    with_server(scene)


def test_random_and_truncated_messages_end_no_more_than_their_own_call() -> None:
    rng = random.Random(5)
    whole = msgspec.msgpack.encode(REGISTER)
    pieces = [whole[:cut] for cut in range(0, len(whole), 7)]
    pieces += [rng.randbytes(rng.randrange(200)) for _ in range(100)]
    for _ in range(100):
        data = bytearray(whole)
        data[rng.randrange(len(data))] = rng.randrange(256)
        pieces.append(bytes(data))

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        names = ("Register", "Report", "Log", "Watch")
        expected = {
            grpc.StatusCode.OK,  # a byte of a text was changed
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
        }
        async with grpc.aio.insecure_channel(server.address) as channel:
            for number, data in enumerate(pieces):
                code, message = await raw(channel, names[number % 4], data)
                assert code in expected, message
        assert (await client.report(report())).seq == 1

    with_server(scene)


def test_bytes_that_are_not_grpc_hurt_nobody() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, random.Random(1).randbytes(5000)):
            with socket.create_connection(("127.0.0.1", server.port)) as stranger:
                stranger.sendall(data)
            assert (await client.report(report())).seq == 1

    with_server(scene)


def test_another_version_of_the_protocol_is_told_so_whatever_else_it_says() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        with pytest.raises(RefusedError, match="speaks version 9 of the protocol"):
            await client.register(msgspec.structs.replace(REGISTER, protocol=9))
        async with grpc.aio.insecure_channel(server.address) as channel:
            data = msgspec.msgpack.encode({"protocol": 9, "name": "of the future"})
            code, message = await raw(channel, "Register", data)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert (
            message == f"the agent speaks version 9 of the protocol, the server version {PROTOCOL}"
        )

    with_server(scene)


def test_a_huge_message_is_refused() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            code, _ = await raw(channel, "Log", bytes(MAX_MESSAGE_BYTES + 1))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.report(report())).seq == 1

    with_server(scene)


def test_two_hundred_calls_at_once() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        answers = await asyncio.gather(*(client.report(report(seq=i)) for i in range(200)))
        assert [orders.seq for orders in answers] == list(range(200))

    with_server(scene)


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    async def scene(handler: Handler, server: AgentServer, _: AgentClient) -> None:
        async with AgentClient(server.address, "agent-token", timeout_s=0.2) as hasty:
            with pytest.raises(ServerUnreachableError, match="deadline exceeded"):
                await hasty.report(report("slow"))

    with_server(scene)


def test_a_client_finds_a_server_that_comes_back_on_the_same_port() -> None:
    async def scene() -> None:
        first = AgentServer(Handler())
        await first.start()
        async with AgentClient(first.address, "agent-token") as client:
            stream = client.watch(WATCH)
            await anext(stream)
            await first.stop(0.0)
            with pytest.raises(ServerUnreachableError):
                async for _ in stream:
                    pass
            with pytest.raises(ServerUnreachableError):
                await client.report(report())
            async with AgentServer(Handler(), port=first.port), asyncio.timeout(WAIT_S):
                while True:
                    try:
                        assert (await client.report(report())).seq == 1
                        break
                    except ServerUnreachableError:
                        await asyncio.sleep(0.05)
        with pytest.raises(ServerUnreachableError, match="closed"):
            await client.report(report())

    run(scene())


def test_a_port_in_use_is_refused() -> None:
    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        with pytest.raises(ConfigError, match=f"{server.address}: cannot listen there"):
            await AgentServer(Handler(), port=server.port).start()
        assert (await client.report(report())).seq == 1

    with_server(scene)


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())

    async def scene(handler: Handler, server: AgentServer, client: AgentClient) -> None:
        await client.report(report())

    with_server(scene)
    assert set(threading.enumerate()) <= before


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return certificate(tmp_path_factory.mktemp("tls"))


def test_calls_over_tls_and_no_others(tls: Tls) -> None:
    async def scene() -> None:
        async with AgentServer(Handler(), tls=tls) as server:
            address = f"localhost:{server.port}"
            async with AgentClient(address, "agent-token", ca=tls.certificate) as client:
                assert (await client.report(report())).seq == 1
            async with AgentClient(address, "agent-token", timeout_s=2.0) as plain:
                with pytest.raises(ServerUnreachableError, match="does it speak TLS"):
                    await plain.report(report())

    run(scene())


def test_a_handshake_that_does_not_come_is_not_awaited_for_ever(
    tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_TIMEOUT_S", 0.3)

    async def scene() -> None:
        async with AgentServer(Handler(), tls=tls) as server:
            reader, writer = await asyncio.open_connection("localhost", server.port)
            async with asyncio.timeout(60.0):
                assert await reader.read() == b""
            writer.close()

    run(scene())


def test_a_server_with_another_certificate_is_not_trusted(tls: Tls, tmp_path: Path) -> None:
    trusted = certificate(tmp_path).certificate

    async def scene() -> None:
        async with (
            AgentServer(Handler(), tls=tls) as server,
            AgentClient(f"localhost:{server.port}", "agent-token", ca=trusted) as client,
        ):
            with pytest.raises(ServerUnreachableError, match="--ca has to be the certificate of"):
                await client.report(report())

    run(scene())


def test_files_for_tls_that_cannot_be_used_are_refused(tls: Tls, tmp_path: Path) -> None:
    async def scene() -> None:
        for pair in (Tls(tmp_path / "no", tls.certificate), Tls(tls.certificate, tls.key)):
            with pytest.raises(ConfigError, match="not a certificate and its key"):
                await AgentServer(Handler(), tls=pair).start()
        with pytest.raises(ConfigError, match="none: cannot be read"):
            await AgentClient("localhost:1", "t", ca=tmp_path / "none").open()
        for wrong in (tls.key, Path(os.devnull)):
            with pytest.raises(ConfigError, match=f"--ca {wrong}: has no certificate"):
                await AgentClient("localhost:1", "t", ca=wrong).open()

    run(scene())
