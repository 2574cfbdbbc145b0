"""Requests that do not become whole hold no connection for ever."""

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.cluster.tls import certificate

from fairlead.cluster.front import request_timeout
from fairlead.cluster.front.request_timeout import FrontLoop, TimedH11Protocol

WAIT_S = 60.0
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body, takes a while, and answers with its size."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    await asyncio.sleep(3 * request_timeout.REQUEST_TIMEOUT_S)
    body = str(size).encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def _connection(
    app: Any = _app,
    client_tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(
        app,
        port=0,
        http=TimedH11Protocol,
        log_level="error",
        lifespan="off",
        timeout_keep_alive=60,
        **options,
    )
    server = uvicorn.Server(config)
    server.config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    address = server.servers[0].sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(*address[:2], ssl=client_tls)
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await server.shutdown()


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HT", id="half of a line"),
        pytest.param(GET[:-2], id="headers without an end"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc", id="a body"),
    ],
)
def test_what_does_not_become_whole_is_closed(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_timeout, "REQUEST_TIMEOUT_S", 0.3)

    async def scenario() -> None:
        async with _connection() as (reader, writer):
            writer.write(begun)
            async with asyncio.timeout(WAIT_S):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""

    asyncio.run(scenario())


def test_a_whole_request_is_answered_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_timeout, "REQUEST_TIMEOUT_S", 1.0)

    async def scenario() -> None:
        async with _connection() as (reader, writer):
            for _ in range(2):  # one after the other on one connection
                writer.write(GET)
                async with asyncio.timeout(WAIT_S):
                    assert (await reader.readline()).split()[1] == b"200"
                    while await reader.readline() != b"\r\n":
                        pass
                    assert await reader.readexactly(1) == b"0"

    asyncio.run(scenario())


def test_a_handshake_that_does_not_come_is_not_awaited_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_timeout, "HANDSHAKE_TIMEOUT_S", 0.3)
    tls = certificate(tmp_path)

    async def scenario() -> None:
        async with _connection(ssl_keyfile=tls.key, ssl_certfile=tls.certificate) as (reader, _):
            async with asyncio.timeout(WAIT_S):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""

    with asyncio.Runner(loop_factory=FrontLoop) as runner:
        runner.run(scenario())


def test_connections_that_cannot_be_accepted_are_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = FrontLoop()
    problem = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    for _ in range(100):
        loop.call_exception_handler({"message": "cannot accept", "exception": problem})
    assert [record.getMessage() for record in caplog.records] == [
        "Too many open files: tried again until there is some"
    ]
    loop.call_exception_handler({"message": "another problem", "exception": ValueError("x")})
    assert "another problem" in caplog.text
    loop.close()


def test_answers_that_are_not_read_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_timeout, "READ_TIMEOUT_S", 0.3)
    answered: list[int] = []
    ended = asyncio.Event()

    async def large(_scope: Any, _receive: Any, send: Any) -> None:
        answered.append(1)
        start = {"type": "http.response.start", "status": 200, "headers": []}
        await send(start)
        for _ in range(64):  # more than the kernel keeps
            await send({"type": "http.response.body", "body": b" " * (1 << 18), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        ended.set()

    async def scenario() -> None:
        async with _connection(app=large) as (_reader, writer):
            writer.write(GET * 100)
            async with asyncio.timeout(WAIT_S):
                await ended.wait()  # sent to nobody: the connection has been closed
        assert len(answered) == 1

    asyncio.run(scenario())


def test_no_further_answer_is_computed_for_who_has_not_read_the_last_one() -> None:
    """One waited whole on each connection, and those of many connections kept others from theirs."""
    answered: list[int] = []
    done = asyncio.Event()
    size = 64 << 18  # more than the kernel keeps

    async def large(_scope: Any, _receive: Any, send: Any) -> None:
        answered.append(1)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % size)],
            }
        )
        await send({"type": "http.response.body", "body": b" " * size})
        done.set()

    async def scenario() -> None:
        async with _connection(app=large) as (reader, writer):
            writer.write(GET * 3)
            async with asyncio.timeout(WAIT_S):
                await done.wait()
                for _ in range(100):  # everything comes as far as it can
                    await asyncio.sleep(0)
                assert len(answered) == 1
                for _ in range(3):
                    while await reader.readline() != b"\r\n":
                        pass
                    await reader.readexactly(size)
        assert len(answered) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("tls", [False, True])
def test_little_of_what_comes_is_taken_in_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    sizes: list[int] = []
    taken = TimedH11Protocol.data_received

    def noting(protocol: TimedH11Protocol, data: bytes) -> None:
        sizes.append(len(data))
        taken(protocol, data)

    async def reading(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setattr(TimedH11Protocol, "data_received", noting)
    size = 1 << 20
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size
    options: dict[str, Any] = {}
    context = None
    if tls:
        made = certificate(tmp_path)
        options = {"ssl_keyfile": made.key, "ssl_certfile": made.certificate}
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def scenario() -> None:
        async with _connection(app=reading, client_tls=context, **options) as (reader, writer):
            writer.write(head + b" " * size)
            async with asyncio.timeout(WAIT_S):
                assert (await reader.readline()).split()[1] == b"200"

    with asyncio.Runner(loop_factory=FrontLoop) as runner:
        runner.run(scenario())
    assert sum(sizes) == len(head) + size
    # A record of TLS may have waited for its end
    assert max(sizes) <= request_timeout.READ_AT_ONCE * (1 + tls)
