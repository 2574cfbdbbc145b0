"""Points that take no time."""

from typing import Any

from fairlead.analysis.experiments.point import Point
from fairlead.simulator.simulation_input import SimulationInput


def point(seed: int = 0, policy: str = "fifo_aware", **options: Any) -> Point:
    """A handful of jobs on three devices."""
    given = {"generate": "gavel,jobs=6,interarrival=3600", "cluster": "1:1:1"} | options
    return Point(policy, "default", SimulationInput(seed=seed, **given))


def endless(rate_per_h: float, window: str = "20:30") -> Point:
    """Jobs of 10 hours without end on three devices, which can do about one in 5 hours."""
    generate = f"gavel,interarrival={3600 / rate_per_h},duration=36000"
    return point(generate=generate, window=window)


GROWING = endless(3.0, "300:310")  # its queue does
LONG = endless(0.1, "900:1000")  # takes some seconds
