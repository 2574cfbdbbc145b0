"""The planning problem and its answer: see ``planning_horizon``."""

from dataclasses import dataclass

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.arrays import Floats, Ints


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanningProblem:
    """The problem: jobs that share devices over ``rounds`` rounds.

    A table's column p is for p rounds on the type on which the job is fastest; in between, tables are
    linear. Where there is one type, that is the job's count.
    """

    devices: Ints  # (types,) devices of each accelerator type
    rounds: int  # F
    scale: Ints  # (jobs,) devices that a job uses at once
    utility: Floats  # (jobs, F + 1) value after 0 .. F rounds: rising, concave
    remaining: Floats  # (jobs, F + 1) s left after 0 .. F rounds: falling
    penalty: float  # of a second that remains of the job with most of them
    at_least: Ints  # (jobs,) rounds, on the fastest type, that a job must get
    speed: Floats | None = None  # (jobs, types) of the fastest type's; 0 = cannot run; None = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundCounts:
    """The answer. Infeasible (the lower bounds do not fit): all zero, and -inf for objective and bound."""

    counts: Ints  # (jobs, types) rounds
    objective: float
    bound: float  # of the linear relaxation: no counts can be better
    feasible: bool
    proven: bool  # whether the counts are known to be optimal


def infeasible(jobs: int, types: int) -> RoundCounts:
    """Return the result for lower bounds that no counts satisfy."""
    return RoundCounts(
        counts=np.zeros((jobs, types), np.int64),
        objective=-np.inf,
        bound=-np.inf,
        feasible=False,
        proven=True,
    )


def objective_of(problem: PlanningProblem, progress: Floats) -> float:
    """The objective where jobs have so much progress, in rounds on their fastest type: (jobs,)."""
    if not len(progress):
        return 0.0
    utility = interpolate(problem.utility, progress).sum()
    return float(utility - problem.penalty * interpolate(problem.remaining, progress).max())


def interpolate(table: Floats, progress: Floats) -> Floats:
    """A table's values at fractional columns, one per row."""
    rows = np.arange(len(table))
    column = np.minimum(progress.astype(np.int64), table.shape[1] - 2)
    part = progress - column
    low, high = table[rows, column], table[rows, column + 1]
    mixed: Floats = np.where(part == 0, low, np.where(part == 1, high, low + part * (high - low)))
    return mixed


def check(problem: PlanningProblem) -> None:
    """Raise SolveError for tables of the wrong shape and values that are not finite."""
    jobs = len(problem.scale)
    shape = (jobs, problem.rounds + 1)
    for name, table in (("utility", problem.utility), ("remaining", problem.remaining)):
        if table.shape != shape:
            raise SolveError(f"window: {name} has the shape {table.shape} instead of {shape}")
        if not np.isfinite(table).all():
            job = int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])
            raise SolveError(f"window: {name} of job {job} is not finite: {table[job].tolist()}")
    if problem.rounds < 1 or (jobs and problem.scale.min() < 1):
        raise SolveError(
            f"window: rounds and scale factors must be >= 1, got {problem.rounds} rounds"
        )
