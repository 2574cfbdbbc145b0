"""What an agent remembers of how far the state of its cluster had come, in its own state directory.

It outlives the agent, and whatever becomes of the server's directory: see ``server.witnesses``.
"""

import asyncio
import contextlib
import logging
import os
import threading
from pathlib import Path

import msgspec

from fairlead.cluster.agent.untrusted_files import read_regular, write_anew
from fairlead.cluster.protocol.messages import StorePosition
from fairlead.cluster.protocol.validation_messages import UNREADABLE

NAME = "server-position"
KEEP_S = 5.0  # between two times that it is written, unless there are new orders
_LARGEST = 4096  # bytes of the file
_log = logging.getLogger(__name__)


class PositionMemory:
    """``read`` it, have ``keep`` run for ever, and ``write`` at the end."""

    def __init__(self, state: Path) -> None:
        """state: directory of the agent."""
        self._path = state / NAME
        self.position: StorePosition | None = None
        self._written: StorePosition | None = None
        self._due = False  # whether the next position is to be written at once
        self._urgent = asyncio.Event()
        self._writing = threading.Lock()
        self._complained = False

    def read(self) -> None:
        """What an agent before this one has left. What cannot be read counts as nothing."""
        try:
            data = read_regular(self._path, _LARGEST)
            self.position = self._written = msgspec.json.decode(data, type=StorePosition)
        except FileNotFoundError:
            return
        except (OSError, *UNREADABLE) as problem:
            _log.warning("%s: cannot be read (%s); it begins anew", self._path, problem)

    def learn(self, told: StorePosition | None, *, urgent: bool) -> None:
        """The server has told of a position. In one cluster the later one counts. urgent: this one, or else
        the next, is to be written at once."""
        known = self.position
        self._due = self._due or urgent
        if told is None:
            return
        if known is None or told.cluster != known.cluster or told.order > known.order:
            self.position = told
        if self._due:
            self._due = False
            self._urgent.set()

    async def keep(self) -> None:
        """Write it as it changes, on another thread: a disk may take its time."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEEP_S):
                    await self._urgent.wait()
            self._urgent.clear()
            await asyncio.to_thread(self.write)

    def write(self) -> None:
        """Make it durable, if it has changed. What the disk refuses is tried again the next time."""
        with self._writing:
            self._write()

    def _write(self) -> None:
        position = self.position
        if position is None or position == self._written:
            return
        whole = self._path.with_suffix(".new")
        try:
            write_anew(whole, msgspec.json.encode(position))
            _sync(whole)
            whole.replace(self._path)
        except OSError as problem:
            if not self._complained:
                _log.warning("%s: cannot be written (%s)", self._path, problem.strerror)
            self._complained = True
            return
        self._written, self._complained = position, False


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
