"""What can happen. Events are the core's only input, and time is a field of each."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.job import Job, JobId


class Outcome(IntEnum):
    """How one member of a unit came out of a round."""

    RAN = 0  # its steps count
    FAILED = 1  # the attempt failed: nothing counts, and five in a row drop the job
    LOST = 2  # its node was lost: nothing counts, and the job is not to blame
    ENDED = 3  # its steps count, and its owner or its own crash has ended it for good


@dataclass(frozen=True, slots=True)
class JobsSubmitted:
    """Jobs arrived."""

    time_s: float
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class JobsCancelled:
    """Owners withdrew jobs."""

    time_s: float
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node no longer answers: its devices, and whatever ran on them, are gone."""

    time_s: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeRecovered:
    """A lost node is back."""

    time_s: float
    node: str


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round is over. Rows are those of the ``StartRound`` with the same round number; a report with
    another number is refused."""

    time_s: float
    round: int
    steps: Floats  # (units, width) steps done by each member
    finish_s: Floats  # (units,) when the unit stopped; <= time_s
    outcome: Ints  # (units, width) of Outcome
    restart_s: Floats  # (units,) seconds of it that went into starting


@dataclass(frozen=True, slots=True)
class Solved:
    """The answer to a ``Solve``: an allocation, or why there is none (the last one stays in force)."""

    time_s: float
    allocation: Allocation | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing runs, jobs wait, and nothing else will happen by itself."""

    time_s: float


Event: TypeAlias = (
    JobsSubmitted | JobsCancelled | NodeLost | NodeRecovered | RoundEnded | Solved | Stalled
)
