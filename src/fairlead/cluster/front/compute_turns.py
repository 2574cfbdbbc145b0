"""A bound on the threads that compute answers to people.

They share an interpreter with the renewal of leases: each thread that computes has its turn before the event
loop has one again, so dozens of them keep it from every node. Turns go round over those for whom is computed:
who asks for little does not wait for all that another one has asked for.
"""

import inspect
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from fastapi.routing import APIRoute

P = ParamSpec("P")
R = TypeVar("R")
caller: ContextVar[str] = ContextVar("caller", default="")  # for whom an answer is computed
AT_ONCE = 2  # threads that compute
MAX_REST_S = 0.5  # that a turn rests: as long as it has computed, up to this


class ComputeTurns:
    """Turns for threads, those of one caller in the order in which they ask; may be used from any thread.
    Each turn rests for as long as it was computed in, so that even all of them together leave half of the
    time."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._thread_time = thread_time
        self._lock = threading.Lock()
        self._free = deque([0.0] * AT_ONCE)  # when each turn is to be had, monotonic seconds
        # Threads that wait for a turn, by caller; who had one last is at the end
        self._waiting: OrderedDict[str, deque[SimpleQueue[float]]] = OrderedDict()
        self._mine = threading.local()

    @property
    def waiting_threads(self) -> int:
        """How many threads wait for a turn."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have a turn for the block; within one, the same."""
        if self._has_turn:
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._give_back()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let others compute during the block, in which this thread waits for something."""
        if not self._has_turn:
            yield
            return
        self._give_back()
        try:
            yield
        finally:
            self._take()

    @property
    def _has_turn(self) -> bool:
        return getattr(self._mine, "began", None) is not None

    def _take(self) -> None:
        given: SimpleQueue[float] = SimpleQueue()
        with self._lock:
            if self._free:
                given.put(self._free.popleft())
            else:
                self._waiting.setdefault(caller.get(), deque()).append(given)
        wait_s = given.get() - self._monotonic()
        if wait_s > 0:
            self._sleep(wait_s)
        self._mine.began = self._thread_time()

    def _give_back(self) -> None:
        spent_s = self._thread_time() - self._mine.began
        self._mine.began = None
        rested = self._monotonic() + min(spent_s, MAX_REST_S)
        with self._lock:
            if not self._waiting:
                self._free.append(rested)
                return
            whose, line = self._waiting.popitem(last=False)
            line.popleft().put(rested)
            if line:
                self._waiting[whose] = line


TURNS = ComputeTurns()  # of the process: there is one interpreter


def computing(do: Callable[P, R]) -> Callable[P, R]:
    """Return the function, which then has a turn while it runs."""

    @wraps(do)
    def run(*given: P.args, **named: P.kwargs) -> R:
        with TURNS.turn():
            return do(*given, **named)

    return run


class ComputedRoute(APIRoute):
    """A route of the API whose answers are computed in turns, unless on the event loop."""

    def __init__(self, path: str, endpoint: Callable[..., object], **named: object) -> None:
        computed = endpoint if inspect.iscoroutinefunction(endpoint) else computing(endpoint)
        super().__init__(path, computed, **named)  # type: ignore[arg-type]
