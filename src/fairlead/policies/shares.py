"""What the policies have in common: proportional rates, and shares of jobs as an allocation."""

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.snapshot import Snapshot


def first_slot(snapshot: Snapshot) -> Ints:
    """(types,) the first slot type that draws on each accelerator type."""
    out = np.zeros(len(snapshot.capacity), np.int64)
    out[snapshot.slot_type[::-1]] = np.arange(len(snapshot.slots))[::-1]
    return out


def rate_by_type(snapshot: Snapshot) -> Floats:
    """(jobs, types) steps/s of each job alone on the first slot type of each accelerator type."""
    return snapshot.solo_rate[:, first_slot(snapshot)]


def proportional_rate(snapshot: Snapshot) -> Floats:
    """(jobs,) steps/s of a job that divides its time over all devices alike: sum_j T_ij N_j / sum_j N_j."""
    total = snapshot.capacity.sum()
    if not total > 0:
        return np.zeros(len(snapshot.jobs))
    return np.asarray(rate_by_type(snapshot) @ (snapshot.capacity / total))


def by_slot(snapshot: Snapshot, share_by_type: Floats) -> Floats:
    """(jobs, slots) from (jobs, types): on the first slot type of each accelerator type."""
    share = np.zeros((len(share_by_type), len(snapshot.slots)))
    share[:, first_slot(snapshot)] = share_by_type
    return share


def allocation(
    snapshot: Snapshot,
    share: Floats,
    report: SolveReport,
    pairs: Ints | None = None,
    pair_share: Floats | None = None,
) -> Allocation:
    """An allocation from (jobs, slots) shares of jobs alone and, where there are any, (pairs, slots)
    shares of pairs. pairs: (pairs, 2) positions of jobs in the snapshot, ascending, without repeats."""
    if pairs is None or pair_share is None:
        return Allocation(snapshot.jobs[:, None].copy(), share, report)
    n = len(snapshot.jobs)
    units = np.full((n + len(pairs), 2), -1, np.int64)
    units[:n, 0] = snapshot.jobs
    units[n:] = snapshot.jobs[pairs]
    return Allocation(units, np.concatenate([share, pair_share]), report)


def unit_ids(snapshot: Snapshot) -> Ints:
    """(units, width) job ids, -1 behind the last; a copy."""
    ids = snapshot.jobs[snapshot.member]
    ids[snapshot.member < 0] = -1
    return ids


def violation(snapshot: Snapshot, share: Floats) -> float:
    """Largest excess of (jobs, slots) shares over a job's time or a type's devices, relative to it."""
    used = np.bincount(
        snapshot.slot_type, snapshot.job_scale @ share, len(snapshot.capacity)
    ) / np.maximum(snapshot.capacity, 1.0)
    return max(0.0, float(used.max()) - 1.0, float(share.sum(axis=1).max(initial=0.0)) - 1.0)
