"""The planning problem where accelerator types differ in speed: rounds per job and type.

A job's progress is the sum over types of rounds times speed, its welfare a concave function of that:

    maximise   sum_j utility_j(p_j)  -  penalty * M,   M = max_j remaining_j(p_j),   p_j = sum_k speed_jk s_jk
    such that  sum_k s_jk <= F,   sum_j scale_j s_jk <= F * devices_k,   p_j >= at_least_j

Without the integrality of s this is a linear program (``remaining`` must be convex in the progress), whose
optimum is the bound. Few values of its solution are fractional. They are rounded, and a local search adds,
moves and exchanges single rounds as long as that gains, for several limits on M. At the end, each job goes
to a single type where it loses no progress by it. The result is not proven optimal; the bound says how far
from the optimum it can be (benchmarks/window.py prints the gap).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.policies.solve.highs import (
    INFINITY,
    HighsModel,
    LinearProgram,
)
from fairlead.policies.solve.local_search import SearchJobs, local_search
from fairlead.policies.solve.planning_problem import (
    PlanningProblem,
    RoundCounts,
    infeasible,
    objective_of,
)

_SLOPE_TOLERANCE = 1e-9  # relative difference below which slopes count as equal
_SLACKS = 0.0, 0.01, 0.03, 0.1, 0.3, 1.0  # rounds by which M may exceed that of the relaxation
_BOUND_TOLERANCE = 1e-5  # relative gap at which the search stops
_INTEGRALITY_TOLERANCE = 1e-7  # rounds; a fraction below is the solver's rounding


def solve_types(problem: PlanningProblem) -> RoundCounts:
    """Return counts (jobs, types) near the optimum, with a bound on it. Values of ``at_least`` that only just
    fit may be reported as infeasible. SolveError where the relaxation cannot be solved for another reason."""
    jobs, types = len(problem.scale), len(problem.devices)
    if not jobs:
        return RoundCounts(
            counts=np.zeros((0, types), np.int64),
            objective=0.0,
            bound=0.0,
            feasible=True,
            proven=True,
        )
    relaxed = _Relaxed.of(problem)
    try:
        bound, rounds, max_remaining = relaxed.solve()
    except SolveError:
        if problem.at_least.any():
            return infeasible(jobs, types)
        raise
    counts, objective = np.zeros((jobs, types), np.int64), -np.inf
    starts = (_rounded(problem, rounds), np.floor(rounds + _INTEGRALITY_TOLERANCE).astype(np.int64))
    for start, slack in product(starts, _SLACKS):
        candidate, value = _improved(problem, start, max_remaining + slack * _round_s(problem))
        if value > objective:
            counts, objective = candidate, value
        if objective >= bound - _BOUND_TOLERANCE * max(1.0, abs(bound)):
            break
    if objective == -np.inf:
        return infeasible(jobs, types)
    return RoundCounts(
        counts=counts, objective=objective, bound=max(bound, objective), feasible=True, proven=False
    )


def _improved(problem: PlanningProblem, start: Ints, limit: float) -> tuple[Ints, float]:
    """Counts after local search, which aims at ``remaining`` <= limit for every job, and their objective:
    -inf where a job has less than ``at_least``."""
    speed = speed_of(problem)
    demand = np.maximum(problem.at_least, _progress_at(problem.remaining, limit))
    objective_range = float(np.ptp(problem.utility)) + problem.penalty * float(
        np.ptp(problem.remaining)
    )
    counts = local_search(
        SearchJobs(
            speed=speed,
            utility=np.ascontiguousarray(problem.utility),
            demand=np.minimum(demand, _max_progress(problem)),
            shortfall_price=1e3 * (objective_range + 1.0),
            scale=problem.scale,
            rounds=problem.rounds,
        ),
        start,
        problem.devices * problem.rounds,
    )
    progress = (counts * speed).sum(axis=1)
    if (progress < problem.at_least - 1e-9).any():
        return counts, -np.inf
    return counts, objective_of(problem, progress)


def _rounded(problem: PlanningProblem, rounds: Floats) -> Ints:
    """Counts (jobs, types): rounds rounded down, then up from the largest fraction on, while devices and
    rounds are left."""
    counts = np.floor(rounds + _INTEGRALITY_TOLERANCE).astype(np.int64)
    fraction = rounds - counts
    free = problem.devices * problem.rounds - problem.scale @ counts
    rounds_left = problem.rounds - counts.sum(axis=1)
    order = np.argsort(-fraction, axis=None, kind="stable")[
        : np.count_nonzero(fraction > _INTEGRALITY_TOLERANCE)
    ]
    for job, accelerator in np.column_stack(np.unravel_index(order, fraction.shape)).tolist():
        if problem.scale[job] <= free[accelerator] and rounds_left[job] > 0:
            counts[job, accelerator] += 1
            free[accelerator] -= problem.scale[job]
            rounds_left[job] -= 1
    return counts


def _progress_at(remaining: Floats, limit: float) -> Floats:
    """(jobs,) the least progress at which ``remaining`` <= limit, interpolated; where there is none, the
    largest."""
    last = remaining.shape[1] - 1
    above = (remaining > limit).sum(axis=1)
    after = np.minimum(above, last)
    before = np.maximum(after - 1, 0)
    rows = np.arange(len(remaining))
    high, low = remaining[rows, before], remaining[rows, after]
    inside = (above > 0) & (above <= last)
    part = np.where(inside, (high - limit) / np.where(high > low, high - low, 1.0), 1.0)
    return np.where(above > 0, before + part, 0.0)


def _round_s(problem: PlanningProblem) -> float:
    """The most seconds that one round of progress takes off ``remaining`` of any job."""
    return float(-np.diff(problem.remaining, axis=1).min())


def _max_progress(problem: PlanningProblem) -> Floats:
    """(jobs,) the progress of a job that runs in every round on its fastest type."""
    most: Floats = speed_of(problem).max(axis=1) * problem.rounds
    return most


def speed_of(problem: PlanningProblem) -> Floats:
    """(jobs, types) speed relative to the job's fastest type; 0 where it cannot run, or does not fit."""
    fits = problem.scale[:, None] <= problem.devices
    return np.where(fits, 1.0 if problem.speed is None else problem.speed, 0.0)


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """The linear relaxation. Columns: rounds, per job and type where it can run; progress, per job and linear
    piece of its utility; M. Rows: progress and time, per job; supporting lines of ``remaining``; capacity."""

    problem: PlanningProblem
    job: Ints  # (columns,) of the rounds
    accelerator: Ints  # (columns,) of the rounds
    speed: Floats  # (columns,) of the rounds

    @classmethod
    def of(cls, problem: PlanningProblem) -> "_Relaxed":
        speed = speed_of(problem)
        job, accelerator = np.nonzero(speed)
        return cls(problem, job, accelerator, speed[job, accelerator])

    def solve(self) -> tuple[float, Floats, float]:
        """Return the optimal objective, and the rounds (jobs, types) and M that reach it."""
        p = self.problem
        jobs, types, n = len(p.scale), len(p.devices), len(self.job)
        owner, width, slope = rising_pieces(p.utility)
        line_job, tangent, height, floor = self._lines()
        scale_of_makespan = max(float(p.remaining.max()), 1.0)  # of M: rows of order one
        lines = len(line_job)
        m_column = n + len(owner)
        # rows: progress 0.., time jobs.., lines 2 jobs.., capacity after those
        from_line = np.searchsorted(line_job, np.arange(jobs + 1))
        per = np.diff(from_line)[self.job]
        repeated = np.repeat(np.arange(n), per)
        offset = np.arange(len(repeated)) - np.repeat(np.cumsum(per) - per, per)
        line = from_line[self.job[repeated]] + offset
        row = [self.job, jobs + self.job, 2 * jobs + lines + self.accelerator, 2 * jobs + line]
        column = [np.arange(n)] * 3 + [repeated]
        entry = [
            self.speed,
            np.ones(n),
            p.scale[self.job] / p.devices[self.accelerator],
            -tangent[line] * self.speed[repeated] / scale_of_makespan,
        ]
        row += [owner, 2 * jobs + np.arange(lines)]
        column += [n + np.arange(len(owner)), np.full(lines, m_column)]
        entry += [np.full(len(owner), -1.0), np.ones(lines)]
        program = _by_columns(
            cost=np.concatenate((np.zeros(n), slope, [-p.penalty * scale_of_makespan])),
            col_lower=np.concatenate((np.zeros(m_column), [floor / scale_of_makespan])),
            col_upper=np.concatenate((np.full(n, float(p.rounds)), width, [INFINITY])),
            row_lower=np.concatenate(
                (
                    p.at_least,
                    np.full(jobs, -INFINITY),
                    height / scale_of_makespan,
                    np.full(types, -INFINITY),
                )
            ),
            row_upper=np.concatenate(
                (
                    np.full(jobs, INFINITY),
                    np.full(jobs, float(p.rounds)),
                    np.full(lines, INFINITY),
                    np.full(types, float(p.rounds)),
                )
            ),
            row=np.concatenate(row),
            column=np.concatenate(column),
            entry=np.concatenate(entry),
        )
        model = HighsModel(program)
        model.load()
        best = model.maximise()
        rounds = np.zeros((jobs, types))
        rounds[self.job, self.accelerator] = best.value[:n]
        return (
            best.objective + float(p.utility[:, 0].sum()),
            rounds,
            best.value[-1] * scale_of_makespan,
        )

    def _lines(self) -> tuple[Ints, Floats, Floats, float]:
        """The supporting lines M >= height + tangent * progress: (lines,) job, tangent and height, without
        those below the floor; and the floor, the least M that any counts can reach."""
        p = self.problem
        at = np.minimum(_max_progress(p), float(p.rounds))
        rows = np.arange(len(at))
        column = np.minimum(at.astype(np.int64), p.rounds - 1)
        fall = np.diff(p.remaining, axis=1)
        floor = float((p.remaining[rows, column] + (at - column) * fall[rows, column]).max())
        job, start = np.nonzero((p.remaining[:, :-1] > floor) & _slope_changes(fall))
        tangent = fall[job, start]
        return job, tangent, p.remaining[job, start] - start * tangent, floor


def rising_pieces(utility: Floats) -> tuple[Ints, Floats, Floats]:
    """(pieces,) job, width in rounds and slope of the rising linear pieces of each row, in order."""
    step = np.minimum.accumulate(np.maximum(np.diff(utility, axis=1), 0.0), axis=1)
    job, start = np.nonzero(_slope_changes(step))
    end = np.where(np.append(job[1:], -1) == job, np.append(start[1:], 0), step.shape[1])
    slope = step[job, start]
    rises = slope > 0
    return job[rises], (end - start)[rises].astype(np.float64), slope[rises]


def _slope_changes(step: Floats) -> Bools:
    """(rows, columns) whether a step differs from the one before it in its row; True in the first column."""
    turns = np.ones(step.shape, np.bool_)
    turns[:, 1:] = np.abs(np.diff(step, axis=1)) > _SLOPE_TOLERANCE * np.abs(step[:, :-1])
    return turns


def _by_columns(
    *,
    cost: Floats,
    col_lower: Floats,
    col_upper: Floats,
    row_lower: Floats,
    row_upper: Floats,
    row: Ints,
    column: Ints,
    entry: Floats,
) -> LinearProgram:
    """The program in compressed columns. row, column, entry: (entries,) of the matrix, in any order."""
    order = np.argsort(column, kind="stable")
    start = np.zeros(len(cost) + 1, np.int32)
    np.cumsum(np.bincount(column, minlength=len(cost)), out=start[1:])
    return LinearProgram(
        cost=cost,
        col_lower=col_lower,
        col_upper=col_upper,
        row_lower=row_lower,
        row_upper=row_upper,
        start=start,
        index=row[order].astype(np.int32),
        value=entry[order],
    )
