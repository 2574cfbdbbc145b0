"""The count of steps that the starts of a job have done, those that had to be done again included.

    DIR/steps    job, steps lost so far, steps done: three numbers of eight bytes, written in place

It is written at every step without waiting for the disk, so a process that is killed leaves it exact; after
a loss of power it may be behind, and fewer lost steps are told than there were.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from os import pwrite
from pathlib import Path
from typing import NamedTuple

NAME = "steps"
_NUMBERS = struct.Struct("<3q")
_pack = _NUMBERS.pack
SIZE = _NUMBERS.size  # bytes of the file


class CountedSteps(NamedTuple):
    """The numbers of the file. job: -1 = there is nothing that can be read."""

    job: int = -1
    lost: int = 0
    reached: int = 0


def parse_count(content: bytes) -> CountedSteps:
    """Return the numbers in the content of the file."""
    try:
        return CountedSteps(*_NUMBERS.unpack(content))
    except struct.error:
        return CountedSteps()


class StepCount:
    """Counts the steps of the job whose checkpoints are in a folder. One process at a time has it open."""

    def __init__(self, directory: Path, job: int) -> None:
        self._path = directory / NAME
        self._job = job
        self._lost = 0
        self._file = -1

    def resume_from(self, step: int) -> int:
        """A start goes on from this step. Returns how many the job has lost so far, in all its starts."""
        job, lost, reached = self._read()
        self._lost = lost + max(reached - step, 0) if job == self._job else 0
        with suppress(OSError):
            self.close()
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
        self.write(step)
        return self._lost

    def write(self, step: int) -> None:
        """Write down that so many steps are done. Errors are ignored: the count is for accounts alone."""
        if self._file < 0:
            return
        try:  # noqa: SIM105 - at every step: ``suppress`` would take half as long as the write
            pwrite(self._file, _pack(self._job, self._lost, step), 0)
        except OSError:
            pass

    def close(self) -> None:
        """Done with it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self) -> CountedSteps:
        try:
            return parse_count(self._path.read_bytes())
        except OSError:
            return CountedSteps()
