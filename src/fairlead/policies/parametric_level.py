"""Common parts of makespan and finish-time fairness: one level for the requirements of all jobs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, effective_throughput, job_times
from fairlead.model.arrays import Bools, Floats
from fairlead.model.rates import inverse_rate, proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import (
    allocation,
    allocation_by_class,
)
from fairlead.policies.migration_penalty import OBJECTIVE_TOLERANCE, least_migration
from fairlead.policies.solve.level_problem import ParametricDemand
from fairlead.policies.solve.parametric_level import solve_level
from fairlead.policies.solve.share_problem import ShareProblem
from fairlead.policies.solve.space_sharing import min_level

MIN_PAIR_GAIN = 1e-6  # pairs must better the objective by this much, relative
PAIR_PENALTY = 0.05  # what a device in a pair must earn in normalised rate beyond one that is not


@dataclass(frozen=True, slots=True)
class Requirements:
    """min theta   s.t.   t_i >= steps_i / (theta isolated_i - age_i)."""

    steps: Floats  # (jobs,)
    age: Floats  # (jobs,)
    isolated: Floats  # (jobs,) > 0

    def level(self, rate: Floats, counted: Bools) -> float:
        """The largest theta that these rates (jobs,) need, over the jobs that are counted, (jobs,)."""
        level = (self.age + self.steps * inverse_rate(rate)) / self.isolated
        return float(level.max(where=counted, initial=0.0))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The level that shares reach; inf where a job that could run gets nothing."""
        rate = effective_throughput(made, snapshot)
        can = (snapshot.solo_rate > 0).any(axis=1) & (self.steps > 0)
        if (rate[can] <= 0).any():
            return float("inf")
        return self.level(rate, can)

    def measure_agnostic(self, snapshot: Snapshot, made: Allocation, rate: Floats) -> float:
        """Return ``measure`` with one rate of each job on all slot types. rate: (jobs, slots)."""
        throughput = rate.max(axis=1, initial=0.0) * job_times(made, snapshot)
        can = rate.any(axis=1) & (self.steps > 0)
        return self.level(throughput, can) if (throughput[can] > 0).all() else float("inf")

    def rate(self, level: float) -> Floats:
        """(jobs,) steps/s that each job needs at a level; 0 where it has no steps left."""
        left_s = level * self.isolated - self.age
        return np.where(left_s > 0, self.steps * inverse_rate(left_s), 0.0)


def parametric_singles(
    snapshot: Snapshot,
    agnostic: Floats | None,
    need: Requirements,
    interior: "InteriorAllocation | None" = None,
) -> Allocation:
    """The allocation with the least level, without pairs. agnostic: (jobs, slots) rates in place of the jobs'
    own; interior: makes the allocation at that level in place of the simplex method."""
    rate = snapshot.solo_rate if agnostic is None else agnostic
    problem = ParametricDemand(
        job_type=snapshot.job_type,
        rate=rate,
        scale=snapshot.job_scale,
        accelerator_of_slot=snapshot.accelerator_of_slot,
        slot_devices=snapshot.slot_devices,
        capacity=snapshot.capacity,
        steps=need.steps,
        age=need.age,
        isolated=need.isolated,
    )
    gain = inverse_rate(proportional_rate(snapshot))
    previous = None if snapshot.previous is None else snapshot.previous.report
    share, report = solve_level(problem, gain, previous)
    from_interior = interior(snapshot, rate, False, need, report.objective) if interior else None
    if from_interior is not None:
        return check_allocation(replace(from_interior, report=report), snapshot)
    made = allocation(snapshot, share, report)
    if report.objective and agnostic is None:
        made = least_migration(
            snapshot, made, need.rate(report.objective * (1 + OBJECTIVE_TOLERANCE))
        )
    return check_allocation(made, snapshot)


def parametric_pairs(
    snapshot: Snapshot, need: Requirements, interior: "InteriorAllocation | None" = None
) -> Allocation:
    """The allocation with the least level, with pairs; where shares without pairs reach the same level,
    those. interior: makes the allocation at that level, with pairs, in place of the simplex method."""
    rows = np.column_stack([snapshot.job_type, need.steps, need.age, need.isolated])
    _, key = np.unique(rows, axis=0, return_inverse=True)
    problem = ShareProblem.of(snapshot, key.reshape(-1), space_sharing=True)
    first = problem.classes.representative
    steps, age, isolated = need.steps[first], need.age[first], need.isolated[first]
    gain = inverse_rate(proportional_rate(snapshot))[first]
    found = min_level(problem, steps, age, isolated, gain, 0.0 if interior else PAIR_PENALTY)
    counted = problem.can_run[problem.classes.of] & (need.steps > 0)
    rate = snapshot.solo_rate
    from_interior = interior(snapshot, rate, True, need, found.level) if interior else None
    if from_interior is not None:
        made = from_interior
    else:
        single = replace(problem, colocated_rate=None)
        without_pairs = min_level(single, steps, age, isolated, gain, 0.0)
        if without_pairs.level <= found.level * (1 + MIN_PAIR_GAIN):
            problem, found = single, replace(without_pairs, bound=found.bound)
        made = allocation_by_class(snapshot, problem, found.solution, SolveReport("optimal"))
    reached = (
        found.level if from_interior else need.level(effective_throughput(made, snapshot), counted)
    )
    report = SolveReport(
        "optimal", objective=reached, bound=found.bound, iterations=found.iterations
    )
    made = replace(made, report=report)
    if from_interior is None and reached:
        least = need.rate(reached * (1 + OBJECTIVE_TOLERANCE)) * counted
        made = least_migration(
            snapshot, made, least, space_sharing=problem.colocated_rate is not None
        )
    return check_allocation(made, snapshot)


InteriorAllocation: TypeAlias = Callable[
    [Snapshot, Floats, bool, Requirements, float | None], Allocation | None
]


def agnostic_rate(snapshot: Snapshot, reference: str) -> Floats:
    """(jobs, slots) one rate of a job on every slot type: that on the accelerator type ``reference``
    where there is one, else its mean over all devices."""
    names = [slot.accelerator for slot in snapshot.slots]
    known = reference in names
    one = snapshot.solo_rate[:, names.index(reference)] if known else proportional_rate(snapshot)
    return np.repeat(one[:, None], len(names), axis=1)
