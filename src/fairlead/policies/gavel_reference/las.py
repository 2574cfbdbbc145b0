"""Least attained service as Gavel's release answers: the analytic centre of the optima."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, effective_throughput
from fairlead.model.arrays import Floats
from fairlead.model.rates import inverse_rate, proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.gavel_reference.analytic_centre import (
    allocation_of_shares,
    analytic_centre_with_pairs,
    max_min_analytic_centre,
)
from fairlead.policies.las import (
    AgnosticLas,
    Las,
    SpaceSharingLas,
    basis_of,
    exceeds_simplex_limit,
    las_by_jobs,
    las_problem,
    lowest_level,
    space_sharing_shares,
)
from fairlead.policies.solve.max_min import MaxMin
from fairlead.policies.solve.share_problem import ShareProblem
from fairlead.policies.solve.space_sharing import max_min, max_min_bound


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedLas(Las):
    """``Las`` at the analytic centre of the optima, where the release's interior-point solver ends."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        problem = las_problem(snapshot)
        if exceeds_simplex_limit(problem):
            return las_by_jobs(snapshot)
        share, report = max_min_analytic_centre(problem, basis_of(snapshot))
        return check_allocation(allocation(snapshot, share, report), snapshot)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedAgnosticLas(AgnosticLas):
    """``AgnosticLas`` at the analytic centre of the optima."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        ones = np.ones(len(snapshot.jobs))
        problem = MaxMin(
            job_class=snapshot.job_class,
            rate=np.ones((len(ones), len(snapshot.slots))),
            worth=snapshot.job_scale / snapshot.weight,
            gain=ones,
            scale=snapshot.job_scale.astype(np.float64),
            accelerator_of_slot=snapshot.accelerator_of_slot,
            slot_devices=snapshot.slot_devices,
            capacity=snapshot.capacity,
        )
        share, report = max_min_analytic_centre(problem)
        return check_allocation(allocation(snapshot, share, report), snapshot)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedSpaceSharingLas(SpaceSharingLas):
    """``SpaceSharingLas`` at the analytic centre of the optima, with pairs wherever the program has them."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        problem = ShareProblem.of(snapshot, space_sharing=True)
        gain = inverse_rate(proportional_rate(snapshot))
        worth = gain * snapshot.job_scale / snapshot.weight
        made = _las_analytic_centre(snapshot, problem, worth)
        if made is None:
            first = problem.classes.representative
            found = max_min(problem, worth[first], gain[first], 0.0, basis_of(snapshot))
            made = space_sharing_shares(snapshot, problem, found, worth)
        return check_allocation(made, snapshot)


def _las_analytic_centre(
    snapshot: Snapshot, problem: ShareProblem, worth: Floats
) -> Allocation | None:
    """The analytic centre of the best shares of jobs alone and in pairs; None where it was not found."""
    found = analytic_centre_with_pairs(snapshot, snapshot.solo_rate, True, worth)
    if found is None:
        return None
    made, first = allocation_of_shares(snapshot, found), problem.classes.representative
    bound = max_min_bound(
        problem, worth[first], found.value[first], found.time_price[first], found.device_price
    )
    objective = lowest_level(effective_throughput(made, snapshot), worth)
    return replace(made, report=SolveReport("optimal", objective, bound))
