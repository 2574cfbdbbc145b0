"""A coarse forecast: the future of a cluster without rounds, in a fraction of a second for 20,000 jobs.

Where a policy divides devices among all jobs, each job runs at the shares that are in force, and as jobs
leave the others get more, up to all of the time (processor sharing). Where it serves one after another,
jobs are put on the devices that are free first, in the order in which they will be served (list scheduling).
So are they under any policy where jobs are short beside the time for which preemption hysteresis leaves them
their devices: once begun, they run to their end. Starts, the grid of rounds and what a solve would decide
anew are left out: that is its error.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.shares_planner import SharesPlanner

# Part of the jobs that may end between two times at which devices are divided anew
MAX_ENDED_FRACTION = 0.02
BALANCING_STEPS = 20  # steps in which jobs are spread over the types that they can run on
# Times as long as it is left alone: shorter jobs run to their end, longer ones take turns
MIN_LENGTH_TO_TIMESHARE = 2.0
FULL_FRACTION = 0.999  # of what is wanted on a type, which is as good as all of it
ORDERS = {  # policies that serve one job after another: by what, and do they choose types by rates?
    "fifo": ("id", False),
    "fifo_aware": ("id", True),
    "fifo_packed": ("id", True),
    "shortest_job_first": ("work", True),
    "srtf": ("work", True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidJobs:
    """Jobs, in order of id, as aligned arrays."""

    job: Ints  # (jobs,) ids
    left: Floats  # (jobs,) steps
    rate: Floats  # (jobs, types) steps/s on each accelerator type; 0 = cannot run there
    scale: Ints  # (jobs,) devices
    weight: Floats  # (jobs,)
    share: Floats  # (jobs, types) part of the time on each type; all 0 = nothing is decided yet
    running_on: Ints  # (jobs,) type, -1 = does not run
    arrive_s: Floats  # (jobs,) seconds from now, 0 = is there
    # (jobs,) seconds that others must be owed more than it, to be given its devices; inf = for ever
    kept_s: Floats

    @property
    def least_s(self) -> Floats:
        """(jobs,) seconds that each takes where it is fastest; inf = can run nowhere."""
        fastest = self.rate.max(axis=1, initial=0.0)
        return np.where(fastest > 0, self.left / np.where(fastest > 0, fastest, 1.0), np.inf)


def fluid_jobs(s: Scheduler) -> FluidJobs:
    """The jobs that take part, as a scheduler has them."""
    jobs, groups = s.data.ledger.jobs, s.data.ledger.groups
    types = len(s.data.capacity)
    rate, share = np.zeros((jobs.n, types)), np.zeros((jobs.n, types))
    running_on = np.full(jobs.n, -1)
    steps = s.data.throughputs.rate[jobs.rate_row]
    for slot, type_ in enumerate(s.data.running.topology.accelerator_of_slot.tolist()):
        rate[:, type_] = np.maximum(rate[:, type_], steps[:, slot])
        for group_member in groups.members.T:
            there = group_member >= 0
            np.add.at(share[:, type_], group_member[there], groups.share[there, slot])
    for group_member in groups.members.T:
        runs = (group_member >= 0) & (groups.running_on >= 0)
        running_on[group_member[runs]] = s.data.running.topology.accelerator_of_slot[
            groups.running_on[runs]
        ]
    capacity = s.data.capacity
    rate[capacity[None, :] < jobs.scale[:, None]] = 0.0
    return FluidJobs(
        job=jobs.id.copy(),
        left=np.maximum(jobs.total - jobs.done, 0.0),
        rate=rate,
        scale=jobs.scale.copy(),
        weight=jobs.weight.copy(),
        share=np.where(rate > 0, share, 0.0),
        running_on=running_on,
        arrive_s=np.zeros(jobs.n),
        kept_s=hysteresis(s) * jobs.restart_s,
    )


def hysteresis(s: Scheduler) -> float:
    """Return how many times what a start costs another job must be owed more than one that runs; 0 =
    nothing."""
    shared = isinstance(s.data.planning.planner, SharesPlanner)
    return s.data.options.settings.preemption_hysteresis if shared else 0.0


def joined(first: FluidJobs, second: FluidJobs) -> FluidJobs:
    """Return the jobs of both."""
    return FluidJobs(
        **{
            name: np.concatenate([getattr(first, name), getattr(second, name)])
            for name in FluidJobs.__dataclass_fields__
        }
    )


def finish_times(
    jobs: FluidJobs, capacity: Floats, policy: str, horizon_s: float, round_left_s: float = 0.0
) -> Floats:
    """(jobs,) seconds from now to the end of each; inf = not within the horizon. capacity: (types,) devices
    that work; policy: name, with options behind a colon; round_left_s: for which those that run keep their
    devices."""
    if not len(jobs.job) or not capacity.sum():
        return np.full(len(jobs.job), np.inf)
    order = ORDERS.get(policy.partition(":")[0])
    if order is None and _run_to_their_end(jobs):
        order = "id", True
    if order is None:
        times = _shared(jobs, capacity, horizon_s)
    else:
        times = _in_order(jobs, capacity, *order, horizon_s)
    undisturbed = _undisturbed_s(jobs)
    stays = undisturbed <= np.maximum(jobs.kept_s, round_left_s)
    times = np.where(stays, np.minimum(times, undisturbed), times)
    return np.where(jobs.left <= 0, np.minimum(times, jobs.arrive_s), times)


def _run_to_their_end(jobs: FluidJobs) -> bool:
    """Return whether most of the work is of jobs that nobody takes the devices of, once they have begun. What
    two jobs are owed grows apart by a second in each second that one runs and the other waits. When that has
    come to ``kept_s``, one of less than twice that length is left alone, for it will be done as soon."""
    least_s = jobs.least_s
    there = least_s < np.inf
    work_s = np.where(there, least_s, 0.0) * jobs.scale
    stays = there & (least_s <= MIN_LENGTH_TO_TIMESHARE * jobs.kept_s)
    return bool(work_s[stays].sum() > work_s.sum() / 2)


def _undisturbed_s(jobs: FluidJobs) -> Floats:
    """(jobs,) seconds to the end of each that runs if nobody takes its devices; inf = does not run."""
    rate = jobs.rate[np.arange(len(jobs.job)), np.maximum(jobs.running_on, 0)]
    runs = (jobs.running_on >= 0) & (rate > 0)
    return np.where(runs, jobs.left / np.where(runs, rate, 1.0), np.inf)


def _shared(jobs: FluidJobs, capacity: Floats, horizon_s: float) -> Floats:
    """Processor sharing."""
    speed, part = _speeds(jobs, capacity)
    finish: Floats = np.full(len(jobs.job), np.inf)
    left, now_s = jobs.left.copy(), 0.0
    able, rate_class = np.unique(jobs.rate > 0, axis=0, return_inverse=True)
    rate_class = rate_class.reshape(-1)
    awaits = np.argsort(jobs.arrive_s, kind="stable")
    come = int(np.searchsorted(jobs.arrive_s[awaits], 0.0, side="right"))
    active = awaits[:come]
    active = active[speed[active] > 0]
    present = int((jobs.arrive_s <= 0).sum() - (len(awaits[:come]) - len(active)))
    devices = float(capacity.sum())
    while present and now_s < horizon_s:
        runs = _scaled_to_capacity(part[active], jobs.scale[active], devices)
        demand: Floats = np.zeros(len(able))
        np.add.at(demand, rate_class[active], runs * jobs.scale[active])
        runs *= _served_fraction(demand, able, capacity)[rate_class[active]]
        pace = speed[active] * runs
        ends = left[active] / np.maximum(pace, 1e-300)
        step_s = horizon_s - now_s
        if len(active):
            batch = min(int(MAX_ENDED_FRACTION * len(active)), len(active) - 1)
            step_s = min(step_s, float(np.partition(ends, batch)[batch]))
        more = min(come + max(int(MAX_ENDED_FRACTION * len(active)), 1), len(awaits)) - 1
        if come < len(awaits):
            step_s = min(step_s, max(float(jobs.arrive_s[awaits[more]]) - now_s, 0.0))
        over = ends <= step_s
        finish[active[over]] = now_s + ends[over]
        present -= int((jobs.arrive_s[active[over]] <= 0).sum())
        left[active] -= pace * step_s
        now_s += step_s
        active = active[~over]
        until = int(np.searchsorted(jobs.arrive_s[awaits], now_s, side="right"))
        new = awaits[come:until]
        active, come = np.concatenate([active, new[speed[new] > 0]]), until
    return finish


def _speeds(jobs: FluidJobs, capacity: Floats) -> tuple[Floats, Floats]:
    """(jobs,) steps/s while it runs, and the part of the time that it runs now, or would by its weight."""
    part = jobs.share.sum(axis=1)
    there = np.where(jobs.rate > 0, capacity, 0.0)
    usual = (jobs.rate * there).sum(axis=1) / np.maximum(there.sum(axis=1), 1e-9)
    speed = np.where(
        part > 1e-6, (jobs.share * jobs.rate).sum(axis=1) / np.maximum(part, 1e-6), usual
    )
    given = part > 1e-6
    fair = jobs.weight * capacity.sum() / max(float(jobs.weight @ jobs.scale), 1e-9)
    if given.any():  # as much as the others have for their weight
        fair = jobs.weight * float(np.median(part[given] / jobs.weight[given]))
    return speed, np.clip(np.where(given, part, fair), 1e-6, 1.0)


def _scaled_to_capacity(part: Floats, scale: Ints, devices: float) -> Floats:
    """(jobs,) parts of the time, all stretched by one factor and cut at 1, so that devices are in use."""
    if float(scale.sum()) <= devices:
        return np.ones(len(part))
    low, high = 0.0, 1.0 / float(part.min())
    for _ in range(40):
        center = (low + high) / 2
        if float(np.minimum(part * center, 1.0) @ scale) > devices:
            high = center
        else:
            low = center
    return np.minimum(part * low, 1.0)


def _served_fraction(demand: Floats, able: Bools, capacity: Floats) -> Floats:
    """Return (job_sets,) the fraction of their demand that jobs get, given the devices of each type.

    A job set is all jobs that can run on the same types. demand: (job_sets,) devices on average; able:
    (job_sets, types) on which they can run; capacity: (types,) devices."""
    weight = able * capacity
    for _ in range(BALANCING_STEPS):
        used_on = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        there = np.minimum(capacity / np.maximum(demand @ used_on, 1e-300), 1.0)
        if (there > FULL_FRACTION).all():
            return np.ones(len(demand))
        weight = weight * there  # who can run elsewhere does so where this type is short
    return np.asarray((used_on * there).sum(axis=1))


def _in_order(
    jobs: FluidJobs, capacity: Floats, order: str, heterogeneity_aware: bool, horizon_s: float
) -> Floats:
    """List scheduling: whoever runs goes on, the others follow. aware: each where it ends first; else where
    devices are free first."""
    free = [[0.0] * int(count) for count in capacity.tolist()]
    fastest = jobs.rate.max(axis=1)
    work = np.where(fastest > 0, jobs.left / np.maximum(fastest, 1e-300), np.inf)
    key = jobs.job.astype(np.float64) if order == "id" else work
    finish: Floats = np.full(len(jobs.job), np.inf)
    for row in np.lexsort((key, jobs.arrive_s, jobs.running_on < 0)).tolist():
        scale, on = int(jobs.scale[row]), int(jobs.running_on[row])
        able = np.flatnonzero(jobs.rate[row] > 0).tolist() if on < 0 else [on]
        best_s, first_s, best = np.inf, np.inf, -1
        for type_ in able:
            devices, rate = free[type_], float(jobs.rate[row, type_])
            if len(devices) < scale or rate <= 0:
                continue
            start_s = devices[0] if scale == 1 else heapq.nsmallest(scale, devices)[-1]
            end_s = max(start_s, float(jobs.arrive_s[row])) + float(jobs.left[row]) / rate
            if (end_s if heterogeneity_aware else start_s) < first_s:
                best_s, best, first_s = end_s, type_, end_s if heterogeneity_aware else start_s
        if best < 0:
            continue
        for _ in range(scale):
            heapq.heappop(free[best])
        for _ in range(scale):
            heapq.heappush(free[best], best_s)
        finish[row] = best_s if best_s <= horizon_s else np.inf
    return finish
