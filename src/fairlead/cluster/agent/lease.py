"""The time that a job may still run without hearing from the server."""

from collections import deque
from dataclasses import dataclass, field

_HISTORY = 8  # answers to a rank


@dataclass
class NodeLease:
    """Permission to run one job. Times are monotonic seconds of this machine."""

    length_s: float  # of a whole lease
    until: float = 0.0  # no later than this, whatever the server's clock says; 0 = not granted yet
    confirmed: float = 0.0  # the spawner, and its warden, end nothing before this
    _asked: float = 0.0  # of the same, once the spawner has answered what it was asked last

    def confirm(self) -> None:
        """Note that the spawner has answered, and is asked again."""
        self.confirmed, self._asked = self._asked, self.until

    def extend(self, asked: float, seconds: float, rate_bound: float) -> None:
        """``seconds`` from the moment ``asked``; our clock may go slow by ``rate_bound``.

        Never shortened: answers may arrive in another order than their questions were sent.
        """
        self.until = max(self.until, asked + seconds * (1.0 - rate_bound))

    @property
    def granted(self) -> bool:
        """Return whether the server has ever granted a lease; nothing starts before."""
        return self.until > 0.0

    def left_s(self, now: float) -> float:
        """Seconds, 0 when it is over."""
        return max(0.0, self.until - now)

    def is_short(self, now: float) -> bool:
        """Return whether less than a quarter is left."""
        return self.left_s(now) < 0.25 * self.length_s


@dataclass
class ReportedLease:
    """The lease of a rank as the rank was told of it.
    Where its agent is away for a while, that one is over before the agent's own."""

    length_s: float  # of a whole lease
    _reported: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_HISTORY))

    def record(self, now: float, left_s: float) -> None:
        """The rank was told at ``now`` that so much is left."""
        self._reported.append((now, now + left_s))

    def is_short(self, at: float) -> bool:
        """Return whether the rank had last heard, at that time, that less than a quarter of the lease was
        left, or nothing. A rank that was answered in time always has more."""
        known = [until for reported_s, until in self._reported if reported_s <= at]
        return bool(known) and known[-1] - at < 0.25 * self.length_s
