"""The level by the simplex method: Newton's method on programs over job types and their breakpoints.

See ``fairlead.policies.solve.parametric_level`` for both.
"""

import contextlib
from dataclasses import dataclass

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.allocation import SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.policies.solve.breakpoints import breakpoint_cost, segment
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.job_classes import JobClasses
from fairlead.policies.solve.level_problem import (
    REQUIREMENT_TOLERANCE,
    STALL_TOLERANCE,
    STEPS,
    TOLERANCE,
    LevelJobTypes,
    LevelShares,
    ParametricDemand,
)
from fairlead.policies.solve.program import ExtraColumns, Program, ProgramSolution
from fairlead.policies.solve.share_problem import ShareProblem

SAMPLE_SIZE = 8192  # jobs that a first guess is made from
MIN_COUNT = (
    1e-12  # part of all jobs that a rate counts for that none needs, so that its columns stay
)


def level_by_breakpoints(
    problem: ParametricDemand,
    job_types: LevelJobTypes,
    steps: Floats,
    level: float,
    gain: Floats | None,
    previous: SolveReport | None,
) -> LevelShares:
    """Shares at the level, with the largest sum of gain times rate where gain, (jobs,), is given.

    steps: (jobs,) 0 for those that do not count; level: one that the answer is not below; previous:
    the report of an earlier, similar problem, to start from. Raises SolveError where the level is not met.
    """
    start = _NewtonPoint(level=level, basis=())
    if previous is not None:
        start = _NewtonPoint(level=max(level, previous.objective or 0.0), basis=previous.basis)
    every = len(steps) // SAMPLE_SIZE
    if every > 1 and start.level == level:  # a sample of the jobs tells about where the level is
        rows = np.arange(0, len(steps), every)
        sample = (job_types.of[rows], steps[rows], problem.age[rows], problem.isolated[rows])
        root = _LevelRoot(problem, job_types, sample, float(every), level)
        start = root.newton(start, 1e-4)
    jobs = (job_types.of, steps, problem.age, problem.isolated)
    end = _LevelRoot(problem, job_types, jobs, 1.0, level).newton(start, REQUIREMENT_TOLERANCE)
    program, solution = end.program, end.solution
    assert program is not None
    assert solution is not None
    price, level, iterations = solution.device_price, end.level, end.iterations
    basis = solution.basis
    if gain is not None:
        value = np.zeros(len(job_types.id))
        value[job_types.of] = gain
        more = LinearObjective(
            np.repeat(value, job_types.breakpoints.shape[1]),
            np.zeros(len(problem.accelerator_of_slot)),
        )
        solution = best_at_least_excess(program, solution, more)
        iterations += solution.iterations
    breakpoint_share = solution.per_job(program.problem).reshape(*job_types.breakpoints.shape, -1)
    share = np.empty((len(steps), breakpoint_share.shape[2]))
    _expand(*jobs, job_types.breakpoints, level, breakpoint_share, share)
    return LevelShares(
        level=level, share=share, price=price, iterations=iterations, warm=end.warm, basis=basis
    )


def best_at_least_excess(
    program: Program, least: ProgramSolution, measure: LinearObjective
) -> ProgramSolution:
    """The solution with the largest measure among those with the least excess, the program's first extra
    column. Where rounding leaves none, the excess may be larger by ``TOLERANCE``; failing that, ``least``."""
    excess = max(float(least.columns[0]), 0.0)
    for allowance in (0.0, TOLERANCE):
        program.bound(0, -1.0, excess + allowance)
        with contextlib.suppress(SolveError):
            return program.maximise(measure, np.zeros(1))
    return least


@dataclass(frozen=True, kw_only=True, slots=True)
class _NewtonPoint:
    """A point of Newton's method: where it begins, or where it has ended."""

    level: float
    basis: tuple[bytes, ...]
    iterations: int = 0
    warm: bool = False
    program: Program | None = None
    solution: ProgramSolution | None = None


@dataclass(frozen=True, slots=True)
class _LevelRoot:
    """The level at which lambda is 1, sought for jobs each of which may stand for several."""

    problem: ParametricDemand
    job_types: LevelJobTypes
    jobs: tuple[Ints, Floats, Floats, Floats]  # their job types, steps, age and isolated time
    each: float  # how many jobs each of them stands for
    floor: float  # no level is below

    def newton(self, start: _NewtonPoint, tolerance: float) -> _NewtonPoint:
        """The level at which lambda is within the tolerance of 1, or the floor where that is lower, and the
        program there. From either side a step ends below the level, for lambda is convex."""
        job_types, program = self.job_types, start.program
        level, iterations, warm = start.level, start.iterations, start.warm
        slots = len(self.problem.accelerator_of_slot)
        nothing = LinearObjective(np.zeros(job_types.breakpoints.size), np.zeros(slots))
        for _ in range(STEPS):
            demand, slope = _breakpoint_weights(*self.jobs, job_types.breakpoints, level)
            count = np.maximum(demand.ravel() * self.each, MIN_COUNT * len(job_types.of))
            if program is None:
                program = _program(self.problem, job_types, count, start.basis)
            else:
                program.recount(count)
            solution = program.maximise(nothing)
            iterations += solution.iterations
            warm = warm or solution.warm
            excess = float(solution.columns[0])
            falls = self._slope_of_cost(solution, slope)
            after = max(self.floor, level - excess / falls) if falls < 0 else level
            if abs(excess) <= tolerance or abs(after - level) <= STALL_TOLERANCE * level:
                return _NewtonPoint(
                    level=level,
                    basis=start.basis,
                    iterations=iterations,
                    warm=warm,
                    program=program,
                    solution=solution,
                )
            level = after
        raise SolveError(f"the level was not met after {STEPS} steps of Newton's method")

    def _slope_of_cost(self, solution: ProgramSolution, slope: Floats) -> float:
        """The derivative, by the level, of the cost of all requirements at the solution's prices. slope: (job
        types, breakpoints) that of the number of jobs that need each rate."""
        job_types = self.job_types
        price = self.problem.slot_cost(solution.device_price)
        cost = breakpoint_cost(job_types.rate, job_types.scale, job_types.breakpoints, price)
        return float((cost * slope).sum()) * self.each


@kernel(
    "Tuple((f8[:,::1], f8[:,::1]))(i8[::1], f8[::1], f8[::1], f8[::1], f8[:,::1], f8)",
)
def _breakpoint_weights(
    job_type: Ints, steps: Floats, age: Floats, isolated: Floats, breakpoints: Floats, level: float
) -> tuple[Floats, Floats]:
    """(job types, breakpoints) jobs that need exactly this rate, and its derivative by the level."""
    demand, slope = np.zeros_like(breakpoints), np.zeros_like(breakpoints)
    for i in range(len(job_type)):
        if steps[i] <= 0:
            continue
        c = job_type[i]
        left_s = level * isolated[i] - age[i]
        rate = min(steps[i] / left_s, breakpoints[c, -1])
        change = -rate / left_s * isolated[i]
        k = segment(rate, breakpoints[c])
        low = breakpoints[c, k - 1]
        width = breakpoints[c, k] - low
        part = (rate - low) / width
        demand[c, k] += part
        slope[c, k] += change / width
        demand[c, k - 1] += 1.0 - part
        slope[c, k - 1] -= change / width
    return demand, slope


@kernel(
    "void(i8[::1], f8[::1], f8[::1], f8[::1], f8[:,::1], f8, f8[:,:,::1], f8[:,::1])",
    allocates=False,
)
def _expand(
    job_type: Ints,
    steps: Floats,
    age: Floats,
    isolated: Floats,
    breakpoints: Floats,
    level: float,
    breakpoint_share: Floats,
    share: Floats,
) -> None:
    """Fill in (jobs, slots) shares from (job types, breakpoints, slots): a job's are interpolated between
    the breakpoints on either side of its rate."""
    for i in range(len(job_type)):
        if steps[i] <= 0:
            share[i] = 0.0
            continue
        c = job_type[i]
        rate = min(steps[i] / (level * isolated[i] - age[i]), breakpoints[c, -1])
        k = segment(rate, breakpoints[c])
        low = breakpoints[c, k - 1]
        part = (rate - low) / (breakpoints[c, k] - low)
        for j in range(share.shape[1]):
            share[i, j] = (
                part * breakpoint_share[c, k, j] + (1.0 - part) * breakpoint_share[c, k - 1, j]
            )


def _program(
    problem: ParametricDemand, job_types: LevelJobTypes, count: Floats, basis: tuple[bytes, ...]
) -> Program:
    """The program: min lambda. Its classes are pairs of job type and breakpoint; count: (job types times
    breakpoints,) jobs that need exactly that rate."""
    shape = job_types.breakpoints.shape
    rows = np.arange(shape[0]).repeat(shape[1])
    ids = job_types.id[rows] * shape[1] + np.tile(np.arange(shape[1]), shape[0])
    types = np.arange(len(problem.capacity))
    like = ShareProblem(
        classes=JobClasses(ids, count, rows, rows),
        scale=job_types.scale[rows],
        rate=job_types.rate[rows],
        accelerator_of_slot=problem.accelerator_of_slot,
        slot_devices=problem.slot_devices,
        capacity=problem.capacity,
        job_type=rows,
        colocated_rate=None,
    )
    program = Program(
        problem=like, throughput=True, demand=job_types.breakpoints.ravel(), previous=basis
    )
    program.columns = ExtraColumns(
        cost=-np.ones(1),
        lower=-np.ones(1),
        upper=np.full(1, np.inf),
        column=np.zeros(len(types), np.int64),
        row=program.device_row(types),
        value=-np.ones(len(types)),
    )
    return program.load()
