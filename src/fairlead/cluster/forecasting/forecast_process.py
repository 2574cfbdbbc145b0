"""Forecasts in a process of their own, bounded by the CPU time that they take there, and by the clock.

Of each task the process first makes a forecast without rounds, which takes a fraction of a second, and sends
it; then better ones, as far as its time goes. A process that computes on for long beyond that (one solve
cannot be interrupted) is ended, and the coarse forecast is the answer. A slow machine, or a busy one, changes
how exact an answer is, never whether there is one.
"""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from fairlead.cluster.forecasting.forecast import (
    ForecastQuery,
    ForecastRun,
    forecast,
)
from fairlead.errors import FairleadError
from fairlead.model.arrays import Floats
from fairlead.model.child_signals import interrupts_blocked
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint
from fairlead.scheduler.setup import Setup

_log = logging.getLogger(__name__)
CPU_LIMIT_FACTOR = 3.0  # times its CPU time that a task may really take, and
STARTING_CPU_S = 30.0  # seconds more: the process imports and compiles first
POLL_S = 0.25  # between looks at the process
STOPPED_S = 2.0  # for which it may be stopped (SIGSTOP, a tracer) before another takes its place
WALL_S = 5.0  # for which rounds are simulated at most, on a busy machine too
_TICKS = os.sysconf("SC_CLK_TCK")


class ForecastError(FairleadError):
    """A forecast could not be made."""


def _ignore(_: list[ForecastRun]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ForecastTask:
    """A state, and what is asked of it."""

    setup: Setup
    state: SchedulerCheckpoint
    query: ForecastQuery
    seeds: tuple[int, ...] = (0,)
    cpu_s: float = 4.0  # of all seeds together; 0 = without rounds
    wall_s: float = WALL_S  # from when the process has it, likewise


class ForecastProcess:
    """One task at a time. ``run`` may be called from any thread."""

    def __init__(self, name: str, niceness: int = 15) -> None:
        """niceness: whoever waits for a forecast in the background can wait; jobs and leases cannot."""
        self.name = name
        self.niceness = niceness
        self._number = 0  # of the newest task: answers to earlier ones may still come
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._closed = False

    def start(self) -> None:
        """Have the process ready for a question that is about to come."""
        with self._turn:
            self._started()

    def run(
        self,
        task: ForecastTask,
        timeout_s: float = float("inf"),
        early: Callable[[list[ForecastRun]], None] = _ignore,
    ) -> list[ForecastRun]:
        """One outcome for each seed that the time was enough for, one at least. timeout_s: after which the
        coarse forecast will do, as soon as there is one; early: told of that one. Raises ForecastError where
        the process fails, and the task's own error where it cannot be answered. A process that somebody
        stops is ended; another one does the task."""
        with self._turn:
            until = time.monotonic() + timeout_s
            while True:
                process, connection = self._started()
                self._number += 1
                with _killed_when_stopped(process) as was_stopped:
                    try:
                        connection.send((self._number, task))
                        return self._answer(process, connection, task, until, early)
                    except (EOFError, OSError):
                        self._end()
                if not was_stopped.is_set():
                    raise ForecastError("the process that makes forecasts has ended")
                _log.warning("%s: the process was stopped, and is replaced", self.name)

    def close(self) -> None:
        """End it, whatever it computes, for good. Whoever waits for an answer gets a ForecastError."""
        self._closed = True
        with self._lock:
            process = self._process
        if process is not None:
            process.kill()
        with self._turn:  # the connection is closed by nobody while another thread uses it
            self._end()

    def _answer(
        self,
        process: BaseProcess,
        connection: Connection,
        task: ForecastTask,
        until: float,
        early: Callable[[list[ForecastRun]], None],
    ) -> list[ForecastRun]:
        most_s = _cpu_s(process.pid) + STARTING_CPU_S + CPU_LIMIT_FACTOR * task.cpu_s
        coarse: list[ForecastRun] = []
        while True:
            if connection.poll(POLL_S):
                number, ok, value = connection.recv()
                if number != self._number:
                    continue
                if ok == "coarse":
                    coarse = value
                    early(coarse)
                elif ok == "done":
                    return list(value)
                else:
                    raise value
            elif coarse and time.monotonic() > until:
                return coarse
            elif not process.is_alive():
                raise EOFError
            elif _cpu_s(process.pid) > most_s:
                self._end()
                if coarse:
                    return coarse
                raise ForecastError(f"a forecast took more than {most_s:.0f} s of CPU time")

    def _started(self) -> tuple[BaseProcess, Connection]:
        with self._lock:
            if self._closed:
                raise ForecastError("the server is stopping")
            if self._process is None or self._connection is None or not self._process.is_alive():
                context = multiprocessing.get_context("spawn")
                self._connection, theirs = context.Pipe()
                self._process = context.Process(
                    target=_serve,
                    args=(theirs, os.getpid(), self.niceness),
                    name=self.name,
                    daemon=True,
                )
                with interrupts_blocked():
                    self._process.start()
                theirs.close()
            return self._process, self._connection

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            connection, self._connection = self._connection, None
        if process is not None:
            process.kill()
            process.join()
        if connection is not None:
            connection.close()


@contextmanager
def _killed_when_stopped(process: BaseProcess) -> Iterator[threading.Event]:
    """Kill the process if it is stopped for long during the block: it would answer nobody, and a large task
    could not even be sent. Gives an event that is set when that has happened."""
    over, was_stopped = threading.Event(), threading.Event()

    def watch() -> None:
        since: float | None = None
        while not over.wait(POLL_S):
            now = time.monotonic()
            since = (now if since is None else since) if _is_stopped(process.pid) else None
            if since is not None and now - since >= STOPPED_S:
                was_stopped.set()
                process.kill()
                return

    watching = threading.Thread(target=watch, name="stopped forecasts", daemon=True)
    watching.start()
    try:
        yield was_stopped
    finally:
        over.set()
        watching.join()


def _serve(connection: Connection, parent: int, niceness: int) -> None:
    """Answer questions, in the forecasting process."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.nice(niceness)
    answer_tasks(connection)


def answer_tasks(connection: Connection) -> None:
    """Answer until there is nobody to be answered."""
    while True:
        try:
            number, task = connection.recv()
            for kind, answer in _answers(task):
                connection.send((number, kind, answer))
        except (EOFError, OSError):  # whoever asks has ended
            return


def _answers(task: ForecastTask) -> Iterator[tuple[str, list[ForecastRun] | FairleadError]]:
    """(kind, answer) of each, the last one "done" or "failed"."""
    try:
        coarse = without_rounds(task)
        yield "coarse", coarse
        yield "done", coarse if task.cpu_s <= 0 else within_time(task)
    except FairleadError as problem:
        yield "failed", problem
    except Exception as problem:  # a question that shows a defect must not end the process
        _log.exception("a forecast failed")
        yield "failed", ForecastError(f"the forecast failed: {problem}")


def without_rounds(task: ForecastTask) -> list[ForecastRun]:
    """Return forecasts without rounds, at once."""
    asked = replace(task.query, cpu_s=0.0)
    return forecast(task.setup, task.state, asked, task.seeds[:1])


def within_time(task: ForecastTask) -> list[ForecastRun]:
    """With rounds, for as many seeds as there is time for; the first may take all of it."""
    outcomes: list[ForecastRun] = []
    left = np.array([task.cpu_s, task.wall_s])
    for seed in task.seeds:
        before = _clocks()
        asked = replace(task.query, cpu_s=float(left[0]), wall_s=float(left[1]))
        outcomes += forecast(task.setup, task.state, asked, (seed,))
        took = _clocks() - before
        left = left - took
        if outcomes[-1].coarse or (left < took).any():
            break
    return outcomes


def _clocks() -> Floats:
    """(2,) CPU seconds of this process, and monotonic seconds."""
    return np.array([time.process_time(), time.monotonic()])


def _end_with(parent: int) -> None:
    """The process ends soon after the server, however that ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _cpu_s(pid: int | None) -> float:
    """CPU seconds that a process has taken so far; 0 where it cannot be told."""
    try:
        fields = _stat(pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, IndexError, ValueError):
        return 0.0


def _is_stopped(pid: int | None) -> bool:
    """Return whether a signal or a tracer keeps a process from running."""
    try:
        return _stat(pid)[0] in "Tt"
    except (OSError, IndexError):
        return False


def _stat(pid: int | None) -> list[str]:
    """The fields of /proc/PID/stat, from the state of the process on. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
