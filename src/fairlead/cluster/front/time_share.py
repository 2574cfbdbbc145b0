"""A bound on the time that the front spends on questions which it answers by itself.

While the driver is busy with a round, people who ask without a pause would keep the front computing, and
that is when thousands of nodes wait for it to tell them of their orders.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead.cluster.front.compute_turns import TURNS

PART = 0.1  # of the time
MAX_WAIT_S = 0.5  # that the next one waits


class TimeShare:
    """Lets one thread at a time compute, for a part of the time. Who comes after a pause does not wait."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._turn = threading.Lock()
        self._next = 0.0  # monotonic seconds; nobody computes before

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it for the block."""
        with TURNS.waiting():
            self._turn.acquire()
            wait_s = self._next - self._monotonic()
            if wait_s > 0:
                self._sleep(wait_s)
        began = self._monotonic()
        try:
            yield
        finally:
            ended = self._monotonic()
            self._next = ended + min((ended - began) * (1 / PART - 1), MAX_WAIT_S)
            self._turn.release()
