"""Other threads give way to the network's: leases are renewed before they go on."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")
SLICE_S = 0.002  # a thread works so long at a time
TURN_S = 0.1  # and waits for the network's no longer than this


class Courtesy:
    """A thread in long work, the driver's or that of a request, lets the network's do all that waits for it.

    Both need the interpreter's lock. If they took turns as they come, each call of an agent would wait for
    it several times, and where much comes in at once the calls would pile up.
    """

    def __init__(self) -> None:
        self.post: Callable[[Callable[[], None]], None] = _at_once  # to the network's thread
        self._mine = _OfThread()

    def give_way(self) -> None:
        """Called often; waits once in a while. Not for the network's own thread."""
        mine = self._mine
        if time.monotonic() - mine.since_s < SLICE_S:
            return
        mine.turn.clear()
        self.post(mine.turn.set)
        mine.turn.wait(TURN_S)
        mine.since_s = time.monotonic()

    def slowly(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Many items, giving way between them."""
        for item in items:
            self.give_way()
            yield item


class _OfThread(threading.local):
    """What each thread that gives way has for itself."""

    def __init__(self) -> None:
        self.turn = threading.Event()
        self.since_s = 0.0


def _at_once(do: Callable[[], None]) -> None:
    do()
