"""The data of a scheduler between two events, as a record that the handlers of events share."""

from dataclasses import dataclass, field

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.commands import StartRound
from fairlead.model.job import JobId, RestartCosts
from fairlead.model.plan import Change, Planner, PlannerState
from fairlead.model.snapshot import Servers
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.bound_jobs import BoundGroups, BoundJobs, DevicePositions
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.core.lifecycle import JobPhase
from fairlead.scheduler.core.rate_beliefs import RateBeliefs
from fairlead.scheduler.core.running import ActiveRound
from fairlead.scheduler.mechanism import planner_calls
from fairlead.scheduler.mechanism.settings import MechanismSettings
from fairlead.scheduler.placement.rule import PlacementRule


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Options that stay the same as long as a scheduler lives."""

    settings: MechanismSettings
    restart_costs: RestartCosts
    overlap_solves: bool  # rounds go on with the last allocation while a solve is under way
    policy: str  # what the planner was made from, name and options
    preempted_return: bool = False  # jobs go back to where they ran last: starts cost less there


@dataclass(slots=True, kw_only=True)
class Planning:
    """The planner, its state, and whether it is solving."""

    planner: Planner
    state: PlannerState
    previous: Allocation | None = None  # the answer in force
    solving: bool = False  # whether a solve is under way
    changed: Change = Change.JOBS  # since the last solve

    def note(self, change: Change) -> None:
        """Add to what has changed since the last solve."""
        if self.changed is Change.NOTHING:
            self.changed = change
        elif self.changed is not change:  # flags are slow to combine
            self.changed |= change


@dataclass(slots=True, kw_only=True)
class RoundStatus:
    """The round in force."""

    number: int = -1
    active: bool = False  # whether a round with job groups runs
    ending: bool = False  # whether its end has been asked for
    corrected: bool = False  # whether the steps of a job that runs were
    in_force: StartRound | None = None  # the last one; device ids as they are now
    started_s: float = 0.0
    last_end_s: float | None = None  # end of the last round that was not empty


@dataclass(slots=True, kw_only=True)
class DeferredChanges:
    """Changes that wait for the report of the round in force, or for jobs that are still to come."""

    adapting: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    # job -> batch size, total steps, steps done, of jobs that run: what RequirementsChanged said
    expected: dict[int, int] = field(default_factory=dict)  # job -> belief: to come, or to adapt
    to_pause: set[int] = field(default_factory=set)  # jobs


@dataclass(slots=True, kw_only=True)
class SchedulerData:
    """All that a scheduler knows."""

    options: SchedulerOptions
    cluster: Cluster
    capacity: Floats  # (types,) devices that work
    servers: Servers
    beliefs: RateBeliefs
    ledger: Ledger
    paused_jobs: Ledger  # jobs that take no part
    running: ActiveRound
    planning: Planning
    round: RoundStatus
    deferred: DeferredChanges
    bound_jobs: BoundJobs = field(default_factory=BoundJobs)
    occupied: DevicePositions = ()  # devices that programs hold which were told to leave
    elastic: dict[int, tuple[int, ...]] = field(default_factory=dict)
    # job -> scale factors that it may have, of those that are elastic
    now_s: float = 0.0  # time of the last event

    def bound_groups(self) -> BoundGroups:
        """The job groups that run on certain devices or not at all."""
        if not self.bound_jobs:
            return {}
        return self.bound_jobs.groups(self.ledger, self.cluster, self.running.topology)

    def forget(self, jobs: Ints) -> None:
        """Jobs have left: (jobs,) ids."""
        self.running.forget(jobs)
        for job in jobs.tolist() if self.bound_jobs or self.elastic else ():
            self.bound_jobs.bind(job, ())
            self.elastic.pop(job, None)

    @property
    def throughputs(self) -> Throughputs:
        """The rates that are believed; rows are job types, and beliefs about single jobs."""
        return self.beliefs.table

    @property
    def undominated(self) -> Throughputs:
        """Return the rates that policies and mechanism see: without slots that another dominates."""
        return self.beliefs.undominated

    @property
    def slots(self) -> tuple[SlotType, ...]:
        """The slot types that jobs may be given."""
        return self.beliefs.table.slots


def new_data(
    cluster: Cluster,
    throughputs: Throughputs,
    planner: Planner,
    options: SchedulerOptions,
    placement: PlacementRule | None = None,
) -> SchedulerData:
    """A scheduler without jobs. throughputs: what it believes."""
    settings = options.settings
    beliefs = RateBeliefs(throughputs.on(cluster, settings.scattered), planner.space_sharing)
    ledger = Ledger(
        slots=len(beliefs.table.slots),
        space_sharing=planner.space_sharing,
        all_pairs=settings.gavel.all_pairs,
        head_start_s=settings.round_s / 2 if settings.gavel.reset_accounts else 0.0,
        rate=beliefs.undominated.rate,
        colocated_rate=beliefs.undominated.pair_rates,
    )
    return SchedulerData(
        options=options,
        cluster=cluster,
        capacity=cluster.capacity.copy(),
        servers=Servers.of(cluster, np.ones(len(cluster.device_node), np.bool_)),
        beliefs=beliefs,
        ledger=ledger,
        paused_jobs=ledger.for_paused_jobs(),
        running=ActiveRound(
            cluster,
            beliefs.table,
            settings,
            ledger,
            placement,
            preempted_return=options.preempted_return,
        ),
        planning=Planning(planner=planner, state=planner_calls.start(planner)),
        round=RoundStatus(),
        deferred=DeferredChanges(),
    )


def ledger_of(s: SchedulerData, job: int, cannot: str) -> Ledger:
    """The ledger that has a job; ProtocolError says what cannot be done where none has it."""
    for ledger in (s.ledger, s.paused_jobs):
        if JobId(job) in ledger:
            return ledger
    raise ProtocolError(f"job {job}: {cannot}, it is not in the system")


def running_jobs(s: SchedulerData) -> set[int]:
    """Jobs in the round in force."""
    jobs = s.ledger.jobs
    return set(jobs.id[jobs.state == JobPhase.RUNNING].tolist()) if s.round.active else set()


def slots_that_fit(s: SchedulerData, scale: int) -> Bools | None:
    """(slots,) where a job of this scale factor may be offered devices; None = everywhere."""
    if s.options.settings.gavel.allow_undersized:
        return None
    return np.asarray(s.cluster.capacity[s.running.topology.accelerator_of_slot] >= scale)


def devices_per_slot(s: SchedulerData) -> Floats | None:
    """(slots,) devices in all, where a job may be offered no slot type with fewer than it needs."""
    if s.options.settings.gavel.allow_undersized:
        return None
    return s.cluster.capacity[s.running.topology.accelerator_of_slot]
