"""Suggestions of samplers that need Optuna, made in a process of their own: it is large, and takes its time,
and the server's own process has rounds to decide."""

import os
import subprocess
import sys
from multiprocessing.connection import Connection
from socket import socketpair

import msgspec

from fairlead.cluster.protocol.study import StudySpec
from fairlead.cluster.searching.samplers import OWN, PastTrial, SamplerTask, Suggestion, suggest
from fairlead.errors import FairleadError
from fairlead.model.child_signals import end_with_parent, interrupts_blocked

SUGGEST_S = 120.0  # for a suggestion, with what is imported for the first one
NICENESS = 10


class SamplerError(FairleadError):
    """The process of the sampler has ended, or takes too long; another one may do better."""


class SuggestionError(FairleadError):
    """A sampler can suggest nothing, now or later."""


class _Task(msgspec.Struct):
    study: StudySpec
    past: list[PastTrial]


class _Answer(msgspec.Struct):
    suggestion: Suggestion | None = None
    problem: str = ""


class SamplerProcess:
    """Makes suggestions; used by one thread, with which the process ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def suggest(self, task: SamplerTask) -> Suggestion:
        """See ``samplers.suggest``. Raises SamplerError, SuggestionError."""
        if task.study.sampler in OWN:
            return suggest(task)
        connection = self._connected()
        try:
            connection.send_bytes(msgspec.msgpack.encode(_Task(task.study, list(task.past))))
            if not connection.poll(SUGGEST_S):
                raise SamplerError(f"the sampler has not answered within {SUGGEST_S:.0f} s")
            answer = msgspec.msgpack.decode(connection.recv_bytes(), type=_Answer)
        except (OSError, EOFError) as problem:
            self.close()
            raise SamplerError("the sampler's process has ended") from problem
        except SamplerError:
            self.close()
            raise
        if answer.suggestion is None:
            raise SuggestionError(answer.problem)
        return answer.suggestion

    def kill(self) -> None:
        """End the process, whatever it does; from any thread. What it works at raises SamplerError."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process, and let go of it."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None:
            ours, theirs = socketpair()
            call = f"from {__name__} import main; main({theirs.fileno()}, {os.getpid()})"
            with theirs, interrupts_blocked():
                self._process = subprocess.Popen(
                    [sys.executable, "-c", call],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            self._connection = Connection(ours.detach())
        return self._connection


def main(fd: int, parent: int) -> None:
    """Serve until the socket is closed. fd: of the socket; parent: process id of who started this."""
    end_with_parent(parent)
    os.nice(NICENESS)
    os.dup2(2, 1)  # what a library prints is no answer to anybody
    with Connection(fd) as connection:
        while True:
            try:
                task = msgspec.msgpack.decode(connection.recv_bytes(), type=_Task)
            except (EOFError, OSError):
                return
            connection.send_bytes(msgspec.msgpack.encode(_answer(task)))


def _answer(task: _Task) -> _Answer:
    try:
        return _Answer(suggest(SamplerTask(task.study, task.past)))
    except Exception as problem:
        words = str(problem).partition("\n")[0]
        return _Answer(problem=f"{task.study.sampler}: {type(problem).__name__}: {words}")
