"""Events, which are the core's only input; time is a field of each."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.pair_rates import LearnedPairs
from fairlead.model.plan import PlannerAnswer, Schedule


class RoundOutcome(IntEnum):
    """The outcome of a round for one member of a job group."""

    RAN = 0  # its steps count
    FAILED = 1  # the attempt failed: nothing counts, and five in a row drop the job (simulator)
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
class JobsDropped:
    """Jobs are given up: they have failed too often, or will fail however often they are tried."""

    time_s: float
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class NodesAvoided:
    """From the next round on a job is placed on other nodes than these, wherever others of the type that it
    is to run on can take it. It replaces the job's earlier ``NodesAvoided``; no nodes: any will do."""

    time_s: float
    job: JobId
    nodes: tuple[str, ...]  # those that are not in the cluster are ignored


@dataclass(frozen=True, slots=True)
class DevicesBound:
    """From the next round on a job runs on these devices or not at all: what it has done is in its processes
    there. It replaces the job's earlier ``DevicesBound``; no devices: any will do. Devices that are not in
    the cluster bind a job to nothing, nor does this where the job is owed more than it would lose elsewhere
    while others keep its devices."""

    time_s: float
    job: JobId
    devices: tuple[tuple[str, int], ...]  # of each: node, index among its devices


@dataclass(frozen=True, slots=True)
class DevicesOccupied:
    """Programs that were told to leave these devices still hold them: from the next round on job groups get
    others, where there are any. It replaces the last ``DevicesOccupied``; those that are not in the cluster
    are ignored."""

    time_s: float
    devices: tuple[tuple[str, int], ...]  # of each: node, index among its devices


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node takes no more work: it no longer answers, or it is being drained. What still runs there when
    the round is reported counts or not, as the report says."""

    time_s: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeRecovered:
    """A lost or drained node is back."""

    time_s: float
    node: str


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round is over. Rows are those of the ``StartRound`` with the same round number; a report with
    another number is refused."""

    time_s: float
    round: int
    steps: Floats  # (groups, width) steps done by each member
    finish_s: Floats  # (groups,) when the job group stopped; <= time_s
    outcome: Ints  # (groups, width) of ``RoundOutcome``
    restart_s: Floats  # (groups,) seconds of it that went into starting


@dataclass(frozen=True, slots=True)
class RequirementsChanged:
    """Jobs train on with other batch sizes, hence at other rates and with other counts of steps.

    For a job that runs, the change takes effect when its round is reported, whose steps still count at
    the old batch size.
    """

    time_s: float
    jobs: Ints  # (jobs,) ids
    batch: Ints  # (jobs,) samples per step from now on
    total_steps: Floats  # (jobs,) of the whole job, had it always had this batch size
    steps_done: Floats  # (jobs,) of these


@dataclass(frozen=True, slots=True)
class ProgressCorrected:
    """The steps that jobs certainly have, which may be fewer than were reported: work was lost.

    It holds at once, whether a job runs or not; steps of the round in force are added by its report. A
    job that has all its steps is done: now, or when its round is reported. The event may come late: jobs
    that are no longer in the system are ignored.
    """

    time_s: float
    jobs: Ints  # (jobs,) ids
    steps_done: Floats  # (jobs,) of the whole job, as it counts them now; >= 0


@dataclass(frozen=True, slots=True)
class RestartCostsLearned:
    """New costs of stopping jobs and starting them again, from now on.
    The event may come late: jobs that are no longer in the system are ignored."""

    time_s: float
    jobs: Ints  # (jobs,) ids
    restart_s: Floats  # (jobs,) seconds, >= 0


@dataclass(frozen=True, slots=True)
class DevicesKept:
    """Jobs kept their devices after they were told to stop: time that counts as received, in no round.
    The event may come late: jobs that are no longer in the system are ignored, and so are types of devices
    that are not in the cluster."""

    time_s: float
    jobs: Ints  # (jobs,) ids
    accelerators: tuple[str, ...]  # (jobs,) the type of the devices
    kept_s: Floats  # (jobs,) seconds, >= 0


@dataclass(frozen=True, slots=True)
class JobsReweighted:
    """Jobs count for more or less from now on. Their shares are solved for again."""

    time_s: float
    jobs: Ints  # (jobs,) ids
    weight: Floats  # (jobs,) > 0


@dataclass(frozen=True, slots=True)
class JobsPaused:
    """Owners pause jobs, or resume them.

    A paused job is in the system, and can be withdrawn, reweighted and corrected, but planners and policies
    do not see it. A job that runs is paused when its round is reported; the round ends early for it. A
    resumed job has the steps, the age and the time owed that it had.
    """

    time_s: float
    jobs: Ints  # (jobs,) ids
    paused: bool


@dataclass(frozen=True, slots=True)
class JobTypesLearned:
    """New or better estimates of rows of the throughput table. Jobs in the system go by them from now on.

    New job types are co-located with no others but those that are named. On slot types that are not named,
    known job types keep their rates, and new ones cannot run.
    """

    time_s: float
    job_types: tuple[JobType, ...]
    slots: tuple[SlotType, ...]  # of the scheduler's
    rate: Floats  # (job_types, slots) steps/s of the whole job; 0 = cannot run there
    colocated_job_types: tuple[JobType, ...] = ()  # known before, or among these
    colocated_rate: Floats | None = (
        # (job_types, colocated_job_types, slots, 2) steps/s of the first co-located with the second, and
        # of the second
        None
    )
    pairs: LearnedPairs | None = None  # their rates in pairs, by class


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesLearned:
    """New beliefs about the rates of single jobs. A belief is a row of rates that the scheduler uses for one
    job, or for several of one job type; it has a number, which may be reused for another belief.

    It changes rates only and causes no decision: it precedes an event that does, such as a submission or a
    round's report. The rates of a pair of beliefs that is not named are derived from those of the job types;
    rates that were given hold until one of the two beliefs is named again.
    """

    time_s: float
    jobs: Ints  # (jobs,) ids; of jobs not in the system yet it holds as soon as they are submitted
    name: Ints  # (jobs,) number of the belief that each goes by from now on, -1 = that of its job type
    belief: Ints  # (beliefs,) numbers of those that are new or changed
    job_types: tuple[JobType, ...]
    job_type: Ints  # (beliefs,) position in job types of what each is about
    rate: Floats  # (beliefs, slots) steps/s of the whole job; 0 = cannot run there
    pair: Ints  # (pairs, 2) numbers of beliefs
    colocated_rate: Floats  # (pairs, slots, 2) steps/s of the first in the pair, and of the second


@dataclass(frozen=True, slots=True)
class Solved:
    """The answer to a ``Solve``: shares or a schedule, or the error (the last answer then stays in
    force)."""

    time_s: float
    allocation: Allocation | None = None
    error: str = ""
    schedule: Schedule | None = None

    @property
    def answer(self) -> PlannerAnswer | None:
        """The shares or the schedule; None where there is neither."""
        return self.allocation if self.schedule is None else self.schedule

    @staticmethod
    def of(time_s: float, answer: PlannerAnswer) -> "Solved":
        """Return the event for a planner's answer."""
        if isinstance(answer, Schedule):
            return Solved(time_s, schedule=answer)
        return Solved(time_s, answer)


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing runs, jobs wait, and nothing else will happen by itself; or nothing has happened by the time
    of a ``WakeAt``."""

    time_s: float


Event: TypeAlias = (
    JobsSubmitted
    | JobsCancelled
    | JobsDropped
    | NodesAvoided
    | DevicesBound
    | DevicesOccupied
    | NodeLost
    | NodeRecovered
    | RoundEnded
    | RequirementsChanged
    | ProgressCorrected
    | RestartCostsLearned
    | DevicesKept
    | JobsReweighted
    | JobsPaused
    | JobTypesLearned
    | RatesLearned
    | Solved
    | Stalled
)
