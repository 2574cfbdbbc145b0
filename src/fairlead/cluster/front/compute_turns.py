"""A bound on the threads that compute answers to people.

They share an interpreter with the renewal of leases: each thread that computes has its turn before the event
loop has one again, so dozens of them keep it from every node.
"""

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from fastapi.routing import APIRoute

P = ParamSpec("P")
R = TypeVar("R")
AT_ONCE = 2  # threads that compute
MAX_REST_S = 0.5  # that a turn rests: as long as it has computed, up to this


class ComputeTurns:
    """Turns for threads, in the order in which they ask; may be used from any thread. Each turn rests for as
    long as it was computed in, so that even all of them together leave half of the time."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._thread_time = thread_time
        self._free: SimpleQueue[float] = (
            SimpleQueue()
        )  # when each turn is to be had, monotonic seconds
        for _ in range(AT_ONCE):
            self._free.put(0.0)
        self._mine = threading.local()

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
        wait_s = self._free.get() - self._monotonic()
        if wait_s > 0:
            self._sleep(wait_s)
        self._mine.began = self._thread_time()

    def _give_back(self) -> None:
        spent_s = self._thread_time() - self._mine.began
        self._mine.began = None
        self._free.put(self._monotonic() + min(spent_s, MAX_REST_S))


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
