"""The limit on new names that the enrolling token makes known.

It lets the nodes of a large cluster come up at once. Whoever has stolen the token can add that many, too, but
not fill the state, the lists and the memory of a server without an end.
"""

from collections.abc import Callable
from math import ceil

from fairlead.cluster.front.facade import TooManyError

AT_ONCE = 5000  # new names, after a pause
PER_MINUTE = 60  # in the long run
_MINUTE_S = 60.0


class EnrolmentLimit:
    """Counts new names. Used on the driver's thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._spent, self._at_s = 0.0, monotonic()

    def spend(self, node: str) -> None:
        """Count a new name. Raises TooManyError where there were too many; the agent tries again."""
        now = self._monotonic()
        self._spent = max(self._spent - (now - self._at_s) * PER_MINUTE / _MINUTE_S, 0.0)
        self._at_s = now
        if self._spent + 1 > AT_ONCE:
            wait_s = ceil((self._spent + 1 - AT_ONCE) * _MINUTE_S / PER_MINUTE)
            raise TooManyError(
                f"node {node!r}: {AT_ONCE:,} new nodes have enrolled; {PER_MINUTE} more a minute, the next "
                f"in {wait_s} s",
                wait_s,
            )
        self._spent += 1
