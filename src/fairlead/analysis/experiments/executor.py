"""Running points: on processes of our own, or on whatever an executor has."""

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import isnan
from multiprocessing.connection import Connection
from typing import Protocol

import msgspec
import psutil

from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.experiments.result_store import (
    PointAnswer,
    PointTiming,
    ResultStore,
)
from fairlead.analysis.experiments.worker import (
    READY,
    ReportProgress,
    WorkerMessage,
)
from fairlead.errors import ConfigError, FairleadError
from fairlead.model.child_signals import interrupts_blocked

POLL_S = 0.2  # between two looks at a worker's memory and time
START_S = 120.0  # to import everything, and to compile it where no compiled kernels are kept
POINTS_EACH = 25  # of a worker, before another takes its place
MAX_TRIES = 2  # of a point whose worker dies
MEMORY_SHARE = 0.8  # of the machine's, for all workers together
SERIAL = dict.fromkeys(  # a worker computes in one thread: others wait for the cores, and sums stay the same
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)


@dataclass(frozen=True)
class Limits:
    """Limits of one point's time and memory."""

    timeout_s: float | None = None  # on the clock; None = no limit
    memory_mib: int | None = None  # None: an equal part of ``MEMORY_SHARE``

    def checked(self) -> "Limits":
        """The limits themselves. Raises ConfigError where one is not above 0."""
        if self.timeout_s is not None and not 0 < self.timeout_s < float("inf"):
            raise ConfigError(f"timeout: must be a number of seconds > 0, got {self.timeout_s}")
        if self.memory_mib is not None and self.memory_mib < 1:
            raise ConfigError(f"memory: must be at least 1 MiB, got {self.memory_mib}")
        return self

    def shared_by(self, workers: int) -> "Limits":
        """Return the limits with the memory that each of so many executors on this machine may use."""
        if self.memory_mib is not None:
            return self
        whole = psutil.virtual_memory().total * MEMORY_SHARE
        return replace(self, memory_mib=int(whole / workers / 2**20))


class Done(Protocol):
    """Called with each answer, in the thread that called ``SweepExecutor.run``."""

    def __call__(self, number: int, answer: PointAnswer) -> None:
        """number: position of the point."""


class SweepExecutor(Protocol):
    """Something that runs points."""

    def run(
        self, points: Sequence[Point], limits: Limits, done: Done, progress: "SweepProgress"
    ) -> None:
        """Run all of them; returns when ``done`` has been called for each."""


class SweepProgress:
    """The progress of the points under way, for a display; used by several threads."""

    def __init__(self, show: Callable[[float, str], None]) -> None:
        """show: called with the number of points done, parts of them counted, and a note."""
        self._show = show
        self._lock = threading.Lock()
        self._whole = 0
        self._parts: dict[str, tuple[float, str]] = {}

    def part(self, name: str, done: float, note: str) -> None:
        """A point that is under way: the part of it that is done (nan: not known)."""
        with self._lock:
            self._parts[name] = (0.0 if isnan(done) else min(max(done, 0.0), 1.0), note)

    def end(self, name: str) -> None:
        """A point has ended."""
        with self._lock:
            self._parts.pop(name, None)
            self._whole += 1

    def show(self) -> None:
        """Show it, in the caller's thread."""
        with self._lock:
            done = self._whole + sum(part for part, _ in self._parts.values())
            notes = [f"{name}, {note}" if note else name for name, (_, note) in self._parts.items()]
        self._show(done, "; ".join(notes))


def run_points(
    points: Sequence[Point],
    store: ResultStore,
    executor: SweepExecutor,
    limits: Limits,
    show: Callable[[float, str], None] = lambda _done, _note: None,
    ended: Callable[[PointResult], None] = lambda _outcome: None,
) -> list[PointResult]:
    """Each point's outcome, in this order. What the store has is not run again, but for what failed, and
    for what ran out of a shorter time. Equal points are run once. Every answer is kept at once, so that
    what is stopped goes on. show: as that of ``SweepProgress``; ended: told of each new outcome."""
    distinct = list(dict.fromkeys(map(_Hashed, points)))
    known: dict[_Hashed, PointResult] = {}
    for one in distinct:
        outcome = _known(store, one.point, limits)
        if outcome is not None:
            known[one] = outcome
    missing = [one for one in distinct if one not in known]
    progress = SweepProgress(lambda done, note: show(len(known_before) + done, note))
    known_before = tuple(known)

    def done(number: int, answer: PointAnswer) -> None:
        timing = PointTiming(answer.seconds, _now(), limits.timeout_s)
        one = missing[number]
        known[one] = store.keep(one.point, replace(answer, seconds=0.0), timing)
        ended(known[one])

    if missing:
        executor.run([one.point for one in missing], limits, done, progress)
    return [known[_Hashed(point)] for point in points]


def _known(store: ResultStore, point: Point, limits: Limits) -> PointResult | None:
    last = store.last(point)
    if last is None or last.status is Status.FAILED:
        return None
    if last.status is Status.TIMED_OUT:
        timing = store.timing(point)
        had_s = None if timing is None else timing.timeout_s
        longer = limits.timeout_s is None or had_s is None or limits.timeout_s > had_s
        return None if longer else last
    return last


@dataclass(frozen=True)
class _Hashed:
    """A point as the key of a dictionary: one that holds a list has no hash of its own."""

    point: Point

    def __hash__(self) -> int:
        return hash(self.point.key(""))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def label(point: Point) -> str:
    """A point in a few words, for people."""
    words = [point.policy]
    if point.profile != "default":
        words.append(f"({point.profile})")
    return " ".join([*words, f"seed {point.input.seed}"])


# --- one worker ----------------------------------------------------------------------------------


class StoppedError(FairleadError):
    """The runner is closing."""


class Worker:
    """A child process that runs one point after the other, restarted when it has died, was killed or
    has run many. Used by the thread that made it, but for ``kill``."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._child: _WorkerProcess | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def run(self, point: Point, progress: ReportProgress) -> PointAnswer:
        """The point's answer. Only a death that may be another's fault gives it a second try."""
        for number in range(MAX_TRIES):
            try:
                return self._run_once(point, progress)
            except _DeathError as death:
                self.close()
                if death.final or number == MAX_TRIES - 1:
                    return PointAnswer(death.status, reason=str(death), seconds=death.seconds)
        raise AssertionError

    def kill(self) -> None:
        """End the child, from any thread; ``run`` raises StoppedError."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.process.kill()

    def close(self) -> None:
        """End the child; the next ``run`` starts another one."""
        with self._lock:
            if self._child is not None:
                self._child.close()
            self._child = None

    def _run_once(self, point: Point, progress: ReportProgress) -> PointAnswer:
        child = self._live_child()
        child.points += 1
        try:
            child.connection.send_bytes(msgspec.msgpack.encode(point))
            answer = self._await_answer(child, progress)
        except (EOFError, OSError):
            if self._closed:
                raise StoppedError("stopped") from None
            raise _DeathError(child.exit_reason(), child.seconds()) from None
        rss_mib = child.rss_mib()
        if child.points >= POINTS_EACH or (
            self.limits.memory_mib is not None and rss_mib > self.limits.memory_mib / 2
        ):
            self.close()
        return answer

    def _await_answer(self, child: "_WorkerProcess", progress: ReportProgress) -> PointAnswer:
        limits, began_s = self.limits, time.monotonic()
        while True:
            if child.connection.poll(POLL_S):
                message = msgspec.msgpack.decode(child.connection.recv_bytes(), type=WorkerMessage)
                if message.answer is not None:
                    return message.answer
                progress(message.done, message.note)
            rss_mib = child.rss_mib()
            if limits.memory_mib is not None and rss_mib > limits.memory_mib:
                raise _DeathError(
                    f"it took more memory than it may: {rss_mib:,.0f} of {limits.memory_mib:,} MiB",
                    child.seconds(),
                    final=True,
                )
            if limits.timeout_s is not None and time.monotonic() - began_s > limits.timeout_s:
                raise _DeathError(
                    f"it had not ended after {limits.timeout_s:g} s",
                    child.seconds(),
                    Status.TIMED_OUT,
                    final=True,
                )

    def _live_child(self) -> "_WorkerProcess":
        with self._lock:
            if self._closed:
                raise StoppedError("stopped")
            if self._child is not None and self._child.process.poll() is not None:
                self._child.close()
                self._child = None
            if self._child is None:
                self._child = _WorkerProcess.start()
            child = self._child
        if not child.ready:
            try:
                child.ready = (
                    child.connection.poll(START_S) and child.connection.recv_bytes() == READY
                )
            except (EOFError, OSError):
                child.ready = False
        if not child.ready:
            if self._closed:
                raise StoppedError("stopped")
            raise _DeathError(f"{child.exit_reason()} before it was ready", child.seconds())
        return child


class _DeathError(FairleadError):
    """The worker has died or is to be killed."""

    def __init__(
        self, reason: str, seconds: float, status: Status = Status.FAILED, final: bool = False
    ) -> None:
        super().__init__(reason)
        self.seconds, self.status, self.final = seconds, status, final


class _WorkerProcess:
    """The process and the socket to it."""

    def __init__(self, process: "subprocess.Popen[bytes]", connection: Connection) -> None:
        self.process = process
        self.connection = connection
        self.ready = False
        self.points = 0
        self._seen = psutil.Process(process.pid)
        self._seconds = 0.0

    @staticmethod
    def start() -> "_WorkerProcess":
        """A new one, which begins at once to import."""
        ours, theirs = socket.socketpair()
        with theirs, interrupts_blocked():
            call = [
                "-m",
                "fairlead.analysis.experiments.worker",
                str(theirs.fileno()),
                str(os.getpid()),
            ]
            process = subprocess.Popen(
                [sys.executable, *call],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=os.environ | SERIAL,
            )
        return _WorkerProcess(process, Connection(ours.detach()))

    def rss_mib(self) -> float:
        """Memory that it holds now."""
        try:
            return float(self._seen.memory_info().rss) / 2**20
        except psutil.Error:
            return 0.0

    def seconds(self) -> float:
        """Processor time, as last seen."""
        try:
            times = self._seen.cpu_times()
            self._seconds = float(times.user + times.system)
        except psutil.Error:
            pass
        return self._seconds

    def exit_reason(self) -> str:
        """Return how a process ended that was not asked to end."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "the worker does not answer"
        if code >= 0:
            return f"the worker ended with exit code {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"the worker was killed by signal {-code}{memory}"

    def close(self) -> None:
        """Kill it and wait for its end."""
        self.process.kill()
        self.process.wait()
        self.connection.close()


# --- processes of this machine -------------------------------------------------------------------


@dataclass
class Processes:
    """An executor: so many workers on this machine."""

    count: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def run(
        self, points: Sequence[Point], limits: Limits, done: Done, progress: SweepProgress
    ) -> None:
        """Run all points, the first ones first."""
        count = min(self.count, len(points))
        limits = limits.shared_by(count)
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        answers: queue.SimpleQueue[tuple[int, PointAnswer | BaseException]] = queue.SimpleQueue()
        for number in range(len(points)):
            todo.put(number)
        workers = [Worker(limits) for _ in range(count)]

        def serve(worker: Worker) -> None:
            while (number := _next(todo)) is not None:
                try:
                    answers.put((number, _with_progress(worker, points[number], number, progress)))
                except StoppedError:
                    return
                except BaseException as problem:
                    answers.put((number, problem))
                    return
            worker.close()

        with _threads(workers, serve):
            left = len(points)
            while left:
                try:
                    number, answer = answers.get(timeout=POLL_S)
                except queue.Empty:
                    progress.show()
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                done(number, answer)
                left -= 1
                progress.show()


def _with_progress(
    worker: Worker, point: Point, number: int, progress: SweepProgress
) -> PointAnswer:
    name = f"{label(point)} [{number + 1}]"
    progress.part(name, 0.0, "")
    try:
        return worker.run(point, lambda part, note: progress.part(name, part, note))
    finally:
        progress.end(name)


def _next(todo: "queue.SimpleQueue[int]") -> int | None:
    try:
        return todo.get_nowait()
    except queue.Empty:
        return None


@contextmanager
def _threads(workers: list[Worker], serve: Callable[[Worker], None]) -> Iterator[None]:
    """A thread for each worker; whatever happens in the block, all have ended after it."""
    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
        for thread in threads:
            thread.join()
        for worker in workers:
            worker.close()
