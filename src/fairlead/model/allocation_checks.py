"""Checks of whether an allocation is feasible for a snapshot, and what it gives to each job and type."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import AllocationError
from fairlead.model.allocation import Allocation
from fairlead.model.allocation_sums import keys_of, tally, throughput
from fairlead.model.argument_checks import check_arguments, instance_of
from fairlead.model.array_checks import as_numbers
from fairlead.model.arrays import Floats, Ints
from fairlead.model.pair_rates import pair_table
from fairlead.model.snapshot import Snapshot

S = TypeVar("S", bound=np.generic)


def check_allocation(
    allocation: Allocation, snapshot: Snapshot, tolerance: float = 1e-6
) -> Allocation:
    """Return the allocation itself. Raises AllocationError, with the numbers, where it does not match the
    snapshot (shapes, jobs, pairs), has two rows for the same jobs or a share outside [0, 1], where the time
    of a job is above 1, or more devices of a type are shared out than there are."""
    _check_types("check_allocation", allocation, snapshot)
    groups, share, keys = _checked(allocation, snapshot)
    _check_distinct(groups, keys)
    _check_shares(groups, share, snapshot, tolerance)
    used, time = _tally(groups, share, snapshot)
    over = used > snapshot.capacity * (1 + tolerance) + tolerance
    if over.any():
        t = int(over.argmax())
        raise AllocationError(
            f"{type_name(snapshot, t)}: {used[t]:.3f} devices shared out of {snapshot.capacity[t]:.0f}"
        )
    overfull = time > 1 + tolerance
    if overfull.any():
        j = int(overfull.argmax())
        raise AllocationError(f"job {snapshot.jobs[j]}: shares add up to {time[j]:.6f}, above 1")
    return allocation


def typed_allocation(allocation: Allocation, snapshot: Snapshot) -> Allocation:
    """Return the allocation with 64-bit arrays, which the mechanism takes. Raises AllocationError where its
    shapes, jobs or pairs do not match the snapshot."""
    groups, share, _ = _checked(allocation, snapshot)
    return replace(allocation, job_groups=groups, share=share)


def _check_types(call: str, allocation: Allocation, snapshot: Snapshot) -> None:
    check_arguments(call, {"allocation": allocation, "snapshot": snapshot}, _TYPES)


_TYPES = {
    "allocation": (instance_of(Allocation), "an Allocation"),
    "snapshot": (instance_of(Snapshot), "a Snapshot"),
}


def _checked(allocation: Allocation, snapshot: Snapshot) -> tuple[Ints, Floats, Ints]:
    """Return (groups, width) job ids, (groups, slots) shares and (groups,) keys of the sets of jobs: arrays
    that may be given to compiled loops, which check no bounds. Raises AllocationError."""
    groups = _as_kernel_input(
        as_numbers("job_groups", allocation.job_groups, "iu").astype(np.int64, copy=False)
    )
    share = _as_kernel_input(as_numbers("share", allocation.share).astype(np.float64, copy=False))
    if groups.ndim != 2 or not 1 <= groups.shape[1] <= 2:
        raise AllocationError(
            f"job_groups must have shape (groups, 1) or (groups, 2), got {groups.shape}"
        )
    expected = len(groups), len(snapshot.slots)
    if share.shape != expected:
        raise AllocationError(
            f"share must have shape {expected}, a column per slot type, got {share.shape}"
        )
    keys, wrong = keys_of(_as_kernel_input(snapshot.jobs), groups)
    if wrong >= 0:
        raise AllocationError(_fault_of_group(groups[wrong], snapshot))
    return groups, share, keys


def _fault_of_group(row: Ints, snapshot: Snapshot) -> str:
    ids = row.tolist()
    known = np.isin(row, snapshot.jobs).tolist()
    if not all(known):
        return f"job {ids[known.index(False)]} is not in the snapshot"
    return f"job {ids[0]} cannot be a pair with itself"


def _check_distinct(groups: Ints, keys: Ints) -> None:
    if (keys[1:] > keys[:-1]).all():
        return
    order = np.argsort(keys, kind="stable")
    repeated = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    if len(repeated):
        raise AllocationError(f"{_named(groups[order[repeated[0]]])} has two rows of shares")


def _check_shares(groups: Ints, share: Floats, snapshot: Snapshot, tolerance: float) -> None:
    least, most = -tolerance, 1 + tolerance
    if share.min(initial=0.0) >= least and share.max(initial=0.0) <= most:  # nan is neither
        return
    u, t = np.argwhere(~((share >= least) & (share <= most)))[0].tolist()
    raise AllocationError(
        f"{_named(groups[u])}: the share on {snapshot.slots[t].accelerator} must be from 0 to 1, "
        f"got {float(share[u, t])}"
    )


def _named(row: Ints) -> str:
    jobs = [str(job) for job in row.tolist() if job >= 0]
    return f"job {jobs[0]}" if len(jobs) == 1 else f"the pair of jobs {' and '.join(jobs)}"


def _tally(groups: Ints, share: Floats, snapshot: Snapshot) -> tuple[Floats, Floats]:
    jobs, scale = _as_kernel_input(snapshot.jobs), _as_kernel_input(snapshot.job_scale)
    by_slot, time = tally(jobs, groups, share, scale)
    devices = by_slot * snapshot.slot_devices
    used = np.zeros(len(snapshot.capacity))
    np.add.at(used, snapshot.accelerator_of_slot, devices)
    return used, time


def _as_kernel_input(array: NDArray[S]) -> NDArray[S]:
    """Return the array as compiled loops take it, C-contiguous and writable; a copy where it is not."""
    return array if array.flags.carray else np.require(array, requirements=["C", "W"])


def tally_allocation(allocation: Allocation, snapshot: Snapshot) -> tuple[Floats, Floats]:
    """Return (types,) devices shared out, and (jobs,) fraction of time over all job groups and slot types."""
    groups, share, _ = _checked(allocation, snapshot)
    return _tally(groups, share, snapshot)


def devices_used(allocation: Allocation, snapshot: Snapshot) -> Floats:
    """Return (types,) devices shared out."""
    return tally_allocation(allocation, snapshot)[0]


def job_times(allocation: Allocation, snapshot: Snapshot) -> Floats:
    """Return (jobs,) fraction of time over all job groups and slot types."""
    return tally_allocation(allocation, snapshot)[1]


def effective_throughput(allocation: Allocation, snapshot: Snapshot) -> Floats:
    """Return (jobs,) effective throughput in steps/s: rate times share, alone and in pairs. Raises
    AllocationError where its shapes, jobs or pairs do not match the snapshot."""
    _check_types("effective_throughput", allocation, snapshot)
    groups, share, _ = _checked(allocation, snapshot)
    if snapshot.colocated_rate is None and groups.shape[1] > 1:
        pair = np.flatnonzero(groups[:, 1] >= 0)
        if len(pair):
            raise AllocationError(
                f"{_named(groups[pair[0]])}: the snapshot has no rates of pairs (colocated_rate)"
            )
    return throughput(
        _as_kernel_input(snapshot.jobs),
        groups,
        share,
        _as_kernel_input(snapshot.solo_rate),
        _as_kernel_input(snapshot.job_type),
        pair_table(snapshot.colocated_rate),
    )


def group_members(allocation: Allocation, snapshot: Snapshot) -> Ints:
    """Return (groups, width) positions of the jobs in the snapshot, -1 = none."""
    position = np.searchsorted(snapshot.jobs, allocation.job_groups)
    position[allocation.job_groups < 0] = -1
    return position


def type_name(snapshot: Snapshot, index: int) -> str:
    """Return the name of the accelerator type of a column of (types,) arrays."""
    slot = int(np.flatnonzero(snapshot.accelerator_of_slot == index)[0])
    return snapshot.slots[slot].accelerator
