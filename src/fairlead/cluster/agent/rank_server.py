"""The Unix socket on which ranks speak to their agent (``fairlead.client.messages``)."""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import socket
import struct
import tempfile
import termios
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol

from fairlead.client.codec import DecodeError, decode
from fairlead.client.messages import (
    HEADER,
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Adapt,
    FromAgent,
    FromRank,
    Hello,
    Loaded,
    Progress,
    RankEnded,
    RankRefused,
    frame,
)
from fairlead.client.version import __version__
from fairlead.cluster.agent.pending_connections import PendingConnections, ThrottledWarning
from fairlead.cluster.agent.untrusted_files import move_out_of_the_way

_log = logging.getLogger(__name__)
_PATH_BYTES = 100  # sun_path has 108
_MAX_REPORTED = 1e12  # steps, samples, seconds
_MAY_BE_UNKNOWN = frozenset(
    {(Progress, "step"), (Loaded, "lost_steps"), (Loaded, "from_job"), (RankEnded, "step")}
)  # -1 says so
_AT_LEAST_ONE = frozenset({(Adapt, "batch"), (Adapt, "total_steps")})
_HELLO_TIMEOUT_S = 10.0  # for the first message of a connection
_POLL_S = 0.005  # between looks whether all is read
_HELLO_BYTES = 4096
_BACKLOG = 100
_CROWDED_S = 0.002  # between two connections, where others have to go for them: 500 a second
_INT = struct.Struct("i")
_RETRY_DELAY_S = 0.5  # before the next try where there are no descriptors, or no memory

Key = tuple[int, int]  # (job, attempt)


class RankHandler(Protocol):
    """The part of the agent that admits ranks and answers their messages."""

    def admit(self, hello: Hello) -> str:
        """Return why this process may not run, "" = it may."""

    def handle(self, key: Key, message: FromRank) -> None:
        """A message of a rank that was admitted."""

    def greet(self, key: Key) -> list[FromAgent]:
        """The answer to Hello."""

    def renew(self, key: Key) -> Awaitable[FromAgent]:
        """The answer to a request for more time."""


class _UnknownRankError(Exception):
    """Raised for bytes that are no message of a rank."""


class RankConnections:
    """The ranks that may be told something: rank 0 of each attempt that has said Hello."""

    def __init__(self) -> None:
        self._peers: dict[Key, asyncio.StreamWriter] = {}

    def add(self, key: Key, writer: asyncio.StreamWriter) -> None:
        """A rank was admitted; an older connection of its attempt is closed."""
        old = self._peers.get(key)
        self._peers[key] = writer
        if old is not None:
            old.close()

    def discard(self, key: Key, writer: asyncio.StreamWriter) -> None:
        """This connection is over."""
        if self._peers.get(key) is writer:
            del self._peers[key]

    def send(self, key: Key, message: FromAgent) -> bool:
        """False: no rank of this attempt listens."""
        writer = self._peers.get(key)
        if writer is None or writer.is_closing():
            return False
        writer.write(frame(message))
        return True

    async def drain(self, key: Key, limit_s: float) -> None:
        """Wait until all is read that the rank of this attempt, which has ended, has said, no longer than
        ``limit_s``. A process that it has left behind may hold the connection: its end is not waited for."""
        deadline = time.monotonic() + limit_s
        was_empty = False
        while (writer := self._peers.get(key)) is not None and time.monotonic() < deadline:
            is_empty = not _unread_bytes(writer)
            if is_empty and was_empty:  # what was taken off the socket has been handled since
                return
            was_empty = is_empty
            await asyncio.sleep(_POLL_S)


class RankServer:
    """``open`` it before the first rank starts."""

    def __init__(
        self,
        state: Path,
        handler: RankHandler,
        connections: RankConnections,
        *,
        for_all: bool = False,
    ) -> None:
        """state: of the agent; connections: where those of ranks that were admitted are kept; for_all:
        processes of other users may connect, too: the token of the job decides."""
        self._state = state
        self._for_all = for_all
        self._handler = handler
        self._connections = connections
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._pending = PendingConnections()
        self._warn = ThrottledWarning()
        self._short: Path | None = None  # a folder made because the state's name is too long
        self._tasks: set[asyncio.Task[None]] = set()
        self._inode = 0  # of the socket's file
        self.path = ""

    async def open(self) -> None:
        """Listen at ``path``."""
        path = self._state / "agent.sock"
        if len(os.fsencode(path)) > _PATH_BYTES:
            self._short = Path(tempfile.mkdtemp(prefix="fairlead-", dir="/tmp"))
            self._short.chmod(0o711 if self._for_all else 0o700)
            path = self._short / "agent.sock"
        self.path = str(path)
        self._listen_at(path)

    async def open_again(self) -> None:
        """Listen anew where the socket's file is gone, or another one is in its place: a rank that starts
        would find nobody. Ranks that are connected do not notice. To be called every so often."""
        path = Path(self.path)
        if self._listening is not None and self._is_still_there():
            return
        if self._listening is not None and self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._listening.close()
            self._listening = self._accepting = None
            _log.warning("%s is gone: it is made anew", path)
        try:
            self._listen_at(path)
        except OSError as problem:
            self._warn(f"{path}: ranks cannot connect: {problem.strerror}")

    def _listen_at(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():  # a job's doing
            move_out_of_the_way(path)
        path.unlink(missing_ok=True)
        before = os.umask(0o111 if self._for_all else 0o177)
        try:
            self._listening = _listen(path)
        finally:
            os.umask(before)
        self._inode = path.lstat().st_ino
        self._accepting = asyncio.create_task(self._accept_all(self._listening))

    def _is_still_there(self) -> bool:
        """Return whether the socket's file is the one that was made: it may be another agent's."""
        try:
            return Path(self.path).lstat().st_ino == self._inode
        except OSError:
            return False

    async def close(self) -> None:
        """Hang up on all."""
        if self._listening is not None and self._accepting is not None:
            tasks = [self._accepting, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._listening.close()
            self._listening = self._accepting = None
            if self._is_still_there():
                Path(self.path).unlink(missing_ok=True)
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)

    async def _accept_all(self, listening: socket.socket) -> None:
        """asyncio's own server takes as many as come, and logs each one that it cannot."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listening)
                reader, writer = await asyncio.open_unix_connection(
                    sock=peer, limit=MAX_MESSAGE_BYTES
                )
                crowded = self._pending.add(writer)
            except OSError as problem:
                self._warn(f"{self.path}: no connection can be taken: {problem.strerror}")
                await asyncio.sleep(_RETRY_DELAY_S)
                continue
            task = asyncio.create_task(self._serve_connection(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(_CROWDED_S if crowded else 0.0)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self._serve(reader, writer)
        except (_UnknownRankError, asyncio.IncompleteReadError, TimeoutError, OSError):
            pass
        except asyncio.CancelledError:
            pass  # from ``close``; asyncio's own callback would report it as an error
        finally:
            self._pending.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            hello = await _read(reader, _HELLO_BYTES)
        if not isinstance(hello, Hello):
            await _refuse(writer, "the first message must be Hello")
            return
        if reason := _other_protocol(hello) or self._handler.admit(hello):
            await _refuse(writer, reason)
            return
        self._pending.discard(writer)
        key = hello.job, hello.attempt
        self._connections.add(key, writer)
        self._handler.handle(key, hello)
        for answer in self._handler.greet(key):
            writer.write(frame(answer))
        try:
            await self._follow(key, reader, writer)
        finally:
            self._connections.discard(key, writer)

    async def _follow(
        self, key: Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        renewal: asyncio.Task[None] | None = None
        try:
            while True:
                message = await _read(reader)
                if isinstance(message, Hello) or message.attempt != key[1]:
                    await _refuse(writer, f"this connection is of attempt {key[1]}")
                    return
                self._handler.handle(key, message)
                asked = isinstance(message, Progress) and message.renew
                if asked and (renewal is None or renewal.done()):
                    renewal = asyncio.create_task(self._renew(key, writer))
        finally:
            if renewal is not None:
                renewal.cancel()

    async def _renew(self, key: Key, writer: asyncio.StreamWriter) -> None:
        answer = await self._handler.renew(key)
        if not writer.is_closing():
            writer.write(frame(answer))


def _unread_bytes(writer: asyncio.StreamWriter) -> int:
    """Bytes that wait in the socket of a connection."""
    peer = writer.get_extra_info("socket")
    try:
        found = fcntl.ioctl(peer.fileno(), termios.FIONREAD, bytes(_INT.size))
    except (OSError, ValueError):  # it has been closed: its descriptor is -1
        return 0
    return int(_INT.unpack(found)[0])


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(str(path))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


async def _read(reader: asyncio.StreamReader, most: int = MAX_MESSAGE_BYTES) -> FromRank:
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > most:
        raise _UnknownRankError
    body = await reader.readexactly(length)
    try:
        message: FromRank = decode(body, FromRank)
    except DecodeError:
        raise _UnknownRankError from None
    if not _is_sane(message):
        raise _UnknownRankError
    return message


def _is_sane(message: FromRank) -> bool:
    """Return whether the server accepts all numbers, and all text is Unicode (JSON may hold half a surrogate
    pair). Otherwise the server would refuse the report of the whole node."""
    for name, value in vars(message).items():
        least = -1 if (type(message), name) in _MAY_BE_UNKNOWN else 0
        least = 1 if (type(message), name) in _AT_LEAST_ONE else least
        if isinstance(value, int | float) and not least <= value <= _MAX_REPORTED:
            return False
        if isinstance(value, str) and not _is_unicode(value):
            return False
    return True


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _other_protocol(hello: Hello) -> str:
    """Return why a client of another version cannot be understood, "" = it can."""
    if hello.protocol == PROTOCOL:
        return ""
    version, own_version = hello.version or "of another version", __version__
    return (
        f"the job's fairlead-client {version} speaks protocol {hello.protocol}, this agent ({own_version}) "
        f"speaks {PROTOCOL}; install fairlead-client {own_version} in the job's environment, or none: "
        "the agent offers its own"
    )


async def _refuse(writer: asyncio.StreamWriter, reason: str) -> None:
    writer.write(frame(RankRefused(reason=reason)))
    with contextlib.suppress(OSError):
        await writer.drain()
