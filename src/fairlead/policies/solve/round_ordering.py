"""The order of the rounds of a planning horizon: which jobs run early.

    minimise  sum_j weight_j * (mean index of the rounds in which j runs)

with the rounds per job and type, and the capacity of every round, kept (Zheng et al., "Shockwave",
NSDI 2023, section 6.3, solves it as a mixed-integer program).

Two moves, each made as long as it gains. Of two rounds, the jobs that run in exactly one of them are
dealt out anew: a knapsack, solved exactly. And jobs move from round to round in a circle, or along a path
that ends where devices are free, such that every round keeps its load: a negative cycle among the
rounds. Where all jobs have one size, the latter alone reaches the optimum (it is the cycle canceling of
a minimum-cost flow). Large problems get fewer circles, for each takes longer there and is worth less.
"""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.policies.solve.knapsack import choose, exchange_range
from fairlead.policies.solve.negative_cycles import RoundJobs, cancel_cycles

SWEEPS = 50  # of both moves; rarely more than five gain anything
SWEEPS_WITH_FEW_TURNS = 8  # where turns are few: each sweep leaves some to the next
MAX_TURNS = 1000  # of a load, in a sweep
MIN_TURNS = 4  # turns, however large the problem
MAX_JOB_VISITS = 150_000_000  # visits of a job in a round by all turns of a load together


def order_rounds(schedule: Ints, scale: Ints, devices: Ints, weight: Floats) -> Ints:
    """The schedule with its rounds filled anew: (jobs, rounds) places of types, -1 = does not run.

    scale: (jobs,); devices: (types,); weight: (jobs,) >= 0.
    """
    runs = (schedule >= 0).sum(axis=1)
    active = np.flatnonzero(runs > 0)
    if not len(active):
        return schedule
    worth = weight[active] / runs[active]  # of running one round earlier
    active = active[np.argsort(-worth / scale[active], kind="stable")]
    worth, size = weight[active] / runs[active], scale[active]
    sizes, class_of = np.unique(size, return_inverse=True)
    grid = _heaviest_first(np.ascontiguousarray(schedule[active].T), worth)
    max_carry, _ = exchange_range(sizes)
    turns = max(MAX_JOB_VISITS // (len(grid) ** 2 * len(active)), MIN_TURNS)
    sweeps = SWEEPS if turns >= MAX_TURNS else SWEEPS_WITH_FEW_TURNS
    jobs = RoundJobs(
        grid=grid,
        worth=worth,
        size=size,
        class_of=class_of.reshape(-1).astype(np.int64),
        sizes=sizes,
    )
    _sweep(jobs, devices, max_carry, sweeps, min(turns, MAX_TURNS))
    ranked = np.full(schedule.shape, -1)
    ranked[active] = grid.T
    return ranked


def mean_round(schedule: Ints, weight: Floats) -> float:
    """sum_j weight_j * mean index of j's rounds: what ``order_rounds`` minimises."""
    runs = schedule >= 0
    total = (runs * np.arange(schedule.shape[1])).sum(axis=1)
    return float((weight * total / np.maximum(runs.sum(axis=1), 1)).sum())


def _heaviest_first(grid: Ints, worth: Floats) -> Ints:
    """The rounds of a grid in order of the worth of their jobs, largest first."""
    return np.ascontiguousarray(grid[np.argsort(-((grid >= 0) @ worth), kind="stable")])


@kernel("b1(RoundJobs, UniTuple(i8, 2), i8, i8, i8)")
def _deal(
    jobs: RoundJobs, pair: tuple[int, int], accelerator: int, devices: int, max_carry: int
) -> bool:
    """Deal out anew, on one type of so many devices, the jobs that run in one of two rounds only, an early
    and a late one; max_carry: of ``exchange_range``. Returns whether that gained anything."""
    grid, worth, size = jobs.grid, jobs.worth, jobs.size
    early, late = pair
    n_jobs = grid.shape[1]
    movable = np.empty(n_jobs, np.int64)
    n, free, free_late, weight, runs_early = 0, devices, devices, 0, 0.0
    for job in range(n_jobs):
        a, b = grid[early, job], grid[late, job]
        if (a == accelerator and b == -1) or (a == -1 and b == accelerator):
            movable[n] = job
            n += 1
            weight += size[job]
            if a == accelerator:
                runs_early += worth[job]
        else:
            if a == accelerator:
                free -= size[job]
            if b == accelerator:
                free_late -= size[job]
    if n == 0:
        return False
    value, class_of = np.empty(n), np.empty(n, np.int64)
    for i in range(n):
        value[i], class_of[i] = worth[movable[i]], jobs.class_of[movable[i]]
    taken = choose(value, class_of, jobs.sizes, weight - free_late, free, max_carry)
    gained, weight_early = 0.0, 0
    for i in range(n):
        if taken[i]:
            gained += worth[movable[i]]
            weight_early += size[movable[i]]
    fits = weight_early <= free and weight - weight_early <= free_late
    if gained <= runs_early * (1 + 1e-12) or not fits:
        return False
    for i in range(n):
        grid[early, movable[i]] = accelerator if taken[i] else -1
        grid[late, movable[i]] = -1 if taken[i] else accelerator
    return True


@kernel("i8(RoundJobs, i8[::1], i8, i8, i8)", allocates=False)
def _sweep(jobs: RoundJobs, devices: Ints, max_carry: int, sweeps: int, turns: int) -> int:
    """Make both moves, on every type, until neither gains anything. devices: (types,). Returns the number of
    sweeps."""
    rounds, sizes = len(jobs.grid), jobs.sizes
    for sweep in range(sweeps):
        gained = False
        for accelerator in range(len(devices)):
            for distance in range(1, rounds):
                for early in range(rounds - distance):
                    pair = (early, early + distance)
                    gained |= _deal(jobs, pair, accelerator, devices[accelerator], max_carry)
        if sweep > 0 and not gained:
            return sweep
        gained = False
        for accelerator in range(len(devices)):
            for c in range(len(sizes)):
                some = RoundJobs(jobs.grid, jobs.worth, jobs.size, jobs.class_of, sizes[: c + 1])
                gained |= cancel_cycles(some, accelerator, devices[accelerator], turns)
        if not gained:
            return sweep
    return sweeps
