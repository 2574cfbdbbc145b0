"""The limits on new names, and on types, that the enrolling token makes known.

It lets the nodes of a large cluster come up at once. Whoever has stolen the token can add that many, too, but
not fill the state, the lists and the memory of a server without an end.
"""

from collections.abc import Callable, Iterable
from math import ceil

from fairlead.cluster.front.facade import TooManyError
from fairlead.errors import ConfigError

AT_ONCE = 5000  # new names, after a pause
PER_MINUTE = 60  # in the long run
MAX_TYPES = 64  # accelerator types of a cluster: each has a place on every page, and a column in every solve
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


def check_type(node: str, accelerator: str, known: Iterable[str]) -> None:
    """Raises ConfigError where a node brings one more type than a cluster may have. known: those of the
    others, each as often as it comes."""
    types: set[str] = set()
    for one in known:  # the first one, where all are alike
        if one == accelerator:
            return
        types.add(one)
    if len(types) >= MAX_TYPES:
        raise ConfigError(
            f"node {node!r}: accelerator {accelerator!r} would be one more than the {MAX_TYPES} types that a "
            "cluster may have; remove nodes of others"
        )
