"""The level that shares reach by the jobs' own rates, and a bound on every level from prices of devices.

The bound is the tangent of what all requirements cost (``fairlead.policies.solve.parametric_level``).
"""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.policies.solve.breakpoints import breakpoint_cost, segment
from fairlead.policies.solve.level_problem import LevelJobTypes, LevelShares, ParametricDemand


@kernel(
    "Tuple((f8, f8))(i8[::1], f8[::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8)", allocates=False
)
def _cost_of_all(
    job_type: Ints,
    steps: Floats,
    age: Floats,
    isolated: Floats,
    breakpoints: Floats,
    cost: Floats,
    level: float,
) -> tuple[float, float]:
    """The cost of all requirements at a level, and its derivative by the level."""
    total = 0.0
    slope = 0.0
    for i in range(len(job_type)):
        if steps[i] <= 0:
            continue
        c = job_type[i]
        left_s = level * isolated[i] - age[i]
        rate = min(steps[i] / left_s, breakpoints[c, -1])
        k = segment(rate, breakpoints[c])
        low = breakpoints[c, k - 1]
        below = cost[c, k - 1]
        steep = (cost[c, k] - below) / (breakpoints[c, k] - low)
        total += below + steep * (rate - low)
        slope -= steep * rate / left_s * isolated[i]
    return total, slope


@kernel(
    "Tuple((f8, f8))(f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[::1], i8[::1], i8[::1], f8[::1], f8[::1])",
)
def _level_and_use(
    share: Floats,
    rate: Floats,
    steps: Floats,
    age: Floats,
    isolated: Floats,
    scale: Ints,
    accelerator_of_slot: Ints,
    slot_devices: Floats,
    capacity: Floats,
) -> tuple[float, float]:
    """The level that shares reach, and the largest part in use of a job's time or of a type's devices."""
    used = np.zeros(len(capacity))
    busiest = 0.0
    level = 0.0
    for i in range(len(share)):
        time = 0.0
        got = 0.0
        for j in range(share.shape[1]):
            time += share[i, j]
            got += share[i, j] * rate[i, j]
            used[accelerator_of_slot[j]] += scale[i] * share[i, j] * slot_devices[j]
        busiest = max(busiest, time)
        if steps[i] > 0:
            level = max(level, (age[i] + steps[i] / got) / isolated[i]) if got > 0 else np.inf
    for k in range(len(capacity)):
        if capacity[k] > 0:
            busiest = max(busiest, used[k] / capacity[k])
        elif used[k] > 0:
            busiest = np.inf
    return level, busiest


def certified_level(
    problem: ParametricDemand, job_types: LevelJobTypes, steps: Floats, found: LevelShares
) -> tuple[Floats, float, float, float]:
    """Return (jobs, slots) shares scaled down to be feasible, their level, a bound that no shares can beat,
    and by how much the given shares were infeasible, relative to the right-hand side."""
    requirements = (steps, problem.age, problem.isolated)
    devices = (
        problem.scale,
        problem.accelerator_of_slot,
        problem.slot_devices,
        problem.capacity,
    )
    share, rate = found.share, np.ascontiguousarray(problem.rate)
    given = (rate, *requirements, *devices)
    level, use = _level_and_use(share, *given)
    if use > 1:
        share = share / use
        level, use = _level_and_use(share, *given)
    cost = breakpoint_cost(
        job_types.rate,
        job_types.scale,
        job_types.breakpoints,
        problem.slot_cost(found.price),
    )
    total, slope = _cost_of_all(
        job_types.of, *requirements, job_types.breakpoints, cost, found.level
    )
    budget = float(found.price @ problem.capacity)
    bound = found.level + (total - budget) / -slope if slope < 0 else 0.0
    return share, level, bound, max(0.0, use - 1.0)
