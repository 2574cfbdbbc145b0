"""The driver's thread gives way to the network's: leases are renewed before it goes on."""

import threading
import time
from collections.abc import Callable

SLICE_S = 0.002  # the driver's thread works so long at a time
TURN_S = 0.1  # and waits for the network's no longer than this


class Courtesy:
    """The driver's thread, in long work, lets the network's do all that waits for it.

    Both need the interpreter's lock. If they took turns as they come, each call of an agent would wait for
    it several times, and where much comes in at once the calls would pile up.
    """

    def __init__(self) -> None:
        self.post: Callable[[Callable[[], None]], None] = _at_once  # to the network's thread
        self._turn = threading.Event()
        self._since_s = 0.0

    def give_way(self) -> None:
        """Called often; waits once in a while."""
        if time.monotonic() - self._since_s < SLICE_S:
            return
        self._turn.clear()
        self.post(self._turn.set)
        self._turn.wait(TURN_S)
        self._since_s = time.monotonic()


def _at_once(do: Callable[[], None]) -> None:
    do()
