"""One level for all jobs, each with a requirement of its own: makespan and finish-time fairness.

    level* = min theta   s.t.   sum_j T_ij x_ij >= steps_i / (theta isolated_i - age_i)   each job i: rate
                                sum_j x_ij <= 1                                          each job i: time
                                sum_i s_i sum_{j of type k} x_ij <= N_k      each accelerator type k: devices
                                x >= 0

With isolated = 1 and age = 0, theta is the makespan. Jobs have as many requirements as there are jobs;
three steps make the size of the linear programs independent of that.

Newton on the level. For a theta, let lambda be the least factor on all capacities that meets every
requirement: a linear program. lambda is convex and falls with theta, so Newton's method from below
(theta at which each job alone could just be in time) rises monotonically to lambda = 1, in 4 to 6 steps.

Breakpoints. At prices p of the types, the cheapest way to give a job a rate r within its time is convex and
piecewise linear in r, with breakpoints only at the job's own rates. A job that needs r between two of them
costs what its two neighbours cost, weighted by how near it is. So the jobs of a job type count as jobs that
need exactly one of the job type's own rates, with fractional multiplicities: the sums of the weights. The
answer of those goes back to the jobs by the same weights.

Certificate, from all jobs. The requirement is convex in theta and its cost is convex in the requirement,
so the total cost C at any prices p lies above its tangent: no theta is feasible below
theta + (C - p N) / |C'|. The objective is the level that the shares really give.
"""

import numpy as np

from fairlead.model.allocation import SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.policies.solve.level_by_breakpoints import level_by_breakpoints
from fairlead.policies.solve.level_by_jobs import level_by_jobs
from fairlead.policies.solve.level_certificate import certified_level
from fairlead.policies.solve.level_problem import ParametricDemand, level_job_types

MAX_GAP = 1e-6  # relative gap that an answer may have
MAX_SIMPLEX_RATES = 2000  # job types times slot types up to which the simplex method is used


def solve_level(
    problem: ParametricDemand, gain: Floats | None = None, previous: SolveReport | None = None
) -> tuple[Floats, SolveReport]:
    """(jobs, slots) shares and their report. gain: (jobs,), the same for jobs of one job type: among the
    best shares those with the largest sum of gain times rate; previous: the report of an earlier, similar
    problem, to start from."""
    job_types = level_job_types(problem)
    some = (job_types.best > 0)[job_types.of] & (problem.steps > 0)
    if not some.any():
        return np.zeros(problem.rate.shape), SolveReport("optimal", 0.0, 0.0)
    steps = np.where(some, problem.steps, 0.0)
    floor = least_level(job_types.of, steps, problem.age, problem.isolated, job_types.best)
    use_simplex = job_types.rate.size <= MAX_SIMPLEX_RATES
    if not use_simplex:
        found = level_by_jobs(problem, job_types, steps, floor)
        use_simplex = not np.isfinite(found.level)  # the interior point has broken down
    if not use_simplex:
        share, level, bound, violation = certified_level(problem, job_types, steps, found)
        use_simplex = (
            not level - max(bound, floor) <= MAX_GAP * level
        )  # the interior point has stalled
    if use_simplex:
        found = level_by_breakpoints(problem, job_types, steps, floor, gain, previous)
        share, level, bound, violation = certified_level(problem, job_types, steps, found)
    return share, SolveReport(
        "optimal",
        objective=level,
        bound=max(bound, floor),
        violation=violation,
        iterations=found.iterations,
        warm=found.warm,
        basis=found.basis,
    )


@kernel("f8(i8[::1], f8[::1], f8[::1], f8[::1], f8[::1])", allocates=False)
def least_level(
    job_type: Ints, steps: Floats, age: Floats, isolated: Floats, best: Floats
) -> float:
    """The level at which every job alone could just be in time."""
    level = 0.0
    for i in range(len(job_type)):
        if steps[i] > 0:
            level = max(level, (age[i] + steps[i] / best[job_type[i]]) / isolated[i])
    return level
