"""What can happen. Events are the core's only input, and time is a field of each."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.job import Job, JobId
from fairlead.model.plan import Answer, Schedule


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
class RequirementsChanged:
    """Jobs train on with other batch sizes, hence at other rates and with other counts of steps.

    Of a job that runs, the change is taken note of when its round is reported, whose steps are still
    counted at the old batch size.
    """

    time_s: float
    jobs: Ints  # (jobs,) ids
    batch: Ints  # (jobs,) samples per step from now on
    total_steps: Floats  # (jobs,) of the whole job, had it always had this batch size
    steps_done: Floats  # (jobs,) of these


@dataclass(frozen=True, slots=True)
class Solved:
    """The answer to a ``Solve``: shares or a schedule, or why there is neither (the last stays in
    force)."""

    time_s: float
    allocation: Allocation | None = None
    error: str = ""
    schedule: Schedule | None = None

    @property
    def answer(self) -> Answer | None:
        """Whichever there is."""
        return self.allocation if self.schedule is None else self.schedule

    @staticmethod
    def of(time_s: float, answer: Answer) -> "Solved":
        """The event for an answer."""
        if isinstance(answer, Schedule):
            return Solved(time_s, schedule=answer)
        return Solved(time_s, answer)


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing runs, jobs wait, and nothing else will happen by itself."""

    time_s: float


Event: TypeAlias = (
    JobsSubmitted
    | JobsCancelled
    | NodeLost
    | NodeRecovered
    | RoundEnded
    | RequirementsChanged
    | Solved
    | Stalled
)
