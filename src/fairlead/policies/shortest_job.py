"""Shortest job first, and shortest remaining time first: for the least mean completion time where lengths are
known."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.ranked import (
    allocated_slot,
    allocated_slot_that_fits,
    assign_in_order,
    time_left,
)


@dataclass(frozen=True, slots=True)
class ShortestJobFirst:
    """x_ij = 1 for the type j with the largest T_ij among those with s_i devices left, shortest job first.

    A job's length is n_i / max_j T_ij, its steps at submission at its fastest rate, whatever it has done
    since; a job that runs keeps its type until it is done. One that fits nowhere is skipped; ties go to
    the lower id. Source: Gavel (OSDI'20), section 4.2, as its recursion: the finish time of the shortest
    job is least on the fastest type that is free; the same holds for the next one on what is left. Not in
    its release.
    """

    name: str = "shortest_job_first"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        slot = allocated_slot_that_fits(snapshot)
        length = snapshot.total_steps / np.maximum(_fastest_rate(snapshot), 1e-300)
        order = np.argsort(length, kind="stable")
        assign_in_order(
            snapshot, order, slot, lambda job, fits, _: _fastest_slot(snapshot.solo_rate[job], fits)
        )
        return _all_or_nothing(snapshot, slot)


@dataclass(frozen=True, slots=True)
class ShortestRemainingTimeFirst:
    """x_ij = 1 for the type j with the largest T_ij among those with s_i devices left, least left first.

    What is left of a job is r_i / max_j T_ij, its steps left at its fastest rate. A job gives way to
    shorter ones at any solve; it leaves its type for a faster one if it is done earlier so, its restart
    included. One that fits nowhere is skipped; ties go to the lower id. Jobs that run only get shorter
    than those that wait, so between arrivals and departures the order that matters stays. Source:
    Schrage (1968), which is optimal on one machine; a baseline of Tiresias (NSDI'19).
    """

    name: str = "srtf"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        left, previous = time_left(snapshot), allocated_slot(snapshot)

        def choose(job: int, fits: Bools, _: Floats) -> int:
            best, here = _fastest_slot(snapshot.solo_rate[job], fits), int(previous[job])
            stays = here >= 0 and fits[here]
            moving = left[job, best] + snapshot.restart_s[job]
            return here if stays and left[job, here] <= moving else best

        slot = np.full(len(previous), -1, np.int64)
        assign_in_order(snapshot, np.argsort(left.min(axis=1), kind="stable"), slot, choose)
        return _all_or_nothing(snapshot, slot)


def _fastest_rate(snapshot: Snapshot) -> Floats:
    """(jobs,) steps/s on the fastest slot type."""
    return np.asarray(snapshot.solo_rate.max(axis=1))


def _fastest_slot(rate: Floats, fits: Bools) -> int:
    """The slot with the largest of (slots,) rates among those that fit, the first of equal ones."""
    return int(np.where(fits, rate, -1.0).argmax())


def _all_or_nothing(snapshot: Snapshot, slot: Ints) -> Allocation:
    """All of the time on a job's slot, -1 = none."""
    share = np.zeros((len(slot), len(snapshot.slots)))
    runs = np.flatnonzero(slot >= 0)
    share[runs, slot[runs]] = 1.0
    return check_allocation(allocation(snapshot, share, SolveReport("closed-form")), snapshot)
