"""The analytic centre of the best shares, where Gavel's interior-point solver ends."""

from dataclasses import replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import tally_allocation
from fairlead.model.arrays import Floats
from fairlead.model.rates import inverse_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.parametric_level import Requirements
from fairlead.policies.solve.analytic_centre import AnalyticCentreShares, analytic_centre_shares
from fairlead.policies.solve.max_min import MaxMin, analytic_centre_of, solve

DENSE = 150  # jobs up to which the centre is found by a method for programs of any form


def max_min_analytic_centre(
    problem: MaxMin, previous: tuple[bytes, ...] = ()
) -> tuple[Floats, SolveReport]:
    """(jobs, slots) shares at the analytic centre and their report; where it was not found, those of the
    simplex method. previous: the basis of an earlier report, or nothing."""
    return analytic_centre_of(problem) or solve(problem, previous)


def level_analytic_centre(
    snapshot: Snapshot, rate: Floats, space_sharing: bool, demand: Requirements, level: float | None
) -> Allocation | None:
    """The analytic centre of the shares that reach the level, if there is one and it was found."""
    if not level:
        return None
    return analytic_centre_allocation(
        snapshot, rate, space_sharing, inverse_rate(demand.rate(level))
    )


def analytic_centre_allocation(
    snapshot: Snapshot, rate: Floats, space_sharing: bool, worth: Floats
) -> Allocation | None:
    """The analytic centre of the best shares
    (``fairlead.policies.solve.analytic_centre.analytic_centre_shares``), with no report yet; None where it
    was not found. rate: (jobs, slots); worth: (jobs,), 0 = no row."""
    if not space_sharing and len(rate) > DENSE:
        return _analytic_centre_without_pairs(snapshot, rate, worth)
    found = analytic_centre_with_pairs(snapshot, rate, space_sharing, worth)
    return None if found is None else allocation_of_shares(snapshot, found)


def analytic_centre_with_pairs(
    snapshot: Snapshot, rate: Floats, space_sharing: bool, worth: Floats
) -> AnalyticCentreShares | None:
    """The analytic centre of the best shares, with prices
    (``fairlead.policies.solve.analytic_centre.analytic_centre_shares``)."""
    return analytic_centre_shares(
        rate=rate,
        scale=snapshot.job_scale,
        accelerator_of_slot=snapshot.accelerator_of_slot,
        capacity=snapshot.capacity,
        job_type=snapshot.job_type,
        colocated_rate=snapshot.colocated_rate if space_sharing else None,
        worth=worth,
    )


def allocation_of_shares(snapshot: Snapshot, found: AnalyticCentreShares) -> Allocation:
    """The analytic centre as an allocation, with no report yet."""
    pairs = (found.pairs, found.of_pairs) if len(found.pairs) else ()
    made = allocation(snapshot, found.share, SolveReport("optimal"), *pairs)
    used, time = tally_allocation(made, snapshot)
    used /= np.maximum(snapshot.capacity, 1.0)
    over = max(1.0, float(used.max()), float(time.max(initial=0.0)))
    return replace(made, share=made.share / over)


def _analytic_centre_without_pairs(
    snapshot: Snapshot, rate: Floats, worth: Floats
) -> Allocation | None:
    """``analytic_centre_allocation`` of many jobs, without pairs. A job with no worth anywhere gets
    nothing."""
    problem = MaxMin(
        job_class=np.arange(len(rate)),
        rate=rate,
        worth=worth,
        gain=np.ones(len(rate)),
        scale=snapshot.job_scale.astype(np.float64),
        accelerator_of_slot=snapshot.accelerator_of_slot,
        slot_devices=snapshot.slot_devices,
        capacity=snapshot.capacity,
    )
    found = analytic_centre_of(problem)
    return None if found is None else allocation(snapshot, *found)
