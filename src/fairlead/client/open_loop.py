"""The training loop of this process until the process ends: a script may leave it by itself (``break``,
``next``, ``islice``, a return), and only the end of the process shows that no other follows."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol

from fairlead.client.rank_environment import print_to_log
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
        self._directory = ""  # where it saves, "" = nowhere
        self._completed: set[tuple[int, str]] = (
            set()
        )  # processes, and where their loops had all done

    def opened(
        self, loop: LeavableLoop, socket: str, directory: str | os.PathLike[str] | None
    ) -> None:
        """A loop begins; one before it is over. socket: of its agent, "" = there is none; directory: of its
        checkpoints, if it has one. Raises ConfigError where a job's process has had one: what is saved and
        counted is of one loop, and the second would begin where the first one has ended. By hand the same
        holds of a directory in which a loop of this process has saved all its steps."""
        begun = os.getpid(), socket
        if socket and begun == self._begun:
            raise ConfigError(
                "this process has had a training loop already, and the scheduler saves and counts the steps "
                "of one: train all epochs by one iterator, or submit a job for each part"
            )
        self._begun = begun
        saved_to = os.path.realpath(directory) if directory else ""
        if not socket and saved_to and (os.getpid(), saved_to) in self._completed:
            raise ConfigError(
                f"checkpoint_dir: a loop before this one in this process has done all its steps, and saved "
                f"them to {str(directory)!r}: this one would go on behind them; give it another directory, "
                "or train all by one iterator"
            )
        if self._loop is not None and self._pid == os.getpid():
            self._loop.let_go()
            if saved_to and saved_to == self._directory:
                print_to_log(
                    "warning: the loop before this one in this process was left, and has the same "
                    "checkpoint_dir: this one goes on from the newest checkpoint there, if there is one"
                )
        self._loop, self._pid, self._directory = loop, os.getpid(), saved_to
        if not self._is_watched:
            self._is_watched = True
            atexit.register(self._at_exit)

    def closed(self, loop: LeavableLoop, *, completed: bool) -> None:
        """It is over, and known to be. completed: all its steps are done."""
        if self._loop is not loop:
            return
        self._loop = None
        if completed and self._directory:
            self._completed.add((os.getpid(), self._directory))

    def _at_exit(self) -> None:
        loop, self._loop = self._loop, None
        failed = getattr(sys, "last_type", None) is not None  # an exception was not caught
        if loop is not None and self._pid == os.getpid() and not failed:
            loop.ends_with_process()


OPEN_LOOP = OpenLoop()
