"""Shared by policies that serve jobs in an order, each job on one accelerator type."""

from collections.abc import Callable

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.snapshot import Snapshot


def time_left(snapshot: Snapshot) -> Floats:
    """(jobs, slots) seconds that the steps left take alone; inf where the job cannot run."""
    rate = snapshot.solo_rate
    left_s = np.full(rate.shape, np.inf)
    np.divide(snapshot.steps_left[:, None], rate, out=left_s, where=rate > 0)
    return left_s


def best_slot(snapshot: Snapshot) -> Ints:
    """(jobs, types) the slot type on which each job runs fastest, of those that draw on each type."""
    best = np.zeros((len(snapshot.jobs), len(snapshot.capacity)), np.int64)
    for accelerator_index in range(len(snapshot.capacity)):
        slots = np.flatnonzero(snapshot.accelerator_of_slot == accelerator_index)
        best[:, accelerator_index] = slots[snapshot.solo_rate[:, slots].argmax(axis=1)]
    return best


def allocated_slot(snapshot: Snapshot) -> Ints:
    """(jobs,) slot where each job has the largest share of the allocation in force; -1 if it has none.

    Shares on slots where the rate is 0 do not count: another policy, in force before, may have given them.
    """
    share = (
        snapshot.share[snapshot.group_members[:, 1] < 0]
        if snapshot.space_sharing
        else snapshot.share
    )
    share = np.where(snapshot.solo_rate > 0, share, 0.0)
    return np.where(share.max(axis=1, initial=0.0) > 0, share.argmax(axis=1), -1)


def allocated_slot_that_fits(snapshot: Snapshot) -> Ints:
    """(jobs,) ``allocated_slot`` of each job for which there still are devices; -1 for the others. If devices
    were lost, the jobs with the smallest ids keep theirs."""
    previous = allocated_slot(snapshot)
    free = snapshot.capacity.copy()
    slot = np.full(len(previous), -1, np.int64)
    for job in np.flatnonzero(previous >= 0).tolist():
        accelerator_index = snapshot.accelerator_of_slot[previous[job]]
        if snapshot.job_scale[job] <= free[accelerator_index]:
            slot[job] = previous[job]
            free[accelerator_index] -= snapshot.job_scale[job]
    return slot


def assign_in_order(
    snapshot: Snapshot, order: Ints, slot: Ints, choose: Callable[[int, Bools, Floats], int]
) -> None:
    """Give the jobs in this order, those with a slot left out, a slot each, in place; a job that fits
    nowhere is skipped.

    choose: the slot for a job, from the (slots,) that could take it and the (types,) devices free.
    """
    scale, rate = snapshot.job_scale, snapshot.solo_rate
    runs = np.flatnonzero(slot >= 0)
    accelerator_index = snapshot.accelerator_of_slot[slot[runs]]
    free = snapshot.capacity - np.bincount(accelerator_index, scale[runs], len(snapshot.capacity))
    waiting = order[slot[order] < 0]
    smallest = scale[waiting].min(initial=1 << 62)
    for job in waiting.tolist():
        if free.max() < smallest:
            return
        fits = (free[snapshot.accelerator_of_slot] >= scale[job]) & (rate[job] > 0)
        if fits.any():
            slot[job] = choose(job, fits, free)
            free[snapshot.accelerator_of_slot[slot[job]]] -= scale[job]
