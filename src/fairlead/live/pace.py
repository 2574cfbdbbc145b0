"""How fast new orders go out: as fast as the nodes' answers to them can be dealt with."""

import time
from collections.abc import Callable

MOST = 8  # nodes that are told of new orders at once
LEAST = 2
LATE_S = 0.02  # how long the network's thread may take to hear of orders before they are too many


class Pace:
    """Every node that gets new orders reports soon what came of them. Where a new round has some for a
    thousand nodes, they are told in turns, fewer at a time the later the network's thread is, so that the
    leases of the others are renewed in between. Devices lose nothing by it: jobs run on until told.

    ``most`` and ``sent`` are called by the driver's thread, ``heard`` by the network's.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._most = MOST
        self._sent_s: float | None = None  # orders of which the network's thread has not heard yet

    def most(self) -> int:
        """How many nodes may be told now."""
        return 0 if self._sent_s is not None else self._most

    def sent(self) -> None:
        """Nodes are about to be told."""
        self._sent_s = self.monotonic()

    def heard(self) -> None:
        """The network's thread tells them."""
        if self._sent_s is None:
            return
        late = self.monotonic() - self._sent_s > LATE_S
        self._most = max(self._most - 2, LEAST) if late else min(self._most + 1, MOST)
        self._sent_s = None
