"""The length of a round by what switching costs."""

import math
from collections.abc import Collection

MIN_ROUND_S = 10.0
MAX_SWITCHING = 0.02  # part of a round that may be spent on switching
MAX_EXCESS = 1.25  # times the shortest length that rounds may have before they are shortened
AUTO = "auto"  # in place of a length: the shortest one for which switching costs no more than that


def shortest_round_s(switch_s: float) -> float:
    """Return the shortest round, in whole seconds and at least 10, of which a switch takes at most 2 %.
    switch_s: expected seconds that a device loses when another job takes its turn there. Every device is
    taken to switch in every round, as it does at most."""
    return max(MIN_ROUND_S, float(math.ceil(round(switch_s / MAX_SWITCHING, 6))))


def automatic_round_s(switches: Collection[tuple[int, float]], default_s: float) -> float:
    """Return the shortest round by what a switch costs on average over the devices that jobs ask for.
    switches: (devices, seconds that a switch costs) of each job; default_s: those seconds without jobs."""
    devices = sum(count for count, _ in switches)
    lost_s = sum(count * cost_s for count, cost_s in switches)
    return shortest_round_s(lost_s / devices if devices else default_s)


def adjusted_round_s(present_s: float, shortest_s: float) -> float:
    """Return the length of rounds from now on, where costs are measured and measurements vary: the present
    one, unless switching takes more than its part of that, or rounds could be clearly shorter."""
    return present_s if shortest_s <= present_s < MAX_EXCESS * shortest_s else shortest_s
