"""The training loop of this process until the process ends: a script may leave it by itself (``break``,
``next``, ``islice``, a return), and only the end of the process shows that no other follows."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol

from fairlead.errors import ConfigError


class LeavableLoop(Protocol):
    """A loop that has begun."""

    def let_go(self) -> None:
        """Another one begins in this process."""

    def ends_with_process(self) -> None:
        """The process ends, by itself and without an exception, as far as is known here."""


class OpenLoop:
    """At most one loop of a process is open."""

    def __init__(self) -> None:
        self._loop: LeavableLoop | None = None
        self._pid = 0  # of the process in which it began: its forks do not train
        self._is_watched = False
        self._begun: tuple[int, str] | None = None  # process and socket of the last one

    def opened(self, loop: LeavableLoop, socket: str) -> None:
        """A loop begins; one before it is over. socket: of its agent, "" = there is none. Raises ConfigError
        where a job's process has had one: what is saved and counted is of one loop, and the second would
        begin where the first one has ended."""
        begun = os.getpid(), socket
        if socket and begun == self._begun:
            raise ConfigError(
                "this process has had a training loop already, and the scheduler saves and counts the steps "
                "of one: train all epochs by one iterator, or submit a job for each part"
            )
        self._begun = begun
        if self._loop is not None and self._pid == os.getpid():
            self._loop.let_go()
        self._loop, self._pid = loop, os.getpid()
        if not self._is_watched:
            self._is_watched = True
            atexit.register(self._at_exit)

    def closed(self, loop: LeavableLoop) -> None:
        """It is over, and known to be."""
        if self._loop is loop:
            self._loop = None

    def _at_exit(self) -> None:
        loop, self._loop = self._loop, None
        failed = getattr(sys, "last_type", None) is not None  # an exception was not caught
        if loop is not None and self._pid == os.getpid() and not failed:
            loop.ends_with_process()


OPEN_LOOP = OpenLoop()
