"""When ranks end, as the warden sees it: their spawner may stand still just then, and find out much later."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable

import msgspec

from fairlead.cluster.agent import proc
from fairlead.cluster.agent.spawner_messages import SpawnerFrames, framed

SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of fcntl(2), which not every interpreter names
PIPE_BYTES = 1 << 20  # what does not fit is more than any node runs
_MAX_NOTED = 4096  # ends that are remembered

ProcessKey = tuple[int, int]  # (pid, start time): which process it is


class ProcessEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A process has ended, whether anybody has waited for it or not."""

    process: ProcessKey
    at_s: float  # monotonic


class ExitWatch:
    """The warden's side: it tells of each end once. Where the kernel has no descriptors of processes, or
    none is left, nothing is told."""

    def __init__(self, pipe: int) -> None:
        """pipe: to the spawner."""
        self._pipe = pipe
        self._watched: dict[int, ProcessKey] = {}  # descriptor of a process -> which one
        os.set_blocking(pipe, False)

    def begin(self, processes: Iterable[ProcessKey]) -> list[int]:
        """Watch those that are not watched yet, and return the descriptors, which are readable once they have
        ended."""
        return [
            descriptor
            for process in set(processes) - set(self._watched.values())
            if (descriptor := self._open(process)) >= 0
        ]

    def _open(self, process: ProcessKey) -> int:
        """-1 = it cannot be watched, or has been waited for."""
        if not proc.HAS_PIDFD:
            return -1
        pid, start_time = process
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return -1
        found = proc.process(pid)
        if found is None or found.start_time != start_time:  # another has its pid
            os.close(descriptor)
            return -1
        self._watched[descriptor] = process
        return descriptor

    def ended(self, descriptor: int) -> None:
        """Tell the spawner that the process has ended, and close its descriptor. Never blocks."""
        message = ProcessEnded(process=self._watched.pop(descriptor), at_s=time.monotonic())
        os.close(descriptor)
        with contextlib.suppress(
            OSError
        ):  # the spawner is gone, or has been standing still for long
            os.write(self._pipe, framed(message))


class ExitTimes:
    """The spawner's side."""

    def __init__(self) -> None:
        self._pipe = -1
        self._frames = SpawnerFrames()
        self._noted: dict[ProcessKey, float] = {}  # when they ended (monotonic), oldest first

    def open(self) -> int:
        """Make the pipe that a new warden writes to, and return its other end. Raises OSError."""
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipe, SET_PIPE_SIZE, PIPE_BYTES)
        self._frames = SpawnerFrames()
        return theirs

    def close(self) -> None:
        """Read what the warden, which has ended, said before."""
        if self._pipe >= 0:
            self._read()
            os.close(self._pipe)
            self._pipe = -1

    def of(self, process: ProcessKey) -> float:
        """When a process ended (monotonic) that is waited for now: now, unless the warden saw it before."""
        self._read()
        now = time.monotonic()
        return min(now, self._noted.pop(process, now))

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # no more just now
            while self._pipe >= 0 and (data := os.read(self._pipe, 1 << 16)):
                for body in self._frames.feed(data):
                    told = msgspec.msgpack.decode(body, type=ProcessEnded)
                    self._noted[told.process] = told.at_s
        while len(self._noted) > _MAX_NOTED:  # most ends are heard before the warden tells of them
            del self._noted[next(iter(self._noted))]
