"""The inbox of the driver's thread: errands from outside, and names of nodes that have news."""

import contextlib
import itertools
import queue
import time
from collections import deque
from collections.abc import Callable

BATCH = 1000  # errands that are committed together
NODES = 200  # whose news are: who waits for a commit does not wait for what thousands of nodes have to say
PACE_S = 0.02  # and at least so long apart: the first is not held up, what follows at once is


class Inbox:
    """Any thread may ``put`` and ``notice``; the driver's thread collects."""

    def __init__(self, pace_s: float = PACE_S) -> None:
        """pace_s: least seconds between two batches."""
        self._pace_s = pace_s
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._reporting: deque[str] = deque()  # nodes with news, by the network's thread
        self._is_woken = False  # whether the driver will look there
        self._nodes_with_news: set[str] = set()  # nodes with news, by the driver's thread
        self._collected_s = 0.0  # of the monotonic clock
        self.is_idle = False  # the driver waits here, and all that it has handled is durable

    def put(self, call: Callable[[], None]) -> None:
        """Have something done by the driver's thread."""
        self._calls.put(call)

    def notify(self, node: str) -> None:
        """A node has something new to say."""
        self._reporting.append(node)
        if not self._is_woken:  # once for all that comes until then: each waking of a thread costs
            self._is_woken = True
            self._calls.put(self._listen)

    def mark(self, node: str) -> None:
        """A node has news, to be taken over with the batch under way (the driver's thread)."""
        self._nodes_with_news.add(node)

    def collect(self, timeout_s: float) -> set[str]:
        """Run the callables that have come, waiting that long for the first. Returns nodes with news; if
        there are many, the rest follow the next time."""
        try:
            self.is_idle = True
            try:
                first = self._calls.get(timeout=0.0 if self._nodes_with_news else timeout_s)
                self._linger()
            finally:
                self.is_idle = False
            first()
            for _ in range(BATCH):
                self._calls.get_nowait()()
        except queue.Empty:
            pass
        noticed = set(itertools.islice(self._nodes_with_news, NODES))
        self._nodes_with_news -= noticed
        return noticed

    def empty(self) -> None:
        """Run the callables that have come (any thread, once the driver's has ended)."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()()

    def _listen(self) -> None:
        self._is_woken = False  # first: what is said from here on nudges again
        while self._reporting:
            self._nodes_with_news.add(self._reporting.popleft())

    def _linger(self) -> None:
        """Let more come where much happens, to be committed and published as one."""
        wait_s = self._collected_s + self._pace_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        self._collected_s = time.monotonic()
