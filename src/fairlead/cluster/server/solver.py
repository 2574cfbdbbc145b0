"""Solves in a process of their own, so that no policy can hold up, exhaust or crash the server."""

import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple, cast

from fairlead.cluster.server.solver_child import READY, SolveTask
from fairlead.errors import SolveError
from fairlead.model.child_signals import interrupts_blocked
from fairlead.model.plan import PlannerAnswer, PlannerState
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.settings import MechanismSettings

START_S = 120.0  # to import everything, and to compile it where no compiled kernels are kept


class SolveTimeoutError(SolveError):
    """A solve had no answer within the limit."""


class _Request(NamedTuple):
    """A task that waits, as bytes: the scheduler may change its arrays meanwhile."""

    task: bytes
    answer: "Future[PlannerAnswer]"


class Solver:
    """Solves one task after the other in a child process, started anew when it fails or takes too long.

    The future of a task ends with the answer, or with SolveError and one sentence (SolveTimeoutError where
    the limit was reached). Its callbacks run in
    the solver's thread. The child ends with the server, however that ends.
    """

    def __init__(self, limit_s: float = 30.0, start_s: float = START_S) -> None:
        """limit_s: of a solve; start_s: for a child to get ready."""
        self.limit_s, self.start_s = limit_s, start_s
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # of all below
        self._child: _SolverProcess | None = None
        self._since: float | None = None  # a task is being worked on
        self._why = ""  # the child was killed over it
        self._timed_out = False  # and it was for want of time
        self._closing = False

    def start(self) -> "Solver":
        """Start thread and child; returns before the child is ready."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="solver", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the child, whatever it does. Tasks that have no answer yet get SolveError."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._lock:
            self._closing, self._why = True, "the server stops"
            if self._child is not None:
                self._child.process.kill()
        self._requests.put(None)
        thread.join()

    def __enter__(self) -> "Solver":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def submit(
        self,
        policy: str,
        seed: int,
        profile: MechanismSettings,
        snapshot: Snapshot,
        state: PlannerState,
    ) -> "Future[PlannerAnswer]":
        """Have it solved. Snapshot and state are copied before this returns."""
        if self._thread is None:
            raise SolveError("the solver is not running")
        answer: Future[PlannerAnswer] = Future()
        task = pickle.dumps(SolveTask(policy, seed, profile, snapshot, state), protocol=5)
        self._requests.put(_Request(task, answer))
        return answer

    def give_up(self, why: str = "the solve was given up") -> bool:
        """End the solve under way, if there is one: nobody wants that answer any more. Whether there was
        one that had not been given up before."""
        with self._lock:
            if self._child is None or self._since is None or self._why:
                return False
            self._why = why
            self._child.process.kill()
            return True

    @property
    def busy_s(self) -> float | None:
        """Seconds since the solve under way began; None if there is none."""
        since = self._since
        return None if since is None else time.monotonic() - since

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def _run(self) -> None:
        """The thread. It starts the children itself, since they end with it."""
        with self._lock:
            if not self._closing:
                self._child = _SolverProcess.start()
        while (asked := self._requests.get()) is not None:
            if not asked.answer.set_running_or_notify_cancel():
                continue
            try:
                answer = self._solve(asked.task)
            except SolveError as problem:
                asked.answer.set_exception(problem)
            else:
                asked.answer.set_result(answer)
        with self._lock:
            if self._child is not None:
                self._child.close()
            self._child = None

    def _solve(self, task: bytes) -> PlannerAnswer:
        with self._lock:
            if self._closing:
                raise SolveError(self._why)
            child = self._living()
            self._since, self._why, self._timed_out = time.monotonic(), "", False
        try:
            if not child.ready:
                with self._limited(self.start_s, "the solver's process was not ready"):
                    child.ready = child.connection.recv() == READY
            with self._limited(self.limit_s, "no answer"):
                child.connection.send_bytes(task)
                answer = child.connection.recv()
        except Exception as problem:  # EOFError and OSError, mostly; a torn pickle can be anything
            child.process.kill()
            error = SolveTimeoutError if self._timed_out else SolveError
            raise error(self._why or child.exit_reason(problem)) from None
        finally:
            with self._lock:
                self._since = None
                if not self._closing:
                    self._child = self._living()  # the next one gets ready meanwhile
        if isinstance(answer, str):
            raise SolveError(answer)
        return cast(PlannerAnswer, answer)

    def _living(self) -> "_SolverProcess":
        """The child, or another one where that has ended or been killed."""
        child = self._child
        if child is not None and child.process.poll() is None and not self._why:
            return child
        if child is not None:
            child.close()
        self._child, self._why = _SolverProcess.start(), ""
        return self._child

    @contextmanager
    def _limited(self, limit_s: float, what: str) -> Iterator[None]:
        """Kill the child when the block takes longer."""

        def time_out() -> None:
            self._timed_out = self.give_up(f"{what} within {limit_s:g} s")

        timer = threading.Timer(limit_s, time_out)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


class _SolverProcess:
    """The process and the socket to it."""

    def __init__(self, process: "subprocess.Popen[bytes]", connection: Connection) -> None:
        self.process = process
        self.connection = connection
        self.ready = False

    @staticmethod
    def start() -> "_SolverProcess":
        """A new one, which begins at once to import."""
        ours, theirs = socket.socketpair()
        call = (
            f"from {__package__}.solver_child import main; main({theirs.fileno()}, {os.getpid()})"
        )
        with theirs, interrupts_blocked():
            process = subprocess.Popen(
                [sys.executable, "-c", call], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        return _SolverProcess(process, Connection(ours.detach()))

    def exit_reason(self, problem: Exception) -> str:
        """Return how it ended, when nobody meant it to."""
        if not isinstance(problem, EOFError | OSError):
            return f"the solver's answer cannot be read ({problem})"
        code = self.process.wait()
        if code >= 0:
            return f"the solver's process ended with exit code {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"the solver's process was killed by signal {-code}{memory}"

    def close(self) -> None:
        """Kill it and wait for its end."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
