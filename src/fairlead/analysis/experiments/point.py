"""A point of an experiment: one simulation, as plain values, and what came of it."""

import hashlib
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from fairlead.simulator.simulation_input import SimulationInput


@dataclass(frozen=True)
class Point:
    """One simulation. Equal points have equal results, wherever they run."""

    policy: str  # as ``--policy`` takes it
    profile: str = "default"
    input: SimulationInput = field(default_factory=SimulationInput)

    def key(self, version: str) -> str:
        """Names the result: a digest of all that differs from the defaults, and of the code's version. A
        new option with a default leaves the names of old points as they are."""
        defaults = SimulationInput()
        given = {k: v for k, v in asdict(self.input).items() if v != getattr(defaults, k)}
        text = msgspec.json.encode([version, self.policy, self.profile, given], order="sorted")
        return hashlib.sha256(text).hexdigest()[:20]


class Status(StrEnum):
    """The ways in which a point ends."""

    COMPLETE = "complete"
    DIVERGED = "diverged"  # its queue grew without bound
    TIMED_OUT = "timed_out"
    FAILED = "failed"


@dataclass(frozen=True)
class PointResult:
    """The result of a point; ``metrics`` are those of ``Result``, empty unless it is complete.
    They leave out what differs between runs of the same point (times of processors)."""

    point: Point
    status: Status
    metrics: dict[str, Any]
    reason: str = ""  # why it is not complete, in a sentence
    seconds: float = 0.0  # processor time; kept apart from the rest
    jobs: str = ""  # Parquet file of the measured jobs (columns of ``jobs.parquet``); "" = none
