"""Whoever connects to the agent and says nothing takes nothing away from ranks."""

import asyncio
import errno
import logging
import os
import resource
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.messages import (
    HEADER,
    FromAgent,
    FromRank,
    Grant,
    Hello,
    RankFrames,
    frame,
)
from fairlead.cluster.agent import pending_connections
from fairlead.cluster.agent.pending_connections import (
    MAX_PENDING,
    PendingConnections,
    SocketOwner,
    allowed,
)
from fairlead.cluster.agent.rank_server import Key, RankConnections, RankServer

WAIT_S = 180.0
GRANT = Grant(lease_s=9.0, checkpoint_s=60.0)


class Handler:
    """Admits all."""

    def admit(self, hello: Hello) -> str:
        return ""

    def handle(self, key: Key, message: FromRank) -> None:
        pass

    def greet(self, key: Key) -> list[FromAgent]:
        return [GRANT]

    async def renew(self, key: Key) -> FromAgent:
        return GRANT


def serve(folder: Path, scenario: Callable[[RankServer], Awaitable[None]]) -> None:
    async def play() -> None:
        server = RankServer(folder, Handler(), RankConnections())
        await server.open()
        try:
            async with asyncio.timeout(WAIT_S):
                await scenario(server)
        finally:
            await server.close()

    asyncio.run(play())


async def greeted(path: str) -> FromAgent:
    peer = socket.socket(socket.AF_UNIX)
    await asyncio.to_thread(peer.connect, path)  # waits where the backlog is full
    reader, writer = await asyncio.open_unix_connection(sock=peer)
    writer.write(frame(Hello(1, 1, "token", 1)))
    frames: RankFrames[FromAgent] = RankFrames(FromAgent)
    while not (answers := list(frames.feed(await reader.read(1 << 16)))):
        pass
    writer.close()
    await writer.wait_closed()
    return answers[0]


def test_silent_connections_are_few_and_ranks_get_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: RankServer) -> None:
        loop = asyncio.get_running_loop()
        before = len(os.listdir("/proc/self/fd"))
        silent = [socket.socket(socket.AF_UNIX) for _ in range(300)]
        try:
            for one in silent:
                one.setblocking(False)
                while True:
                    try:
                        await loop.sock_connect(one, server.path)
                        break
                    except BlockingIOError:  # the backlog is full
                        await asyncio.sleep(0.01)
            assert await greeted(server.path) == GRANT
            while len(os.listdir("/proc/self/fd")) > before + len(silent) + MAX_PENDING:
                await asyncio.sleep(0.01)
        finally:
            for one in silent:
                one.close()
        assert await greeted(server.path) == GRANT

    with caplog.at_level(logging.WARNING):
        serve(tmp_path, scenario)
    assert caplog.text.count("on which nothing is said") == 1
    assert f"process group {os.getpgid(0)} holds" in caplog.text


def test_who_has_most_connections_loses_one_however_many_processes_hold_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Writer:
        def __init__(self, uid: int, group: int) -> None:
            self.owner, self.transport, self.open = SocketOwner(uid, group), self, True

        def get_extra_info(self, name: str) -> SocketOwner:
            return self.owner

        def abort(self) -> None:
            self.open = False

    monkeypatch.setattr(pending_connections, "socket_owner", lambda owner: owner)
    pending = PendingConnections(4)
    one = [Writer(1, 10), Writer(1, 10)]
    many = [Writer(2, 20 + process) for process in range(8)]  # each of a process of its own
    for writer in (*one, *many):
        pending.add(writer)  # type: ignore[arg-type]
    assert [writer.open for writer in one] == [True, True]
    assert sum(writer.open for writer in many) == 2


def test_a_first_message_is_short(tmp_path: Path) -> None:
    async def scenario(server: RankServer) -> None:
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(HEADER.pack(30_000))  # and nothing of it
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    serve(tmp_path, scenario)


def test_without_descriptors_it_waits_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter(range(3))

    async def scenario(server: RankServer) -> None:
        loop = asyncio.get_running_loop()
        accept = loop.sock_accept

        async def refuse(listening: socket.socket) -> Any:
            if next(failures, None) is not None:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return await accept(listening)

        monkeypatch.setattr("fairlead.cluster.agent.rank_server._RETRY_DELAY_S", 0.01)
        monkeypatch.setattr(loop, "sock_accept", refuse)
        assert await greeted(server.path) == GRANT  # taken by the call that was under way
        assert await greeted(server.path) == GRANT

    with caplog.at_level(logging.WARNING):
        serve(tmp_path, scenario)
    assert caplog.text.count("no connection can be taken: Too many open files") == 1


def test_few_where_few_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((1 << 20, MAX_PENDING), (256, 32), (8, 4), (-1, MAX_PENDING)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, n=files: (n, n))
        assert allowed() == most


@pytest.mark.parametrize("instead", [False, True])
def test_a_socket_whose_file_is_gone_is_made_anew(tmp_path: Path, *, instead: bool) -> None:
    """A cleaner of old files, or a job of the same user, may remove it. Who is connected does not notice."""

    async def scenario(server: RankServer) -> None:
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(frame(Hello(1, 1, "token", 1)))
        assert await reader.read(1 << 16)
        await server.open_again()
        Path(server.path).unlink()
        if instead:
            Path(server.path).write_text("a file")
        await server.open_again()
        assert stat.S_ISSOCK(os.lstat(server.path).st_mode)
        assert not reader.at_eof()
        assert await greeted(server.path) == GRANT
        writer.close()
        await writer.wait_closed()

    serve(tmp_path, scenario)


def test_a_socket_that_cannot_be_made_anew_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: RankServer) -> None:
        path = Path(server.path)
        path.unlink()
        elsewhere = path.parent.rename(path.parent.with_name("elsewhere"))
        await server.open_again()
        elsewhere.rename(path.parent)
        await server.open_again()
        assert await greeted(server.path) == GRANT

    with caplog.at_level(logging.WARNING):
        serve(tmp_path, scenario)
    assert "ranks cannot connect" in caplog.text
