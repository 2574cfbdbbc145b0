"""The level by the interior-point method on jobs, whose steps are linear in their number."""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.interior_point import MaxMinClasses, max_min
from fairlead.policies.solve.level_problem import (
    STEPS,
    LevelJobTypes,
    LevelShares,
    ParametricDemand,
)

_ZERO_SHARE = 1e-8  # share that stands for none
_INTERIOR_GAP = 1e-8  # relative gap that the interior point is asked for; it stalls near 1e-10


def level_by_jobs(
    problem: ParametricDemand, job_types: LevelJobTypes, steps: Floats, floor: float
) -> LevelShares:
    """Newton's method on z, the largest part of all requirements that can be met at once, with one
    max-min problem per step. Where all jobs of a job type have the same requirement, the problem has one
    row per job type, else one per job."""
    row, count = _representatives(problem, job_types, steps)
    there = problem.capacity > 0
    types = (np.cumsum(there) - 1)[problem.accelerator_of_slot]
    usable = there[problem.accelerator_of_slot]
    rate = np.ascontiguousarray(job_types.rate[job_types.of[row]][:, usable])
    scale = problem.scale[row].astype(np.float64)
    age, isolated, left = problem.age[row], problem.isolated[row], steps[row]
    classes = MaxMinClasses(
        worth=rate,
        class_size=count,
        scale=scale,
        accelerator_of_slot=types[usable],
        slot_devices=problem.slot_devices[usable],
        capacity=problem.capacity[there],
    )
    level, low, high, iterations = floor, floor, np.inf, 0
    for _ in range(STEPS):
        left_s = level * isolated - age
        worth = rate * (left_s / left)[:, None]
        inner, weight, price, n = max_min(classes._replace(worth=worth), _INTERIOR_GAP)
        iterations += n
        part = (worth * inner).sum(axis=1)
        z = float(part.min())
        if not age.any():
            level /= z  # the requirements are in proportion to 1 / level: these shares are the best
            break
        if abs(z - 1) <= 10 * _INTERIOR_GAP or (z >= 1 and level <= floor):
            break
        low, high = (low, min(high, level)) if z >= 1 else (max(low, level), high)
        each = weight * count
        rises = float(each @ (part * isolated / left_s)) / float(each.sum())
        level += (1 - z) / rises
        if not low <= level <= high:
            level = (low + high) / 2 if np.isfinite(high) else 2 * low
    inner[(rate == 0) | (inner < _ZERO_SHARE)] = 0.0  # inside, every share is above 0
    of_row = np.zeros((len(row), len(usable)))
    of_row[:, usable] = inner
    share = np.zeros((len(steps), len(usable)))
    if len(row) == np.count_nonzero(steps):
        share[row] = of_row
    else:
        by_job_type = np.zeros((len(job_types.id), len(usable)))
        by_job_type[job_types.of[row]] = of_row
        share = by_job_type[job_types.of]
    full = np.zeros(len(there))
    full[there] = price / float(price @ problem.capacity[there])
    return LevelShares(level=max(level, floor), share=share, price=full, iterations=iterations)


def _representatives(
    problem: ParametricDemand, job_types: LevelJobTypes, steps: Floats
) -> tuple[Ints, Floats]:
    """(rows,) positions of the jobs that enter the program, and (rows,) how many jobs each represents."""
    representative = np.empty(len(job_types.id), np.int64)
    representative[job_types.of] = np.arange(len(steps))
    alike = representative[job_types.of]
    for requirement in (steps, problem.age, problem.isolated):
        if not np.array_equal(requirement, requirement[alike]):
            row = np.flatnonzero(steps)
            return row, np.ones(len(row))
    row = representative[steps[representative] > 0]
    return row, job_types.count[job_types.of[row]]
