"""The agent's side of the spawner: it starts the process, speaks with it, and replaces it if it dies."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fairlead.cluster.agent import adopted, proc
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.machine import AgentFiles
from fairlead.cluster.agent.spawner_messages import (
    FromSpawner,
    Ping,
    Pong,
    Ready,
    SpawnerFrames,
    ToSpawner,
    framed,
)

_RESTART_DELAY_S = 0.1  # before another is started
# Counted between two polls, at most: in a longer one this process stood still itself
_MAX_GAP_S = 2.0
_POLL_S = 1.0  # between polls whether it is stopped before it is ready
_END_POLL_S = 0.01  # between polls whether it has ended
STANDS_STILL_S = 5.0  # without an answer


@dataclass(frozen=True)
class Replacement:
    """The reason why an agent has killed its spawner. jobs_when_stopped: jobs that may have run when somebody
    stopped it; None = it stood still by itself. at_s: when, monotonic; ended: pids of what had ended before
    that."""

    jobs_when_stopped: frozenset[int] | None
    at_s: float = 0.0
    ended: frozenset[int] = frozenset()


class Pings:
    """Signs of life that a spawner is asked for. Their answers come after all that it has said before."""

    def __init__(self) -> None:
        self.polled_s = 0.0  # monotonic; when it was last looked at
        self.is_awaited = False  # is one that was asked for every second not answered yet?
        self._unanswered = 0
        self._caught_up = asyncio.Event()

    def asked(self) -> None:
        """Note that one is asked for."""
        self._unanswered += 1
        self._caught_up.clear()

    def answered(self) -> None:
        """Note an answer."""
        self._unanswered -= 1
        if not self._unanswered:
            self._caught_up.set()

    def reset(self) -> None:
        """Forget those of a spawner that has ended."""
        self._unanswered = 0
        self._caught_up.set()

    async def all_answered(self, timeout_s: float) -> None:
        """Wait until none is unanswered, at most for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._caught_up.wait()


class SpawnerLink:
    """``start`` it before anything else of the agent; ``close`` ends it, and with it all ranks."""

    def __init__(self, state: Path, prefork: str, devices: NodeDevices) -> None:
        """devices: of the node. ``record`` is to be set before the start."""
        self._state = state
        self._devices = devices
        self.record: AgentFiles | None = None  # of this run of the agent
        self.cleared: tuple[str, ...] = ()  # incarnations of earlier agents of which nothing lives
        self._prefork = prefork
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._frames = SpawnerFrames()
        self._adopts = False  # does this process adopt what a spawner leaves behind?
        self._ready = False  # before it is, it may have to wait for others
        self._pings = Pings()
        self.silent_s = 0.0  # that it has not answered for
        self._reaped: dict[int, int] = {}  # pid -> exit code, of adopted processes
        self.replacement: Replacement | None = None  # None = this agent has not killed it

    @property
    def pid(self) -> int:
        """0 = it does not run."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process. It may take until the ranks of an earlier one have ended: see ``Ready``."""
        assert self.record is not None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "fairlead.cluster.agent.spawner"),
                    *(str(theirs.fileno()), str(self._state), self._prefork),
                    *(str(self.record.path), msgspec.json.encode(self._devices).decode()),
                    str(os.getpid() if self._adopts else 0),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._frames, self._ready = SpawnerFrames(), False
        self.replacement = None
        self._note_reply()
        self._pings.reset()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)

    def send(self, message: ToSpawner) -> bool:
        """Never blocks. False: just now there is none to hear it; the next one knows nothing of it. What one
        that dies does not hear is ``lost`` with it, see ``listen``."""
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(framed(message))
        return True

    @property
    def is_stopped(self) -> bool:
        """Return whether a signal (SIGSTOP), or a tracer, keeps it from running now."""
        found = proc.process(self.pid) if self.pid else None
        return found is not None and found.state in proc.STOPPED

    def ping(self, now: float) -> float:
        """To be called every second. Returns the seconds for which there has been no answer."""
        gap_s, self._pings.polled_s = now - self._pings.polled_s, now
        if self._pings.is_awaited:
            self.silent_s += min(gap_s, _MAX_GAP_S)
        elif self._ready:
            self._pings.is_awaited = self._ask()
        return self.silent_s

    async def catch_up(self, timeout_s: float) -> None:
        """Wait until what it has said so far is passed on, at most for so long: it may stand still too."""
        if self._ready and self._ask():
            await self._pings.all_answered(timeout_s)

    def _ask(self) -> bool:
        """Ask for a sign of life, which comes after all that was said before. Returns whether it can come."""
        if not self.send(Ping()):
            return False
        self._pings.asked()
        return True

    def adopt(self) -> None:
        """Before the first start: let this process adopt what a spawner leaves behind, where it can."""
        self._adopts = adopted.adopt()

    def reap_adopted(self) -> None:
        """Reap adopted processes. Call it now and then."""
        if self._adopts:
            self._reaped |= adopted.reap(self.pid)

    def kill(self, jobs_when_stopped: frozenset[int] | None = None) -> None:
        """End a spawner that stands still; ``listen`` starts another. jobs_when_stopped: jobs that may have
        run when somebody stopped it; None = it stands still by itself."""
        if self.replacement is None:
            ended = adopted.ended_children(self.pid) if self.pid else frozenset()
            self.replacement = Replacement(jobs_when_stopped, time.monotonic(), ended)
        if self._process is not None:
            self._process.kill()

    def _note_reply(self) -> None:
        self._pings.is_awaited, self.silent_s = False, 0.0

    async def listen(
        self,
        hear: Callable[[FromSpawner], Awaitable[None]],
        lost: Callable[[dict[int, int], float], Awaitable[None]],
    ) -> None:
        """Pass on what it says, for ever. lost: it has died, another is started after that; it is told what
        has ended that the spawner had not waited for, pids and exit codes, and when the spawner was last
        heard of (monotonic)."""
        while True:
            while messages := await self._receive():
                for message in messages:
                    await hear(message)
                    if isinstance(message, Pong):
                        self._pings.answered()
            heard_s = time.monotonic() - self.silent_s
            await self.close()
            self.reap_adopted()
            await lost(self._reaped, heard_s)
            self._reaped = {}
            await asyncio.sleep(_RESTART_DELAY_S)
            await self.start()

    async def ready(self) -> int:
        """Wait for the first message. Returns how many processes an earlier agent had left behind. A spawner
        that somebody stops before it says so is killed, and replaced by ``listen``."""
        receiving, stopped_s = asyncio.ensure_future(self._receive()), 0.0
        while not receiving.done():
            await asyncio.wait([receiving], timeout=_POLL_S)
            stopped_s = stopped_s + _POLL_S if self.is_stopped else 0.0
            if stopped_s > STANDS_STILL_S:
                self.kill()
        ready = [m for m in receiving.result() if isinstance(m, Ready)]
        self.cleared = tuple(incarnation for m in ready for incarnation in m.cleared)
        return sum(m.survivors for m in ready)

    async def _receive(self) -> list[FromSpawner]:
        """Some messages; none: it has died."""
        messages: list[FromSpawner] = []
        while not messages:
            data = b""
            if self._reader is not None:
                with contextlib.suppress(OSError):
                    data = await self._reader.read(1 << 16)
            if not data:
                return []
            self._note_reply()
            found = [msgspec.msgpack.decode(m, type=FromSpawner) for m in self._frames.feed(data)]
            self._ready |= any(isinstance(message, Ready) for message in found)
            messages = found
        return messages

    async def close(self) -> None:
        """Close the socket and wait for the process. One that stands still is killed: its warden, or the next
        spawner, ends its ranks."""
        if self.silent_s > STANDS_STILL_S:
            self.kill()
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._reader = self._writer = None
        stopped_s = 0.0
        while self._process is not None and self._process.poll() is None:
            stopped_s = stopped_s + _END_POLL_S if self.is_stopped else 0.0
            if stopped_s > STANDS_STILL_S:
                self._process.kill()
            await asyncio.sleep(_END_POLL_S)
        self._process = None
