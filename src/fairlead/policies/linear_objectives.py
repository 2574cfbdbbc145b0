"""Common parts of the policies with linear objectives: deadlines, certificates, pairs where they pay."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import (
    check_allocation,
    effective_throughput,
    tally_allocation,
    type_name,
)
from fairlead.model.arrays import Floats
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation, allocation_by_class
from fairlead.policies.solve.linear_objectives import (
    JobRates,
    RateDemand,
    largest_sum,
    sum_bound,
)
from fairlead.policies.solve.share_problem import ShareProblem

MIN_PAIR_GAIN = 1e-6  # pairs must better the objective by this much, relative
SHORTFALL_TOLERANCE = 1e-7  # a shortfall below this is the solver's tolerance
DEADLINE_TOLERANCE = (
    1e-5  # a deadline is met at this much less than the throughput that it asks for, relative
)

# Makes (classes, slots) shares of a problem with values (classes, slots) and needs; None = not found
InteriorShares: TypeAlias = Callable[[ShareProblem, Floats, RateDemand], Floats | None]


def maximise_sum(
    snapshot: Snapshot,
    worth: Floats,
    per_step: Floats,
    problem: ShareProblem,
    demand: RateDemand,
    interior: InteriorShares | None = None,
) -> Allocation:
    """The allocation with max sum_i worth_i sum_j per_step_j T_ij x_ij, and the needs met but for their
    shortfall, certified.

    worth: (jobs,) the same for all jobs of a class; per_step: (slots,); interior: makes the shares in place
    of the simplex method, where there are no pairs and all needs can be met.
    """
    value = worth[problem.classes.representative][:, None] * per_step
    previous = () if snapshot.previous is None else snapshot.previous.report.basis
    best = largest_sum(problem, value, demand, previous)
    made = allocation_by_class(snapshot, problem, best.solution, SolveReport("optimal"))
    if interior and problem.colocated_rate is None and demand.shortfall < SHORTFALL_TOLERANCE:
        inner = interior(problem, value, demand)
        if inner is not None:
            made = allocation(snapshot, inner[problem.classes.of], made.report)
    objective = float(worth @ effective_throughput(made, scale_rates(snapshot, per_step)))
    jobs = (
        JobRates(snapshot.solo_rate, snapshot.job_scale) if problem.colocated_rate is None else None
    )
    report = SolveReport(
        "optimal",
        objective=objective,
        bound=sum_bound(problem, value, demand, best.prices, jobs),
        violation=allocation_violation(snapshot, made),
        iterations=best.solution.iterations,
        warm=best.solution.warm,
        basis=best.solution.basis,
    )
    return check_allocation(replace(made, report=report), snapshot)


def pairs_where_they_pay(without_pairs: Allocation, with_pairs: Allocation) -> Allocation:
    """The allocation with pairs; where pairs gain nothing, the one without them and the other's bound."""
    assert without_pairs.report.objective is not None
    assert with_pairs.report.objective is not None
    if with_pairs.report.objective > without_pairs.report.objective * (1 + MIN_PAIR_GAIN):
        return with_pairs
    report = replace(
        without_pairs.report, bound=with_pairs.report.bound, basis=with_pairs.report.basis
    )
    return replace(without_pairs, report=report)


def allocation_violation(snapshot: Snapshot, made: Allocation) -> float:
    """The largest excess of an allocation over a job's time or a type's devices, relative to it."""
    used, time = tally_allocation(made, snapshot)
    devices = float((used / np.maximum(snapshot.capacity, 1.0)).max())
    return max(0.0, devices - 1.0, float(time.max(initial=0.0)) - 1.0)


def scale_rates(snapshot: Snapshot, per_step: Floats) -> Snapshot:
    """The snapshot with all rates multiplied by ``per_step``, (slots,)."""
    if (per_step == 1).all():
        return snapshot
    colocated_rate = None if snapshot.colocated_rate is None else snapshot.colocated_rate * per_step
    return replace(snapshot, rate=snapshot.rate * per_step[:, None], colocated_rate=colocated_rate)


# --- prices and deadlines ----------------------------------------------------------------------------


def prices(snapshot: Snapshot, policy: str) -> Floats:
    """(slots,) $ per device-hour; ConfigError where a type with devices has none."""
    free = np.flatnonzero((snapshot.capacity > 0) & ~(snapshot.price > 0))
    if len(free):
        names = ", ".join(type_name(snapshot, t) for t in free.tolist())
        raise ConfigError(
            f"policy {policy!r}: needs a price above 0 of every type, {names} has none"
        )
    price: Floats = np.where(snapshot.capacity > 0, snapshot.price, 1.0)[
        snapshot.accelerator_of_slot
    ]
    return price


def deadline_rates(snapshot: Snapshot) -> Floats:
    """(jobs,) steps/s with which a job ends at its deadline; 0 = it has none, inf = the deadline has
    passed."""
    dated = np.isfinite(snapshot.deadline_s) & (snapshot.steps_left > 0)
    late = dated & (snapshot.deadline_s <= 0)
    in_time = dated & ~late
    rate = np.where(late, np.inf, 0.0)
    rate[in_time] = snapshot.steps_left[in_time] / snapshot.deadline_s[in_time]
    return rate


def problem_by_need(snapshot: Snapshot, need: Floats, space_sharing: bool) -> ShareProblem:
    """The problem in which jobs of one class and one need, (jobs,) steps/s, are a class."""
    rows = np.column_stack([snapshot.job_class.astype(np.float64), need])
    if not need.any():
        return ShareProblem.of(snapshot, space_sharing=space_sharing)
    _, key = np.unique(rows, axis=0, return_inverse=True)
    return ShareProblem.of(snapshot, key.reshape(-1).astype(np.int64), space_sharing=space_sharing)


def late_jobs(snapshot: Snapshot, made: Allocation, need: Floats) -> tuple[int, ...]:
    """Ids of the jobs that will be late at these shares."""
    late = effective_throughput(made, snapshot) < need * (1 - DEADLINE_TOLERANCE)
    return tuple(snapshot.jobs[late].tolist())
