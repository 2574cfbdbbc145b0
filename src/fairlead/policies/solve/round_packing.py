"""From counts to rounds: which job runs in which round, and on which accelerator type.

A schedule is (jobs, rounds): the place of the accelerator type, or -1 where the job does not run.
"""

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.jit import kernel


def pack_rounds(counts: Ints, scale: Ints, devices: Ints, rounds: int) -> tuple[Ints, Ints]:
    """A schedule (jobs, rounds) with these counts, and the counts that found no place.

    counts, and those without a place: (jobs, types); scale: (jobs,); devices: (types,). Large jobs come
    first, among them those on several types, then those with most rounds; each takes the rounds with most
    free devices (on one type and with equal sizes that is the Gale-Ryser construction, which never fails
    where a schedule exists).
    """
    several = (counts > 0).sum(axis=1) > 1
    order = np.lexsort((-counts.sum(axis=1), ~several, -scale))
    order = order[counts[order].sum(axis=1) > 0]
    return _pack(np.ascontiguousarray(counts), scale, devices, order, rounds)


@kernel("Tuple((i8[:,::1], i8[:,::1]))(i8[:,::1], i8[::1], i8[::1], i8[::1], i8)")
def _pack(counts: Ints, scale: Ints, devices: Ints, order: Ints, rounds: int) -> tuple[Ints, Ints]:
    types = len(devices)
    schedule = np.full((len(scale), rounds), -1)
    left = counts.copy()
    free = np.empty((types, rounds), np.int64)
    for k in range(types):
        free[k] = devices[k]
    for job in order:
        for k in range(types):
            while left[job, k] > 0:
                best = -1
                for at in range(rounds):
                    if schedule[job, at] < 0 and (best < 0 or free[k, at] > free[k, best]):
                        best = at
                if best < 0 or free[k, best] < scale[job]:
                    break
                schedule[job, best] = k
                free[k, best] -= scale[job]
                left[job, k] -= 1
    return schedule, left
