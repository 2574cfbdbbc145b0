"""The agent's memory of how far the state of its cluster had come, in its own state directory.

It outlives the agent, and whatever becomes of the server's directory: see ``server.rollback_detection``.
"""

import asyncio
import contextlib
import logging
import threading
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fairlead.client.durable import make_durable
from fairlead.cluster.agent.on_thread import on_thread
from fairlead.cluster.agent.untrusted_files import read_regular, write_anew
from fairlead.cluster.protocol.messages import StorePosition
from fairlead.cluster.protocol.validation_messages import UNREADABLE

NAME = "server-position"
WRITE_LIMIT_S = 60.0  # for a write
WRITE_INTERVAL_S = 5.0  # between two times that it is written, unless there are new orders
HALTED_RUNS = 16  # of servers, that are remembered
_MAX_BYTES = 1 << 14  # bytes of the file
_log = logging.getLogger(__name__)


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the memory's file."""

    position: StorePosition | None = None  # the latest
    before: StorePosition | None = None  # the latest of an earlier run of the server
    halted_runs: tuple[
        str, ...
    ] = ()  # run ids of servers that found their state to be old, oldest first


class PositionMemory:
    """``read`` it, have ``write_changes`` run for ever, and ``write`` at the end."""

    def __init__(self, state: Path) -> None:
        """state: directory of the agent."""
        self._path = state / NAME
        self._known = self._written = Remembered()
        self._due = False  # whether the next position is to be written at once
        self._urgent = asyncio.Event()
        self._writing = threading.Lock()
        self._warned = False

    @property
    def position(self) -> StorePosition | None:
        """The latest."""
        return self._known.position

    @property
    def halted_runs(self) -> tuple[str, ...]:
        """Run ids of servers that found their state to be an older copy."""
        return self._known.halted_runs

    def read(self) -> None:
        """Load what an agent before this one has left. A file that cannot be read counts as none."""
        try:
            data = read_regular(self._path, _MAX_BYTES)
            self._known = self._written = msgspec.json.decode(data, type=Remembered)
        except FileNotFoundError:
            return
        except (OSError, *UNREADABLE) as problem:
            _log.warning("%s: cannot be read (%s); it begins anew", self._path, problem)

    def update(self, position: StorePosition | None, *, urgent: bool) -> None:
        """The server has told of a position. In one cluster the later one counts. urgent: this one, or else
        the next, is to be written at once."""
        self._due = self._due or urgent
        if position is None or position.run_id in self._known.halted_runs:
            return  # of one that has halted an answer may arrive that it gave before
        self._merge(position)
        if self._due:
            self._due = False
            self._urgent.set()

    def _merge(self, position: StorePosition) -> None:
        known = self._known.position
        same = known is None or position.run_id == known.run_id
        before = self._known.before if same else known
        if known is None or position.cluster != known.cluster or position.order > known.order:
            self._known = replace(self._known, position=position, before=before)

    def disown_run(self, run_id: str) -> None:
        """The server of this run has found its state to be an older copy: what it told, and ordered, must not
        speak against the newer one once that is back."""
        known = self._known
        if not run_id or run_id in known.halted_runs:
            return
        halted = (*known.halted_runs, run_id)[-HALTED_RUNS:]
        known = replace(known, halted_runs=halted)
        if known.position is not None and known.position.run_id == run_id:
            known = replace(known, position=known.before, before=None)
        self._known = known
        self._urgent.set()

    async def write_changes(self) -> None:
        """Write it as it changes, on another thread: a disk may take its time."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WRITE_INTERVAL_S):
                    await self._urgent.wait()
            self._urgent.clear()
            with contextlib.suppress(TimeoutError, OSError):  # OSError: no thread; the next time
                await on_thread(self.write, WRITE_LIMIT_S)

    def write(self) -> None:
        """Make it durable, if it has changed. What the disk refuses is tried again the next time."""
        with self._writing:
            self._write()

    def _write(self) -> None:
        known = self._known
        if known == self._written:
            return
        whole = self._path.with_suffix(".new")
        try:
            write_anew(whole, msgspec.json.encode(known))
            make_durable(whole)
            whole.replace(self._path)
        except OSError as problem:
            if not self._warned:
                _log.warning("%s: cannot be written (%s)", self._path, problem.strerror)
            self._warned = True
            return
        self._written, self._warned = known, False
