"""The length of a round by what switching costs."""

import math

MIN_ROUND_S = 10.0
MAX_SWITCHING = 0.02  # part of a round that may be spent on switching
AUTO = "auto"  # in place of a length: the shortest one for which switching costs no more than that


def shortest_round_s(switch_s: float) -> float:
    """Return the shortest round, in whole seconds and at least 10, of which a switch takes at most 2 %.
    switch_s: expected seconds that a device loses when another job takes its turn there. Every device is
    taken to switch in every round, as it does at most."""
    return max(MIN_ROUND_S, float(math.ceil(round(switch_s / MAX_SWITCHING, 6))))
