"""How long a job may still run without hearing from the server."""

from dataclasses import dataclass


@dataclass
class NodeLease:
    """Permission to run one job. Times are monotonic seconds of this machine."""

    length_s: float  # of a whole lease
    until: float = 0.0  # no later than this, whatever the server's clock says; 0 = not granted yet

    def extend(self, asked: float, seconds: float, rate_bound: float) -> None:
        """``seconds`` from the moment ``asked``; our clock may go slow by ``rate_bound``.

        Never shortened: answers may arrive in another order than their questions were sent.
        """
        self.until = max(self.until, asked + seconds * (1.0 - rate_bound))

    @property
    def granted(self) -> bool:
        """Has the server ever agreed? Nothing starts before."""
        return self.until > 0.0

    def left_s(self, now: float) -> float:
        """Seconds, 0 when it is over."""
        return max(0.0, self.until - now)

    def is_short(self, now: float) -> bool:
        """Is less than a quarter left?"""
        return self.left_s(now) < 0.25 * self.length_s
