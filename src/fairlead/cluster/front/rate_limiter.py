"""A bound on how many questions a second the front passes on.

Each costs a few milliseconds of the interpreter that renews leases, so users who ask without a pause would
be felt by every node.
"""

import threading
import time
from collections.abc import Callable

PER_S = 50.0  # questions, in the long run
BURST = 20  # that need not wait after a pause
MAX_WAIT_S = 1.0  # that one waits


class RateLimiter:
    """Lets callers wait for their turn; after a pause the first ones need not wait."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next = 0.0  # monotonic seconds of the next turn

    def wait(self) -> None:
        """Return when this question may be passed on."""
        with self._lock:
            now = self._monotonic()
            turn = max(self._next, now - BURST / PER_S)
            self._next = min(turn + 1 / PER_S, now + MAX_WAIT_S)
        if turn > now:
            self._sleep(turn - now)
