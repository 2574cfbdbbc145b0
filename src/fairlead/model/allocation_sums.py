"""Sums over allocations, in one pass over the units: there may be millions.

The results' memory comes from numpy, which asks for large pages; the loops have no branches that depend
on a share, for half of the shares are 0 and nothing could foretell which.
"""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel


def tally(
    jobs: Ints, units: Ints, share: Floats, scale: Ints, accelerator_of_slot: Ints, types: int
) -> tuple[Floats, Floats]:
    """(types,) devices shared out, and (jobs,) time of each job.

    jobs: (jobs,) ids, ascending, with all of those in units; units: (units, width) ids, -1 behind the
    last; scale: (jobs,).
    """
    used, time = np.zeros(types), np.zeros(len(jobs))
    _tally(jobs, units, share, scale, accelerator_of_slot, used, time)
    return used, time


def throughput(
    jobs: Ints, units: Ints, share: Floats, rate: Floats, kind: Ints, colocated_rate: Floats
) -> Floats:
    """(jobs,) steps/s: rate times share, alone and in pairs. rate: (jobs, slots) alone; beside: (kinds,
    kinds, slots) of the first beside the second."""
    total = np.zeros(len(jobs))
    _throughput(jobs, units, share, rate, kind, colocated_rate, total)
    return total


@kernel("b1(i8[::1])")
def _without_gaps(jobs: Ints) -> bool:
    """Do ids follow one another, so that positions need no search?"""
    n = len(jobs)
    return n > 0 and jobs[n - 1] - jobs[0] == n - 1


@kernel("i8(i8, i8, i8[::1], b1)", inline="always")
def _position(job: int, unit: int, jobs: Ints, without_gaps: bool) -> int:
    """Where a job stands in jobs; -1 for -1. Units usually begin with the jobs alone."""
    if unit < len(jobs) and jobs[unit] == job:
        return unit
    if job < 0:
        return -1
    return int(job - jobs[0] if without_gaps else np.searchsorted(jobs, job))


@kernel("void(i8[::1], i8[:,::1], f8[:,::1], i8[::1], i8[::1], f8[::1], f8[::1])")
def _tally(
    jobs: Ints,
    units: Ints,
    share: Floats,
    scale: Ints,
    accelerator_of_slot: Ints,
    used: Floats,
    time: Floats,
) -> None:
    without_gaps = _without_gaps(jobs)
    by_slot = np.zeros(share.shape[1])
    for u in range(len(units)):
        a = _position(units[u, 0], u, jobs, without_gaps)
        busy = 0.0
        devices = float(scale[a])
        for t in range(share.shape[1]):
            busy += share[u, t]
            by_slot[t] += devices * share[u, t]
        time[a] += busy
        for k in range(1, units.shape[1]):
            b = _position(units[u, k], u, jobs, without_gaps)
            if b >= 0:
                time[b] += busy
    for t in range(len(by_slot)):
        used[accelerator_of_slot[t]] += by_slot[t]


@kernel("void(i8[::1], i8[:,::1], f8[:,::1], f8[:,::1], i8[::1], f8[:,:,::1], f8[::1])")
def _throughput(
    jobs: Ints,
    units: Ints,
    share: Floats,
    rate: Floats,
    kind: Ints,
    colocated_rate: Floats,
    total: Floats,
) -> None:
    without_gaps = _without_gaps(jobs)
    for u in range(len(units)):
        a = _position(units[u, 0], u, jobs, without_gaps)
        b = _position(units[u, 1], u, jobs, without_gaps) if units.shape[1] > 1 else -1
        mine = 0.0
        yours = 0.0
        if b < 0:
            for t in range(share.shape[1]):
                mine += rate[a, t] * share[u, t]
        else:
            for t in range(share.shape[1]):
                if share[u, t] != 0:  # a pair is mostly on one slot type
                    mine += colocated_rate[kind[a], kind[b], t] * share[u, t]
                    yours += colocated_rate[kind[b], kind[a], t] * share[u, t]
            total[b] += yours
        total[a] += mine
