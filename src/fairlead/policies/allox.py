"""AlloX: the matching of jobs with queues of devices that minimises the average completion time."""

from dataclasses import dataclass

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.ranked import best_slot, kept, time_left
from fairlead.policies.solve.assignment import assign

_HARDLY = 1e-10  # steps/s that Gavel's release puts in place of a rate of 0
_SMALL = 1 << 16  # jobs times devices: 0.2 s, and more than the release itself can do


@dataclass(frozen=True, kw_only=True, slots=True)
class AlloX:
    """min_m sum_i (1 + s_i (k_i - 1)) r_i / T_ij  over matchings m of jobs i with (type j, position k).

    k counts from the end of the queue of a device, so with s_i = 1 the cost is the sum of completion
    times. r_i steps left, T_ij rate of job i on slot type j, s_i its devices. A job that has begun keeps
    its type until it is done; of the others the oldest part alpha is planned, at least as many as devices
    are free. On each type those that are shortest there begin, as many as fit; one that does not fit holds
    up those behind it. Source: AlloX (Le et al., EuroSys'20); how the programme is solved, and why devices
    of a type may be taken as one: ``fairlead.policies.solve.assignment``. The bound is that of the
    linear programme;
    jobs of several devices make it a relaxation, single ones reach it.

    All jobs and all devices are part of the plan, so a job may wait for a busy type where it is fast. Jobs
    that run count like those that wait, as if they could still give way on their type: with devices held
    back until they are free instead, which takes a node for each, the mean completion time of four of
    Gavel's runs changed by less than 1 %.
    If ``as_released``, only jobs that wait are, and only devices that are free, so that a job takes what is
    free for good, however slow it is there. Ties between equal devices are then broken as the release
    breaks them, whose allocations these are, unless jobs times free devices exceed 65,536. The release
    knows no jobs of several devices; where there is one, both forms plan alike.
    """

    alpha: float = 1.0
    as_released: bool = False
    name: str = "allox"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True

    @classmethod
    def of(cls, alpha: str | None, as_released: bool = False) -> "AlloX":
        """From alpha as text; None or "" = 1."""
        try:
            part = float(alpha or 1.0)
        except ValueError:
            part = -1.0
        if not 0 <= part <= 1:
            raise ConfigError(f"allox: ALPHA must be a number from 0 to 1, got {alpha!r}")
        return cls(alpha=part, as_released=as_released)

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares: 1 for the jobs that run, 0 for those that wait."""
        slot = kept(snapshot)
        free = snapshot.capacity - _used(snapshot, slot)
        waiting = np.flatnonzero(slot < 0)
        waiting = waiting[np.argsort(-snapshot.age_s[waiting], kind="stable")]
        waiting = waiting[: max(int(self.alpha * len(waiting)), int(free.sum()))]
        if not self.as_released or (snapshot.job_scale > 1).any():
            report = _begin(snapshot, np.flatnonzero(slot >= 0), waiting, free, slot)
        elif len(waiting) * free.sum() > _SMALL:
            report = _begin(snapshot, np.zeros(0, np.int64), waiting, free, slot)
        else:
            report = SolveReport("optimal")
            first, where = first_in_line(snapshot, waiting, free)
            slot[first] = where
        share = np.zeros((len(slot), len(snapshot.slots)))
        runs = np.flatnonzero(slot >= 0)
        share[runs, slot[runs]] = 1.0
        return allocation(snapshot, share, report).check(snapshot)


def _begin(snapshot: Snapshot, runs: Ints, waiting: Ints, free: Floats, slot: Ints) -> SolveReport:
    """Plan these jobs that run and those that wait, on free devices and those of the former, and let the
    first of the queues begin; slot: in place."""
    jobs = np.append(runs, waiting)
    best = best_slot(snapshot)[jobs]
    scale, accelerator_index = snapshot.job_scale[jobs], snapshot.accelerator_of_slot[slot[runs]]
    devices = free + np.bincount(accelerator_index, scale[: len(runs)], len(free))
    time_s = np.take_along_axis(time_left(snapshot)[jobs], best, axis=1)
    time_s[scale[:, None] > devices] = np.inf
    time_s[: len(runs)][accelerator_index[:, None] != np.arange(len(free))] = np.inf
    plan = assign(time_s, scale, devices.astype(np.int64))
    for t in range(len(free)):
        queue = np.flatnonzero(plan.type[len(runs) :] == t) + len(runs)
        queue = queue[np.argsort(time_s[queue, t], kind="stable")]
        fits = np.cumsum(scale[queue]) <= free[t]
        slot[jobs[queue[fits]]] = best[queue[fits], t]
    status = "optimal" if (scale == 1).all() else "rounded"
    return SolveReport(status, plan.cost, plan.bound, iterations=plan.iterations)


def first_in_line(snapshot: Snapshot, waiting: Ints, free: Floats) -> tuple[Ints, Ints]:
    """Plan jobs that wait on devices that are free: the first of each device's queue, and their slots."""
    accelerator_index = np.repeat(np.arange(len(free)), free.astype(np.int64))
    if not len(accelerator_index) or not len(waiting):
        none: Ints = np.zeros(0, np.int64)
        return none, none
    best = best_slot(snapshot)[waiting]
    rate = np.take_along_axis(snapshot.solo_rate[waiting], best, axis=1)
    time_s = snapshot.steps_left[waiting][:, None] / np.where(rate > 0, rate, _HARDLY)
    device, k = _device_and_position(time_s[:, accelerator_index], snapshot.age_s[waiting])
    order = np.lexsort((-k, device))
    first = order[np.append(True, device[order][1:] != device[order][:-1])]
    return waiting[first], best[first, accelerator_index[device[first]]]


def _device_and_position(time_s: Floats, age_s: Floats) -> tuple[Ints, Ints]:
    """(jobs,) devices and positions, from 0 on, of a cheapest matching: of those that cost the same, the
    one that the release finds. time_s: (jobs, devices).

    The release hands all n positions of every device to scipy's method. That method chooses a column only
    when those of the same device and lower position, which cost the job less, are taken; a column that is
    never chosen does not change its course. So positions are added until the last ones stay free.
    """
    jobs, devices = time_s.shape
    depth = -(-jobs // devices) + 1
    while True:
        depth = min(depth, jobs)
        cost = np.concatenate([k * time_s + age_s[:, None] for k in range(1, depth + 1)], axis=1)
        from scipy.optimize import linear_sum_assignment  # a second of CPU time to import

        _, column = linear_sum_assignment(cost)
        position = column // devices
        if depth == jobs or position.max() < depth - 1:
            return column % devices, position
        depth *= 2


def _used(snapshot: Snapshot, slot: Ints) -> Floats:
    """(types,) devices of the jobs that have a slot."""
    runs = np.flatnonzero(slot >= 0)
    accelerator_index, scale = snapshot.accelerator_of_slot[slot[runs]], snapshot.job_scale[runs]
    return np.bincount(accelerator_index, scale, len(snapshot.capacity)).astype(np.float64)
