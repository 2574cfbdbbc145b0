"""The order of a window's rounds: who runs early.

    minimise  sum_j weight_j * (mean index of the rounds in which j runs)

with the rounds per job and type, and the capacity of every round, kept (Zheng et al., "Shockwave",
NSDI 2023, section 6.3, solves it as a mixed-integer programme).

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
from fairlead.policies.solve.negative_cycles import turn

SWEEPS = 50  # of both moves; rarely more than five gain anything
FEW_SWEEPS = 8  # where turns are few, for each sweep leaves some to the next
TURNS = 1000  # of a load, in a sweep
FEWEST = 4  # turns, however large the problem
WORK = 150_000_000  # looks at a job in a round that all turns of a load may take


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
    reach, _ = exchange_range(sizes)
    kinds = class_of.reshape(-1).astype(np.int64)
    turns = max(WORK // (len(grid) ** 2 * len(active)), FEWEST)
    sweeps = SWEEPS if turns >= TURNS else FEW_SWEEPS
    _sweep(grid, worth, size, kinds, sizes, devices, reach, sweeps, min(turns, TURNS))
    ranked = np.full(schedule.shape, -1)
    ranked[active] = grid.T
    return ranked


def mean_round(schedule: Ints, weight: Floats) -> float:
    """sum_j weight_j * mean index of j's rounds: what ``order_rounds`` minimises."""
    runs = schedule >= 0
    total = (runs * np.arange(schedule.shape[1])).sum(axis=1)
    return float((weight * total / np.maximum(runs.sum(axis=1), 1)).sum())


def _heaviest_first(grid: Ints, worth: Floats) -> Ints:
    """Whole rounds, by what they are worth; they are alike in all else."""
    return np.ascontiguousarray(grid[np.argsort(-((grid >= 0) @ worth), kind="stable")])


@kernel("b1(i8[:,::1], i8, i8, i8, f8[::1], i8[::1], i8[::1], i8[::1], i8, i8)")
def _deal(
    grid: Ints,
    early: int,
    late: int,
    kind: int,
    worth: Floats,
    size: Ints,
    class_of: Ints,
    sizes: Ints,
    devices: int,
    reach: int,
) -> bool:
    """Deal out anew, on one type, the jobs that run in one of two rounds only; did that gain anything?

    grid: (rounds, jobs), jobs by falling worth per device.
    """
    jobs = grid.shape[1]
    movable = np.empty(jobs, np.int64)
    n, room, room_late, weight, held = 0, devices, devices, 0, 0.0
    for job in range(jobs):
        a, b = grid[early, job], grid[late, job]
        if (a == kind and b == -1) or (a == -1 and b == kind):
            movable[n] = job
            n += 1
            weight += size[job]
            if a == kind:
                held += worth[job]
        else:
            if a == kind:
                room -= size[job]
            if b == kind:
                room_late -= size[job]
    if n == 0:
        return False
    value, kinds = np.empty(n), np.empty(n, np.int64)
    for i in range(n):
        value[i], kinds[i] = worth[movable[i]], class_of[movable[i]]
    taken = choose(value, kinds, sizes, weight - room_late, room, reach)
    gained, weight_early = 0.0, 0
    for i in range(n):
        if taken[i]:
            gained += worth[movable[i]]
            weight_early += size[movable[i]]
    if gained <= held * (1 + 1e-12) or weight_early > room or weight - weight_early > room_late:
        return False
    for i in range(n):
        grid[early, movable[i]] = kind if taken[i] else -1
        grid[late, movable[i]] = -1 if taken[i] else kind
    return True


@kernel("i8(i8[:,::1], f8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8, i8, i8)")
def _sweep(
    grid: Ints,
    worth: Floats,
    size: Ints,
    class_of: Ints,
    sizes: Ints,
    devices: Ints,
    reach: int,
    sweeps: int,
    turns: int,
) -> int:
    """Both moves, on every type, until neither gains anything; returns the sweeps."""
    rounds = len(grid)
    for sweep in range(sweeps):
        gained = False
        for kind in range(len(devices)):
            for apart in range(1, rounds):
                for early in range(rounds - apart):
                    gained |= _deal(
                        grid,
                        early,
                        early + apart,
                        kind,
                        worth,
                        size,
                        class_of,
                        sizes,
                        devices[kind],
                        reach,
                    )
        if sweep > 0 and not gained:
            return sweep
        gained = False
        for kind in range(len(devices)):
            for c in range(len(sizes)):
                gained |= turn(
                    grid, kind, devices[kind], worth, size, class_of, sizes[: c + 1], turns
                )
        if not gained:
            return sweep
    return sweeps
