"""Rounds of elastic jobs: who runs on which accelerator type, and on how many devices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.plan import RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.elastic.elastic_round import ElasticRound
from fairlead.policies.elastic.objectives import ElasticObjective
from fairlead.policies.rounds_only import RoundsOnlyPlanner
from fairlead.policies.solve.multiple_choice import solve_multiple_choice


def best_by(objective: ElasticObjective) -> Callable[[ElasticRound], Ints]:
    """Return the rule by which an objective is best over all jobs, what a start costs taken into account. One
    accelerator type cannot have more than its devices."""
    return lambda jobs: solve_multiple_choice(objective.program(jobs)).option


@dataclass(slots=True)
class ElasticState:
    """{job: how often it has been started}, of jobs in the system."""

    starts: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ElasticPlanner(RoundsOnlyPlanner):
    """Each round each job has the configuration, an accelerator type and a number of devices, or none, that
    is decided for it; a job that is not elastic has one number.

    The rate of a configuration is the best one of the type's localities. A job is preempted, moved or resized
    where the decision is another one.
    """

    decide: Callable[[ElasticRound], Ints]  # (jobs,) the configuration of each job, -1 = none
    name: str

    def start(self) -> ElasticState:
        """The state in which no job has been started."""
        return ElasticState()

    def state_dict(self, state: ElasticState) -> dict[str, Ints]:
        """(jobs, 2) job, starts."""
        return {"starts": np.array(list(state.starts.items()), np.int64).reshape(-1, 2)}

    def load_state_dict(self, arrays: Mapping[str, Ints]) -> ElasticState:
        """The state that ``state_dict`` has made the arrays of."""
        return ElasticState(dict(arrays["starts"].tolist()))

    def plan(self, snapshot: Snapshot, state: ElasticState) -> tuple[RoundPlan, ElasticState]:
        """The next round."""
        if not len(snapshot.jobs):
            none: Ints = np.zeros(0, np.int64)
            return RoundPlan(none, none), ElasticState()
        ids = snapshot.jobs.tolist()
        starts = np.array([state.starts.get(job, 0) for job in ids], np.int64)
        options = configurations_of(snapshot)
        given = _round_of(snapshot, options, starts)
        chosen = self.decide(given)
        runs = np.flatnonzero(chosen >= 0)
        starts[runs] += chosen[runs] != given.present[runs]
        plan = RoundPlan(
            job_group=runs,
            slot=options.slot[runs, chosen[runs]],
            scale=options.devices[chosen[runs]],
        )
        return plan, ElasticState(dict(zip(ids, starts.tolist(), strict=True)))


class JobConfigurations(NamedTuple):
    """The configurations of the jobs of a snapshot."""

    accelerator: Ints  # (configurations,)
    devices: Ints  # (configurations,)
    rate: Floats  # (jobs, configurations) steps/s, 0 = may not run so
    slot: Ints  # (jobs, configurations) with that rate

    def column_of(self, snapshot: Snapshot, runs: Ints) -> Ints:
        """(runs,) the configurations of these jobs, which run."""
        accelerator = snapshot.accelerator_of_slot[snapshot.running_on[runs]]
        return self.column_of_choice(
            snapshot.job_scale[runs], accelerator, types=len(snapshot.capacity)
        )

    def column_of_choice(self, devices: Ints, accelerator: Ints | int, types: int) -> Ints:
        """(choices,) the configurations of these numbers of devices on these accelerator types."""
        return np.asarray(np.searchsorted(self.devices[::types], devices) * types + accelerator)


def configurations_of(snapshot: Snapshot) -> JobConfigurations:
    """The configurations of a snapshot's jobs."""
    job, devices, job_type = _numbers_of(snapshot)
    numbers, column = np.unique(devices, return_inverse=True)
    types = len(snapshot.capacity)
    shape = len(snapshot.jobs), len(numbers), types
    rate, slot = np.zeros(shape), np.zeros(shape, np.int64)
    for s, accelerator in enumerate(snapshot.accelerator_of_slot.tolist()):
        here = snapshot.job_type_rate[job_type, s]
        better = here > rate[job, column, accelerator]
        at = job[better], column[better], accelerator
        rate[at], slot[at] = here[better], s
    return JobConfigurations(
        accelerator=np.tile(np.arange(types), len(numbers)),
        devices=np.repeat(numbers, types),
        rate=rate.reshape(len(snapshot.jobs), -1),
        slot=slot.reshape(len(snapshot.jobs), -1),
    )


def _numbers_of(snapshot: Snapshot) -> tuple[Ints, Ints, Ints]:
    """(choices,) position of a job, number of devices that it may have, row of the throughput table."""
    every = np.arange(len(snapshot.jobs))
    if snapshot.elastic is None:
        return every, snapshot.job_scale, snapshot.job_type
    elastic = snapshot.elastic
    rigid = np.setdiff1d(every, elastic.job)
    return (
        np.concatenate([elastic.job, rigid]),
        np.concatenate([elastic.devices, snapshot.job_scale[rigid]]),
        np.concatenate([elastic.job_type, snapshot.job_type[rigid]]),
    )


def _round_of(snapshot: Snapshot, options: JobConfigurations, starts: Ints) -> ElasticRound:
    present = np.full(len(snapshot.jobs), -1, np.int64)
    runs = np.flatnonzero(snapshot.running_on >= 0)
    present[runs] = options.column_of(snapshot, runs)
    slowest = np.where(options.rate > 0, options.rate, np.inf).min(axis=1)
    return ElasticRound(
        goodput=options.rate,
        devices=options.devices,
        accelerator=options.accelerator,
        capacity=snapshot.capacity.astype(np.int64),
        present=present,
        starts=starts,
        age_s=snapshot.age_s,
        remaining_s=np.where(np.isfinite(slowest), snapshot.steps_left / slowest, np.nan),
        restart_s=snapshot.restart_s,
    )
