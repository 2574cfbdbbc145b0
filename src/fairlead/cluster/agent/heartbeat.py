"""When a node sends its next heartbeat.

Heartbeats of a cluster are spread over their period for good. If each node counted from its last report
instead, all nodes that a round gave new orders to would send their next heartbeats together as well.
"""

import math

_PERIOD, _LEAST = 0.9, 0.1  # of the longest time between two heartbeats


def until_heartbeat_s(*, heartbeat_s: float, phase: float, now: float) -> float:
    """Return the seconds from a report until the next heartbeat, between 0.1 and 1 of ``heartbeat_s``.

    heartbeat_s: the longest time between two reports. phase: of the node, between 0 and 1, drawn once.
    now: seconds on the node's monotonic clock.
    """
    period_s = _PERIOD * heartbeat_s
    least = now + _LEAST * heartbeat_s
    slot = (math.ceil(least / period_s - phase) + phase) * period_s
    return slot - now
