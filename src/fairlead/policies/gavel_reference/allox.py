"""AlloX as Gavel's release runs it: jobs that wait are matched with devices that are free, and no others."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.snapshot import Snapshot
from fairlead.policies.allox import AlloX, begin_queues
from fairlead.policies.ranked import best_slot

_ZERO_RATE = 1e-10  # steps/s that the release puts in place of a rate of 0
_MAX_PROBLEM_SIZE = 1 << 16  # jobs times devices: 0.2 s, and more than the release itself can do


@dataclass(frozen=True, kw_only=True, slots=True)
class GavelAlloX(AlloX):
    """``AlloX`` of jobs that wait and devices that are free, so that a job takes what is free for good,
    however slow it is there.

    Ties between equal devices are broken as the release breaks them, whose allocations these are, unless
    jobs times free devices exceed 65,536. The release knows no jobs of several devices; where there is one,
    the plan is that of ``AlloX``.
    """

    def begin(self, snapshot: Snapshot, waiting: Ints, free: Floats, slot: Ints) -> SolveReport:
        """Give slots to the first jobs of the queues; arguments as in ``AlloX``."""
        if (snapshot.job_scale > 1).any():
            return AlloX.begin(self, snapshot, waiting, free, slot)
        if len(waiting) * free.sum() > _MAX_PROBLEM_SIZE:
            return begin_queues(snapshot, np.zeros(0, np.int64), waiting, free, slot)
        first, where = first_in_line(snapshot, waiting, free)
        slot[first] = where
        return SolveReport("optimal")


def first_in_line(snapshot: Snapshot, waiting: Ints, free: Floats) -> tuple[Ints, Ints]:
    """The rows of the jobs that are first in a device's queue, and their slots, by a plan of jobs that wait
    on devices that are free. waiting: rows of jobs; free: (types,) devices."""
    accelerator_index = np.repeat(np.arange(len(free)), free.astype(np.int64))
    if not len(accelerator_index) or not len(waiting):
        none: Ints = np.zeros(0, np.int64)
        return none, none
    best = best_slot(snapshot)[waiting]
    rate = np.take_along_axis(snapshot.solo_rate[waiting], best, axis=1)
    time_s = snapshot.steps_left[waiting][:, None] / np.where(rate > 0, rate, _ZERO_RATE)
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
