"""Rates of jobs as functions of a snapshot: on each type, on the whole cluster, on a job's part of it."""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.snapshot import Snapshot


def first_slot(snapshot: Snapshot) -> Ints:
    """(types,) the first slot type that draws on each accelerator type."""
    out = np.zeros(len(snapshot.capacity), np.int64)
    out[snapshot.accelerator_of_slot[::-1]] = np.arange(len(snapshot.slots))[::-1]
    return out


def rate_by_type(snapshot: Snapshot) -> Floats:
    """(jobs, types) steps/s of each job alone on the first slot type of each accelerator type."""
    return snapshot.solo_rate[:, first_slot(snapshot)]


def proportional_rate(snapshot: Snapshot) -> Floats:
    """(jobs,) steps/s of a job that divides its time over all devices alike: sum_j T_ij N_j / sum_j N_j."""
    total = snapshot.capacity.sum()
    mix = np.zeros(len(snapshot.slots))
    if total > 0:
        mix[first_slot(snapshot)] = snapshot.capacity / total
    out = np.empty(len(snapshot.jobs))
    _mixed(np.require(snapshot.solo_rate, requirements=["C", "W"]), mix, out)
    return out


@kernel("void(f8[:,::1], f8[::1], f8[::1])", allocates=False)
def _mixed(rate: Floats, mix: Floats, out: Floats) -> None:
    """rate @ mix on one core and with the same bits everywhere, which a linear algebra library with
    threads of its own does not promise."""
    for i in range(len(rate)):
        total = 0.0
        for j in range(len(mix)):
            total += rate[i, j] * mix[j]
        out[i] = total


def isolated_rate(snapshot: Snapshot, weighted: bool, rate: Floats | None = None) -> Floats:
    """(jobs,) steps/s of a job that has its part of every type for itself: an n-th, or, if weighted, its
    part of all weights. It uses at most all of its time: sum_j T_ij x_ij with x_ij = part N_j / s_i,
    divided by max(1, sum_j x_ij). rate: (jobs,) mean rate over all devices, None = the snapshot's."""
    n = len(snapshot.jobs)
    part = snapshot.weight / snapshot.weight.sum() if weighted else np.full(n, 1.0 / max(n, 1))
    time = np.minimum(part * snapshot.capacity.sum() / snapshot.job_scale, 1.0)
    return np.asarray((proportional_rate(snapshot) if rate is None else rate) * time)


def inverse_rate(rate: Floats) -> Floats:
    """1 / rate; 0 where there is no rate."""
    return np.divide(1.0, rate, out=np.zeros_like(rate), where=rate > 0)
