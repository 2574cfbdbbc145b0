"""Rates of jobs as functions of a snapshot: on each type, on the whole cluster, on a job's part of it."""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.snapshot import Snapshot

_HALVINGS = 60  # of an interval that holds a price, to find it to the last bits


def first_slot(snapshot: Snapshot) -> Ints:
    """(types,) the first slot type that draws on each accelerator type."""
    out = np.zeros(len(snapshot.capacity), np.int64)
    out[snapshot.accelerator_of_slot[::-1]] = np.arange(len(snapshot.slots))[::-1]
    return out


def rate_by_type(snapshot: Snapshot) -> Floats:
    """(jobs, types) steps/s of each job alone on the first slot type of each accelerator type."""
    return snapshot.solo_rate[:, first_slot(snapshot)]


def proportional_rate(snapshot: Snapshot) -> Floats:
    """(jobs,) steps/s of a job that divides its time over all devices alike: sum_j T_ij N_j / sum_j N_j.
    Where slot types are configurations, what a device of its part of the cluster brings it at best."""
    if snapshot.configuration_devices is not None:
        part = snapshot.weight / snapshot.weight.sum()
        return np.asarray(own_part_rate(snapshot, part) / (part * snapshot.capacity.sum()))
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
    divided by max(1, sum_j x_ij). rate: (jobs,) mean rate over all devices, None = the snapshot's. Where slot
    types are configurations, the best use of that part."""
    n = len(snapshot.jobs)
    part = snapshot.weight / snapshot.weight.sum() if weighted else np.full(n, 1.0 / max(n, 1))
    if rate is None and snapshot.configuration_devices is not None:
        return own_part_rate(snapshot, part)
    time = np.minimum(part * snapshot.capacity.sum() / snapshot.job_scale, 1.0)
    return np.asarray((proportional_rate(snapshot) if rate is None else rate) * time)


def own_part_rate(snapshot: Snapshot, part: Floats) -> Floats:
    """(jobs,) steps/s of a job that makes the best of its part of every accelerator type, on one at a time:
    max sum_c T_ic x_c   s.t.   sum_c x_c <= 1,   sum_{c of type k} d_c x_c <= part_i N_k,   x >= 0,
    for configurations c of d_c devices. part: (jobs,) of the cluster, the same for jobs of one class."""
    _, first, of = np.unique(snapshot.job_class, return_index=True, return_inverse=True)
    own = part[first, None] * snapshot.capacity
    rate = np.ascontiguousarray(snapshot.solo_rate[first])
    found = np.empty(len(first))
    _best_use(rate, snapshot.slot_devices, snapshot.accelerator_of_slot, own, found)
    return found[of]


@kernel("void(f8[:,::1], f8[::1], i8[::1], f8[:,::1], f8[::1])")
def _best_use(
    rate: Floats, slot_devices: Floats, accelerator_of_slot: Ints, own: Floats, out: Floats
) -> None:
    """Fill in the largest rates of ``own_part_rate`` by their duals: the least of
    l + sum_k own_k max(0, max_{c of type k} (T_c - l) / d_c) over all prices l >= 0 of a job's time, which is
    convex in l and falls as long as the devices bought take more time than there is. own: (rows, types)
    devices."""
    types = own.shape[1]
    gain, time = np.empty(types), np.empty(types)
    for i in range(len(rate)):
        low, high = 0.0, rate[i].max()
        for step in range(_HALVINGS + 1):
            # 0 first: where all devices take no more time than there is, time is free
            price = 0.5 * (low + high) if step else 0.0
            gain[:] = 0.0
            time[:] = 0.0
            for j in range(rate.shape[1]):
                k = accelerator_of_slot[j]
                worth = (rate[i, j] - price) / slot_devices[j]
                if worth > gain[k]:
                    gain[k], time[k] = worth, 1.0 / slot_devices[j]
            total = spent = 0.0
            for k in range(types):
                total += own[i, k] * gain[k]
                spent += own[i, k] * time[k]
            out[i] = price + total if step == 0 else min(out[i], price + total)
            if step == 0 and spent <= 1.0:
                break
            if spent > 1.0:
                low = price
            else:
                high = price


def inverse_rate(rate: Floats) -> Floats:
    """1 / rate; 0 where there is no rate."""
    return np.divide(1.0, rate, out=np.zeros_like(rate), where=rate > 0)
