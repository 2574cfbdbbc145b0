"""Sums over allocations, in one pass over the job groups: there may be millions.

The results' memory comes from numpy, which asks for large pages; the loops have no branches that depend
on a share, for half of the shares are 0, in no pattern that a branch predictor finds.
"""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.pair_rates import PairTable, colocated_rate_of


def tally(jobs: Ints, groups: Ints, share: Floats, scale: Ints) -> tuple[Floats, Floats]:
    """Return (slots,) the sum of shares times scale, and (jobs,) fraction of time that each job runs.

    jobs: (jobs,) ids, ascending, with all of those in job groups; groups: (groups, width) ids, -1 after the
    last; scale: (jobs,).
    """
    used, time = np.zeros(share.shape[1]), np.zeros(len(jobs))
    _tally(jobs, groups, share, scale, used, time)
    return used, time


def throughput(
    jobs: Ints,
    groups: Ints,
    share: Floats,
    rate: Floats,
    job_type: Ints,
    pairs: PairTable,
) -> Floats:
    """Return (jobs,) steps/s: rate times share, alone and in pairs. rate: (jobs, slots) steps/s alone."""
    total = np.zeros(len(jobs))
    _throughput(jobs, groups, share, rate, job_type, pairs, total)
    return total


def keys_of(jobs: Ints, groups: Ints) -> tuple[Ints, int]:
    """Return (groups,) a number for each set of jobs, below len(jobs) for single jobs; and the first row that
    is not a group of different jobs among ``jobs``, -1 = all are. Ids may be any numbers."""
    keys: Ints = np.zeros(len(groups), np.int64)
    return keys, int(_keys(jobs, groups, keys))


@kernel("i8(i8[::1], i8[:,::1], i8[::1])", allocates=False)
def _keys(jobs: Ints, groups: Ints, keys: Ints) -> int:
    n = len(jobs)
    without_gaps = _without_gaps(jobs)
    for u in range(len(groups)):
        a = _position(groups[u, 0], u, jobs, without_gaps)
        if a < 0 or a >= n or jobs[a] != groups[u, 0]:
            return u
        keys[u] = a
        if groups.shape[1] == 1 or groups[u, 1] == -1:
            continue
        b = _position(groups[u, 1], u, jobs, without_gaps)
        if b < 0 or b >= n or jobs[b] != groups[u, 1] or a == b:
            return u
        keys[u] = n + min(a, b) * n + max(a, b)
    return -1


@kernel("b1(i8[::1])", allocates=False)
def _without_gaps(jobs: Ints) -> bool:
    """Return whether ids are consecutive, so that positions need no search."""
    n = len(jobs)
    return n > 0 and jobs[n - 1] - jobs[0] == n - 1


@kernel("i8(i8, i8, i8[::1], b1)", inline="always")
def _position(job: int, group: int, jobs: Ints, without_gaps: bool) -> int:
    """Return the position of a job in jobs, -1 for -1. Job groups usually begin with the single jobs, so row
    ``group`` is tried first."""
    if group < len(jobs) and jobs[group] == job:
        return group
    if job < 0:
        return -1
    return int(job - jobs[0] if without_gaps else np.searchsorted(jobs, job))


@kernel("void(i8[::1], i8[:,::1], f8[:,::1], i8[::1], f8[::1], f8[::1])", allocates=False)
def _tally(
    jobs: Ints, groups: Ints, share: Floats, scale: Ints, by_slot: Floats, time: Floats
) -> None:
    without_gaps = _without_gaps(jobs)
    for u in range(len(groups)):
        a = _position(groups[u, 0], u, jobs, without_gaps)
        busy = 0.0
        devices = float(scale[a])
        for t in range(share.shape[1]):
            busy += share[u, t]
            by_slot[t] += devices * share[u, t]
        time[a] += busy
        for k in range(1, groups.shape[1]):
            b = _position(groups[u, k], u, jobs, without_gaps)
            if b >= 0:
                time[b] += busy


@kernel(
    "void(i8[::1], i8[:,::1], f8[:,::1], f8[:,::1], i8[::1], PairTable, f8[::1])", allocates=False
)
def _throughput(
    jobs: Ints,
    groups: Ints,
    share: Floats,
    rate: Floats,
    job_type: Ints,
    pairs: PairTable,
    total: Floats,
) -> None:
    without_gaps = _without_gaps(jobs)
    for u in range(len(groups)):
        a = _position(groups[u, 0], u, jobs, without_gaps)
        b = _position(groups[u, 1], u, jobs, without_gaps) if groups.shape[1] > 1 else -1
        first = 0.0
        second = 0.0
        if b < 0:
            for t in range(share.shape[1]):
                first += rate[a, t] * share[u, t]
        else:
            for t in range(share.shape[1]):
                if share[u, t] != 0:  # a pair is mostly on one slot type
                    first += colocated_rate_of(pairs, job_type[a], job_type[b], t) * share[u, t]
                    second += colocated_rate_of(pairs, job_type[b], job_type[a], t) * share[u, t]
            total[b] += second
        total[a] += first
