"""One level for all jobs, each with a requirement of its own: makespan and finish-time fairness.

    level* = min theta   s.t.   sum_j T_ij x_ij >= steps_i / (theta isolated_i - age_i)   each job i: rate
                                sum_j x_ij <= 1                                          each job i: time
                                sum_i s_i sum_{j of type k} x_ij <= N_k      each accelerator type k: devices
                                x >= 0

With isolated = 1 and age = 0, theta is the makespan. Jobs have as many requirements as there are jobs;
three steps make the size of the linear programmes independent of that.

Newton on the level. For a theta, let lambda be the least factor on all capacities that meets every
requirement: a linear programme. lambda is convex and falls with theta, so Newton's method from below
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

import contextlib
from dataclasses import dataclass

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.allocation import SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.policies.solve.breakpoints import (
    breakpoint_cost,
    find_breakpoints,
    segment,
)
from fairlead.policies.solve.interior_point import MaxMinClasses, max_min
from fairlead.policies.solve.job_classes import JobClassSizes, group
from fairlead.policies.solve.program import (
    ExtraColumns,
    LinearObjective,
    Program,
    ProgramSolution,
    ShareProblem,
)

SAMPLE_SIZE = 8192  # jobs that a first guess is made from
STEPS = 60  # of Newton's method
MIN_LEVEL = 1e-12  # part of all jobs that a rate counts for which none needs: its columns stay
REQUIREMENT_TOLERANCE = 1e-11  # lambda - 1 at which a level counts as met
PROVEN = 1e-6  # relative gap that an answer may have
MIN_CLASSES = 2000  # job types times slot types up to which the simplex method is used
_NOTHING = 1e-8  # share that stands for none
STALL_TOLERANCE = 1e-13  # relative step below which rounding decides
TOLERANCE = 1e-9  # part of the level, or of the devices, that a second measure may cost
_CLOSE = 1e-8  # relative gap that the interior point is asked for; it stalls near 1e-10


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """A problem. Jobs that cannot run, or need nothing, have no say in the level and get nothing."""

    job_type: Ints  # (jobs,) jobs of one job type have the same rates and scale
    rate: Floats  # (jobs, slots) steps/s
    scale: Ints  # (jobs,) devices
    accelerator_of_slot: Ints  # (slots,)
    capacity: Floats  # (types,) devices
    steps: Floats  # (jobs,) still to do
    age: Floats  # (jobs,)
    isolated: Floats  # (jobs,) > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _JobTypes:
    """What jobs of a job type can do, and the rates at which their cost has breakpoints."""

    id: Ints  # (job types,)
    of: Ints  # (jobs,) row of each job's job type
    count: Floats  # (job types,) jobs
    scale: Floats  # (job types,)
    rate: Floats  # (job types, slots)
    breakpoints: (
        Floats  # (job types, slots + 1) 0 and its own rates, ascending; 0 for those that repeat
    )

    @property
    def best(self) -> Floats:
        """(job types,) the fastest rate."""
        return np.ascontiguousarray(self.breakpoints[:, -1])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """Shares that are feasible and meet a level, and the prices that prove it."""

    level: float
    share: Floats  # (jobs, slots)
    price: Floats  # (types,) of a device, times devices adding up to 1
    iterations: int
    warm: bool = False
    basis: tuple[bytes, ...] = ()


def solve_level(
    problem: Levels, gain: Floats | None = None, previous: SolveReport | None = None
) -> tuple[Floats, SolveReport]:
    """(jobs, slots) shares and their report. gain: (jobs,), the same for jobs of one job type: among the
    best shares those with the largest sum of gain times rate; previous: the report of an earlier, similar
    problem, to start from."""
    job_types = _job_types(problem)
    some = (job_types.best > 0)[job_types.of] & (problem.steps > 0)
    if not some.any():
        return np.zeros(problem.rate.shape), SolveReport("optimal", 0.0, 0.0)
    steps = np.where(some, problem.steps, 0.0)
    floor = _least(job_types.of, steps, problem.age, problem.isolated, job_types.best)
    use_simplex = job_types.rate.size <= MIN_CLASSES
    if not use_simplex:
        found = _by_jobs(problem, job_types, steps, floor)
        share, level, bound, violation = _certified(problem, job_types, steps, found)
        use_simplex = (
            not level - max(bound, floor) <= PROVEN * level
        )  # the interior point has stalled
    if use_simplex:
        found = _by_breakpoints(problem, job_types, steps, floor, gain, previous)
        share, level, bound, violation = _certified(problem, job_types, steps, found)
    return share, SolveReport(
        "optimal",
        objective=level,
        bound=max(bound, floor),
        violation=violation,
        iterations=found.iterations,
        warm=found.warm,
        basis=found.basis,
    )


def _job_types(problem: Levels) -> _JobTypes:
    classes = group(problem.job_type)
    rate = problem.rate[classes.first]
    rate = np.where((problem.capacity > 0)[problem.accelerator_of_slot], rate, 0.0)
    scale = problem.scale[classes.first].astype(np.float64)
    return _JobTypes(
        id=classes.id,
        of=classes.of,
        count=classes.count,
        scale=scale,
        rate=rate,
        breakpoints=find_breakpoints(rate),
    )


@kernel("f8(i8[::1], f8[::1], f8[::1], f8[::1], f8[::1])")
def _least(job_type: Ints, steps: Floats, age: Floats, isolated: Floats, best: Floats) -> float:
    """The level at which every job alone could just be in time."""
    level = 0.0
    for i in range(len(job_type)):
        if steps[i] > 0:
            level = max(level, (age[i] + steps[i] / best[job_type[i]]) / isolated[i])
    return level


# --- the simplex method on breakpoints ----------------------------------------------------------------------


def _by_breakpoints(
    problem: Levels,
    job_types: _JobTypes,
    steps: Floats,
    level: float,
    gain: Floats | None,
    previous: SolveReport | None,
) -> _Found:
    start = _WarmStart(level=level, basis=())
    if previous is not None:
        start = _WarmStart(level=max(level, previous.objective or 0.0), basis=previous.basis)
    every = len(steps) // SAMPLE_SIZE
    if every > 1 and start.level == level:  # a sample of the jobs tells about where the level is
        rows = np.arange(0, len(steps), every)
        sample = (job_types.of[rows], steps[rows], problem.age[rows], problem.isolated[rows])
        root = _LevelRoot(problem, job_types, sample, float(every), level)
        start = root.newton(start, 1e-4)
    jobs = (job_types.of, steps, problem.age, problem.isolated)
    end = _LevelRoot(problem, job_types, jobs, 1.0, level).newton(start, REQUIREMENT_TOLERANCE)
    program, answer = end.program, end.answer
    assert program is not None
    assert answer is not None
    price, level, iterations = answer.device_price, end.level, end.iterations
    basis = answer.basis
    if gain is not None:
        value = np.zeros(len(job_types.id))
        value[job_types.of] = gain
        more = LinearObjective(
            np.repeat(value, job_types.breakpoints.shape[1]),
            np.zeros(len(problem.accelerator_of_slot)),
        )
        answer = largest_ratio(program, answer, more)
        iterations += answer.iterations
    breakpoint_of = answer.per_job(program.problem).reshape(*job_types.breakpoints.shape, -1)
    share = np.empty((len(steps), breakpoint_of.shape[2]))
    _expand(*jobs, job_types.breakpoints, level, breakpoint_of, share)
    return _Found(
        level=level, share=share, price=price, iterations=iterations, warm=end.warm, basis=basis
    )


def largest_ratio(
    program: Program, least: ProgramSolution, measure: LinearObjective
) -> ProgramSolution:
    """The largest measure at the least excess, which is the programme's first further column. Rounding may
    leave nothing exactly there: then a little more of it, or ``least`` itself."""
    excess = max(float(least.columns[0]), 0.0)
    for allowance in (0.0, TOLERANCE):
        program.bound(0, -1.0, excess + allowance)
        with contextlib.suppress(SolveError):
            return program.maximise(measure, np.zeros(1))
    return least


@dataclass(frozen=True, kw_only=True, slots=True)
class _WarmStart:
    """Where Newton's method begins, and where it has ended."""

    level: float
    basis: tuple[bytes, ...]
    iterations: int = 0
    warm: bool = False
    program: Program | None = None
    answer: ProgramSolution | None = None


@dataclass(frozen=True, slots=True)
class _LevelRoot:
    """The level at which lambda is 1, sought for jobs each of which may stand for several."""

    problem: Levels
    job_types: _JobTypes
    jobs: tuple[Ints, Floats, Floats, Floats]  # their job types, steps, age and isolated time
    each: float  # how many jobs each of them stands for
    floor: float  # no level is below

    def newton(self, start: _WarmStart, tolerance: float) -> _WarmStart:
        """The level at which lambda is within the tolerance of 1, or the floor where that is lower, and the
        programme there. From either side a step ends below the level, for lambda is convex."""
        job_types, program = self.job_types, start.program
        level, iterations, warm = start.level, start.iterations, start.warm
        slots = len(self.problem.accelerator_of_slot)
        nothing = LinearObjective(np.zeros(job_types.breakpoints.size), np.zeros(slots))
        for _ in range(STEPS):
            need, slope = _breakpoint_weights(*self.jobs, job_types.breakpoints, level)
            count = np.maximum(need.ravel() * self.each, MIN_LEVEL * len(job_types.of))
            if program is None:
                program = _program(self.problem, job_types, count, start.basis)
            else:
                program.recount(count)
            answer = program.maximise(nothing)
            iterations += answer.iterations
            warm = warm or answer.warm
            excess = float(answer.columns[0])
            falls = self._slope_of_cost(answer, slope)
            after = max(self.floor, level - excess / falls) if falls < 0 else level
            if abs(excess) <= tolerance or abs(after - level) <= STALL_TOLERANCE * level:
                return _WarmStart(
                    level=level,
                    basis=start.basis,
                    iterations=iterations,
                    warm=warm,
                    program=program,
                    answer=answer,
                )
            level = after
        raise SolveError(f"the level was not met after {STEPS} steps of Newton's method")

    def _slope_of_cost(self, answer: ProgramSolution, slope: Floats) -> float:
        """How fast what all jobs need costs less as the level rises, at the answer's prices. slope: (job
        types, breakpoints) of the jobs that need each rate."""
        job_types = self.job_types
        price = answer.device_price[self.problem.accelerator_of_slot]
        cost = breakpoint_cost(job_types.rate, job_types.scale, job_types.breakpoints, price)
        return float((cost * slope).sum()) * self.each


@kernel(
    "Tuple((f8[:,::1], f8[:,::1]))(i8[::1], f8[::1], f8[::1], f8[::1], f8[:,::1], f8)",
)
def _breakpoint_weights(
    job_type: Ints, steps: Floats, age: Floats, isolated: Floats, breakpoints: Floats, level: float
) -> tuple[Floats, Floats]:
    """(job types, breakpoints) jobs that need exactly this rate, and how fast that changes with the level."""
    need, slope = np.zeros_like(breakpoints), np.zeros_like(breakpoints)
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
        need[c, k] += part
        slope[c, k] += change / width
        need[c, k - 1] += 1.0 - part
        slope[c, k - 1] -= change / width
    return need, slope


@kernel(
    "void(i8[::1], f8[::1], f8[::1], f8[::1], f8[:,::1], f8, f8[:,:,::1], f8[:,::1])",
)
def _expand(
    job_type: Ints,
    steps: Floats,
    age: Floats,
    isolated: Floats,
    breakpoints: Floats,
    level: float,
    breakpoint_of: Floats,
    share: Floats,
) -> None:
    """Fill in (jobs, slots) shares from (job types, breakpoints, slots): a job has those of its two
    neighbours, weighted."""
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
            share[i, j] = part * breakpoint_of[c, k, j] + (1.0 - part) * breakpoint_of[c, k - 1, j]


def _program(
    problem: Levels, job_types: _JobTypes, count: Floats, basis: tuple[bytes, ...]
) -> Program:
    """min lambda. Classes are the jobs that need exactly one of their job type's rates."""
    shape = job_types.breakpoints.shape
    rows = np.arange(shape[0]).repeat(shape[1])
    ids = job_types.id[rows] * shape[1] + np.tile(np.arange(shape[1]), shape[0])
    types = np.arange(len(problem.capacity))
    like = ShareProblem(
        classes=JobClassSizes(ids, count, rows, rows),
        scale=job_types.scale[rows],
        rate=job_types.rate[rows],
        accelerator_of_slot=problem.accelerator_of_slot,
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


# --- the interior point on jobs -----------------------------------------------------------------------


def _by_jobs(problem: Levels, job_types: _JobTypes, steps: Floats, floor: float) -> _Found:
    """Newton's method on z, the largest part of all requirements that can be met at once, a max-min
    problem per step. Where all jobs of a job type have the same requirement, by job types."""
    row, count = _rows(problem, job_types, steps)
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
        capacity=problem.capacity[there],
    )
    level, low, high, iterations = floor, floor, np.inf, 0
    for _ in range(STEPS):
        left_s = level * isolated - age
        worth = rate * (left_s / left)[:, None]
        inner, weight, price, n = max_min(classes._replace(worth=worth), _CLOSE)
        iterations += n
        part = (worth * inner).sum(axis=1)
        z = float(part.min())
        if not age.any():
            level /= z  # the requirements are in proportion to 1 / level: these shares are the best
            break
        if abs(z - 1) <= 10 * _CLOSE or (z >= 1 and level <= floor):
            break
        low, high = (low, min(high, level)) if z >= 1 else (max(low, level), high)
        each = weight * count
        rises = float(each @ (part * isolated / left_s)) / float(each.sum())
        level += (1 - z) / rises
        if not low <= level <= high:
            level = (low + high) / 2 if np.isfinite(high) else 2 * low
    inner[(rate == 0) | (inner < _NOTHING)] = 0.0  # inside, every share is above 0
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
    return _Found(level=max(level, floor), share=share, price=full, iterations=iterations)


def _rows(problem: Levels, job_types: _JobTypes, steps: Floats) -> tuple[Ints, Floats]:
    """Positions of jobs that stand for others, and how many each stands for."""
    first = np.empty(len(job_types.id), np.int64)
    first[job_types.of] = np.arange(len(steps))
    alike = first[job_types.of]
    for requirement in (steps, problem.age, problem.isolated):
        if not np.array_equal(requirement, requirement[alike]):
            row = np.flatnonzero(steps)
            return row, np.ones(len(row))
    row = first[steps[first] > 0]
    return row, job_types.count[job_types.of[row]]


# --- certificate ---------------------------------------------------------------------------------------


@kernel(
    "Tuple((f8, f8))(i8[::1], f8[::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8)",
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
    """What all requirements cost at a level, and how fast that changes with the level."""
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
    "Tuple((f8, f8))(f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[::1], i8[::1], i8[::1], f8[::1])",
)
def _measured(
    share: Floats,
    rate: Floats,
    steps: Floats,
    age: Floats,
    isolated: Floats,
    scale: Ints,
    accelerator_of_slot: Ints,
    capacity: Floats,
) -> tuple[float, float]:
    """The level that shares reach, and the largest use of a job's time or a type's devices."""
    used = np.zeros(len(capacity))
    busiest = 0.0
    level = 0.0
    for i in range(len(share)):
        time = 0.0
        got = 0.0
        for j in range(share.shape[1]):
            time += share[i, j]
            got += share[i, j] * rate[i, j]
            used[accelerator_of_slot[j]] += scale[i] * share[i, j]
        busiest = max(busiest, time)
        if steps[i] > 0:
            level = max(level, (age[i] + steps[i] / got) / isolated[i]) if got > 0 else np.inf
    for k in range(len(capacity)):
        if capacity[k] > 0:
            busiest = max(busiest, used[k] / capacity[k])
        elif used[k] > 0:
            busiest = np.inf
    return level, busiest


def _certified(
    problem: Levels, job_types: _JobTypes, steps: Floats, found: _Found
) -> tuple[Floats, float, float, float]:
    """(shares made feasible, their level, a bound on it, violation)."""
    args = (steps, problem.age, problem.isolated)
    also = (problem.scale, problem.accelerator_of_slot, problem.capacity)
    share, rate = found.share, np.ascontiguousarray(problem.rate)
    level, use = _measured(share, rate, *args, *also)
    if use > 1:
        share = share / use
        level, use = _measured(share, rate, *args, *also)
    cost = breakpoint_cost(
        job_types.rate,
        job_types.scale,
        job_types.breakpoints,
        found.price[problem.accelerator_of_slot],
    )
    total, slope = _cost_of_all(job_types.of, *args, job_types.breakpoints, cost, found.level)
    spare = float(found.price @ problem.capacity)
    bound = found.level + (total - spare) / -slope if slope < 0 else 0.0
    return share, level, bound, max(0.0, use - 1.0)
