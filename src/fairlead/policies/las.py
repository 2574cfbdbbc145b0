"""Least attained service, as max-min fairness over shares: agnostic and heterogeneity-aware."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, effective_throughput, job_times
from fairlead.model.arrays import Floats
from fairlead.model.plan import BasePolicy
from fairlead.model.rates import inverse_rate, proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import (
    allocation,
    allocation_by_class,
    by_slot,
    violation,
)
from fairlead.policies.migration_penalty import OBJECTIVE_TOLERANCE, least_migration
from fairlead.policies.parametric_level import MIN_PAIR_GAIN, PAIR_PENALTY
from fairlead.policies.solve.job_classes import group
from fairlead.policies.solve.level_problem import ParametricDemand
from fairlead.policies.solve.max_min import MaxMin, solve
from fairlead.policies.solve.parametric_level import MAX_SIMPLEX_RATES, solve_level
from fairlead.policies.solve.share_problem import ShareProblem
from fairlead.policies.solve.space_sharing import LevelSolution, max_min

# rates of classes beyond which the simplex method takes too long, where classes are large
MAX_EXACT_RATES = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Las(BasePolicy):
    """max_x min_i  s_i / (w_i p_i) * sum_j T_ij x_ij   s.t.  time of each job, devices of each type.

    T_ij rate of job i on slot type j, p_i = sum_j T_ij N_j / sum_j N_j its rate under proportional
    shares, s_i its devices, w_i its weight, N_j devices of type j. Source: Gavel (OSDI'20), LAS;
    its release's max_min_fairness_perf. Among the optima, the one with the largest total of
    sum_j T_ij x_ij / p_i. A job that can run nowhere gets nothing and is left out of the minimum.
    """

    name: str = "las_aware"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified; a linear program over classes of jobs
        (``fairlead.policies.solve.max_min``), or, where hardly two jobs are alike, an interior-point method
        over jobs (``fairlead.policies.solve.parametric_level``)."""
        problem = las_problem(snapshot)
        if exceeds_simplex_limit(problem):
            return las_by_jobs(snapshot)
        share, report = solve(problem, basis_of(snapshot))
        made = allocation(snapshot, share, report)
        if report.objective:
            least = report.objective * (1 - OBJECTIVE_TOLERANCE) * inverse_rate(problem.worth)
            made = least_migration(snapshot, made, least)
        return check_allocation(made, snapshot)

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The smallest normalised throughput."""
        return lowest_level(effective_throughput(made, snapshot), _worth(snapshot))


@dataclass(frozen=True, kw_only=True, slots=True)
class AgnosticLas:
    """max_x min_i  s_i / w_i * sum_j x_ij   s.t.  time of each job, devices of each type.

    Las with every rate 1: accelerator types are taken for equal, one where a job cannot run included.
    Source: Gavel's max_min_fairness. Only the time y_i = sum_j x_ij matters, so there is a closed form:
    y_i = min(1, z w_i / s_i) with z as large as the devices allow, spread over the types as the devices
    are. That is the optimum with the largest second-lowest level, then third-lowest, and so on; its
    objective is min(z, min_i s_i / w_i), bounded by sum N / sum w and by every s_i / w_i.
    """

    name: str = "las"
    heterogeneity_aware: bool = False
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return self._closed_form(snapshot)

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The smallest time, times devices over weight."""
        return lowest_level(job_times(made, snapshot), snapshot.job_scale / snapshot.weight)

    def _closed_form(self, snapshot: Snapshot) -> Allocation:
        capacity, total = snapshot.capacity, float(snapshot.capacity.sum())
        worth = snapshot.job_scale / snapshot.weight
        classes = group(snapshot.job_class)
        devices = classes.count * snapshot.job_scale[classes.representative]
        time = max_min_times(worth[classes.representative], devices, total)[classes.of]
        mix = capacity / total if total > 0 else capacity
        share = by_slot(snapshot, np.outer(time, mix))
        report = SolveReport(
            "closed-form",
            objective=float((worth * share.sum(axis=1)).min()),
            bound=min(total / float(snapshot.weight.sum()), float(worth.min())),
            violation=violation(snapshot, share),
        )
        return check_allocation(allocation(snapshot, share, report), snapshot)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceSharingLas:
    """max_x min_i  s_i / (w_i p_i) * sum_{c with i} sum_j T^i_cj x_cj   s.t.  time, devices of each type.

    Las over job groups c of one job or a pair of equal scale factor, T^i_cj the rate of i in c; p_i from the
    rates alone. Pairs are used only where they raise the level, and then as little as the largest total
    allows: packing where there is room makes jobs slower for nothing. Source: Gavel (OSDI'20), space
    sharing; its release's max_min_fairness_packed.
    """

    name: str = "las_packed"
    heterogeneity_aware: bool = True
    space_sharing: bool = True
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified (``fairlead.policies.solve.space_sharing``)."""
        problem = ShareProblem.of(snapshot, space_sharing=True)
        gain = inverse_rate(proportional_rate(snapshot))
        worth = gain * snapshot.job_scale / snapshot.weight
        first, basis = problem.classes.representative, basis_of(snapshot)
        found = max_min(problem, worth[first], gain[first], PAIR_PENALTY, basis)
        without_pairs = max_min(
            replace(problem, colocated_rate=None), worth[first], gain[first], 0.0
        )
        if found.level <= without_pairs.level * (1 + MIN_PAIR_GAIN):
            made = Las().allocate(snapshot)
            return replace(made, report=replace(made.report, bound=found.bound, basis=found.basis))
        made = space_sharing_shares(snapshot, problem, found, worth)
        if made.report.objective:
            least = made.report.objective * (1 - OBJECTIVE_TOLERANCE) * inverse_rate(worth)
            made = least_migration(snapshot, made, least, space_sharing=True)
        return check_allocation(made, snapshot)

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The smallest normalised throughput."""
        return lowest_level(effective_throughput(made, snapshot), _worth(snapshot))


def basis_of(snapshot: Snapshot) -> tuple[bytes, ...]:
    """The basis of the report in force, or nothing."""
    return () if snapshot.previous is None else snapshot.previous.report.basis


def las_problem(snapshot: Snapshot) -> MaxMin:
    """The program of ``Las``."""
    gain = inverse_rate(proportional_rate(snapshot))
    scale = snapshot.job_scale.astype(np.float64)
    return MaxMin(
        job_class=snapshot.job_class,
        rate=snapshot.solo_rate,
        worth=gain * scale / snapshot.weight,
        gain=gain,
        scale=scale,
        accelerator_of_slot=snapshot.accelerator_of_slot,
        slot_devices=snapshot.slot_devices,
        capacity=snapshot.capacity,
    )


def exceeds_simplex_limit(problem: MaxMin) -> bool:
    """Return whether the simplex method would take too long, or hardly two jobs are alike."""
    distinct_rates = 2 * len(problem.classes.id) > len(problem.job_class)
    most = MAX_SIMPLEX_RATES if distinct_rates else MAX_EXACT_RATES
    return bool(np.count_nonzero(problem.class_worth) > most)


def las_by_jobs(snapshot: Snapshot) -> Allocation:
    """The shares of ``Las`` as the least time theta = 1 / level in which each job meets its need."""
    scale = snapshot.job_scale.astype(np.float64)
    need = snapshot.weight * proportional_rate(snapshot) / scale
    problem = ParametricDemand(
        job_type=snapshot.job_class,
        rate=snapshot.solo_rate,
        scale=snapshot.job_scale,
        accelerator_of_slot=snapshot.accelerator_of_slot,
        slot_devices=snapshot.slot_devices,
        capacity=snapshot.capacity,
        steps=need,
        age=np.zeros_like(need),
        isolated=np.ones_like(need),
    )
    share, report = solve_level(problem)
    assert report.objective is not None
    assert report.bound is not None
    if report.objective > 0:
        report = replace(report, objective=1 / report.objective, bound=1 / report.bound)
    return check_allocation(allocation(snapshot, share, report), snapshot)


def space_sharing_shares(
    snapshot: Snapshot, problem: ShareProblem, found: LevelSolution, worth: Floats
) -> Allocation:
    """The shares of jobs and pairs that were found, with their report. worth: (jobs,)."""
    made = allocation_by_class(snapshot, problem, found.solution, SolveReport("optimal"))
    report = SolveReport(
        "optimal",
        objective=lowest_level(effective_throughput(made, snapshot), worth),
        bound=found.bound,
        iterations=found.iterations,
        warm=found.solution.warm,
        basis=found.basis,
    )
    return replace(made, report=report)


def _worth(snapshot: Snapshot) -> Floats:
    """(jobs,) s_i / (w_i p_i), 0 for a job that can run nowhere."""
    return inverse_rate(proportional_rate(snapshot)) * snapshot.job_scale / snapshot.weight


def lowest_level(amount: Floats, worth: Floats) -> float:
    """The smallest amount times worth among the jobs with worth > 0; 0 where there is none."""
    return float((amount * worth).min(where=worth > 0, initial=np.inf)) if worth.any() else 0.0


def max_min_times(worth: Floats, devices: Floats, supply: float) -> Floats:
    """(classes,) shares of time y = min(1, z / worth), with the largest z for which sum(devices * y) <=
    supply.

    worth: what a share of 1 is worth to a job of the class; devices: of all jobs of the class.
    """
    if devices.sum() <= supply:
        return np.ones_like(worth)
    order = np.argsort(
        worth, kind="stable"
    )  # the lower its worth, the earlier a class has all its time
    full = np.cumsum(devices[order])  # devices of the classes that are full when the next one fills
    rising = np.cumsum((devices / worth)[order][::-1])[
        ::-1
    ]  # devices per level of those that are not
    before = np.append(0.0, full[:-1])
    filled = int(np.count_nonzero((before + worth[order] * rising)[:-1] <= supply))
    level = (supply - before[filled]) / rising[filled]
    return np.asarray(np.minimum(1.0, level / worth))
