"""What an allocation amounts to for the jobs and devices of a snapshot, and whether it is possible."""

import numpy as np

from fairlead.errors import AllocationError
from fairlead.model.allocation import Allocation
from fairlead.model.allocation_sums import tally, throughput
from fairlead.model.argument_checks import check_arguments, is_a
from fairlead.model.arrays import Floats, Ints
from fairlead.model.snapshot import Snapshot


def check_allocation(
    allocation: Allocation, snapshot: Snapshot, tolerance: float = 1e-6
) -> Allocation:
    """Return the allocation itself. Raises AllocationError, with the numbers, where the time of a job is
    above 1 or more devices of a type are shared out than there are."""
    _check_types("check_allocation", allocation, snapshot)
    share = allocation.share
    least = float(share.min(initial=0.0))
    if not least >= -tolerance:  # nan included; with inf a time below is inf
        raise AllocationError(f"a share is {least}, outside [0, 1]")
    used, time = tally_allocation(allocation, snapshot)
    over = np.flatnonzero(used > snapshot.capacity * (1 + tolerance) + tolerance)
    if over.size:
        t = int(over[0])
        raise AllocationError(
            f"{type_name(snapshot, t)}: {used[t]:.3f} devices shared out of {snapshot.capacity[t]:.0f}"
        )
    late = np.flatnonzero(time > 1 + tolerance)
    if late.size:
        j = int(late[0])
        raise AllocationError(f"job {snapshot.jobs[j]}: shares add up to {time[j]:.6f}, above 1")
    return allocation


def _check_types(call: str, allocation: Allocation, snapshot: Snapshot) -> None:
    check_arguments(call, {"allocation": allocation, "snapshot": snapshot}, _TYPES)


_TYPES = {
    "allocation": (is_a(Allocation), "an Allocation"),
    "snapshot": (is_a(Snapshot), "a Snapshot"),
}


def tally_allocation(allocation: Allocation, snapshot: Snapshot) -> tuple[Floats, Floats]:
    """Return (types,) devices shared out, and (jobs,) fraction of time over all job groups and slot types."""
    groups = np.ascontiguousarray(allocation.job_groups)
    share = np.ascontiguousarray(allocation.share)
    scale, types = snapshot.job_scale, len(snapshot.capacity)
    return tally(snapshot.jobs, groups, share, scale, snapshot.accelerator_of_slot, types)


def devices_used(allocation: Allocation, snapshot: Snapshot) -> Floats:
    """Return (types,) devices shared out."""
    return tally_allocation(allocation, snapshot)[0]


def job_times(allocation: Allocation, snapshot: Snapshot) -> Floats:
    """Return (jobs,) fraction of time over all job groups and slot types."""
    return tally_allocation(allocation, snapshot)[1]


def effective_throughput(allocation: Allocation, snapshot: Snapshot) -> Floats:
    """Return (jobs,) effective throughput in steps/s: rate times share, alone and in pairs."""
    _check_types("effective_throughput", allocation, snapshot)
    colocated_rate = (
        np.zeros((0, 0, 0)) if snapshot.colocated_rate is None else snapshot.colocated_rate
    )
    return throughput(
        snapshot.jobs,
        np.ascontiguousarray(allocation.job_groups),
        np.ascontiguousarray(allocation.share),
        np.ascontiguousarray(snapshot.solo_rate),
        snapshot.job_type,
        np.ascontiguousarray(colocated_rate),
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
