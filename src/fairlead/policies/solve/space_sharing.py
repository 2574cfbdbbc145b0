"""Fair levels for jobs that may run in pairs: max-min shares, and one level for all requirements.

The programs of ``fairlead.policies.solve.max_min`` and ``fairlead.policies.solve.parametric_level``
over the configurations of
``fairlead.policies.solve.program``. A job's price of time u, value per step v and the price p of each
type's devices prove a bound when no configuration, alone or in a pair, earns more than it costs:

    v_c rate + v_d rate' <= s p + u_c + u_d         each pair of classes c, d on each slot type

``proven_time_price`` raises u until this holds exactly, whatever the solver's tolerance.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.errors import SolveError
from fairlead.model.arrays import Floats
from fairlead.policies.solve.candidate_pairs import proven_time_price
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.level_by_breakpoints import best_at_least_excess
from fairlead.policies.solve.level_problem import (
    REQUIREMENT_TOLERANCE,
    STALL_TOLERANCE,
    STEPS,
    TOLERANCE,
)
from fairlead.policies.solve.program import ExtraColumns, Program, ProgramSolution
from fairlead.policies.solve.share_problem import ShareProblem


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelSolution:
    """A level, the shares by class that reach it, and a bound that no shares can beat."""

    level: float
    bound: float
    solution: ProgramSolution
    iterations: int
    basis: tuple[bytes, ...]


def max_min(
    problem: ShareProblem,
    worth: Floats,
    gain: Floats,
    pair_penalty: float,
    previous: tuple[bytes, ...] = (),
) -> LevelSolution:
    """max min_c worth_c t_c; then, at that level, the largest sum of gain_c t_c over all jobs.

    worth, gain: (classes,), of a step/s; classes with worth 0 do not count. pair_penalty: what a device in a
    pair must earn in the second phase beyond one that is not.
    """
    counted = np.flatnonzero(problem.can_run & (worth > 0))
    level_scale = (
        1.0 / float((worth * problem.best)[counted].min(initial=np.inf)) if len(counted) else 1.0
    )
    columns = ExtraColumns(
        cost=np.ones(1), lower=np.zeros(1), upper=np.full(1, np.inf if len(counted) else 0.0),
        column=np.zeros(len(counted), np.int64), row=counted, value=-1.0 / (worth[counted] * level_scale),
    )  # fmt: skip
    program = Program(problem=problem, throughput=True, columns=columns, previous=previous).load()
    first = program.maximise(_zero_objective(problem))
    level = first.objective / level_scale
    bound = max_min_bound(
        problem, worth, first.throughput_price, first.time_price, first.device_price
    )
    program.bound(0, first.objective * (1.0 - TOLERANCE), np.inf)
    program.pair_penalty = pair_penalty
    last = program.maximise(
        LinearObjective(gain, np.zeros(len(problem.accelerator_of_slot))), np.zeros(1)
    )
    return LevelSolution(
        level=level,
        bound=bound,
        solution=last,
        iterations=first.iterations + last.iterations,
        basis=first.basis,
    )


def max_min_bound(
    problem: ShareProblem, worth: Floats, value: Floats, time_price: Floats, device_price: Floats
) -> float:
    """A bound on the level of ``max_min``, proven by prices; 0 where they value no job's steps.

    value: (classes,) per step/s; time_price: (classes,) per unit of a job's time; device_price: (types,).
    """
    counted, count = problem.can_run & (worth > 0), problem.classes.count
    weight = float((count[counted] * value[counted] / worth[counted]).sum())
    if weight <= 0:
        return 0.0
    time = proven_time_price(problem, value, time_price, device_price[problem.accelerator_of_slot])
    return float(count @ time + device_price @ problem.capacity) / weight


def min_level(
    problem: ShareProblem,
    steps: Floats,
    age: Floats,
    isolated: Floats,
    gain: Floats,
    pair_penalty: float,
    previous: tuple[bytes, ...] = (),
) -> LevelSolution:
    """min theta with t_c >= steps_c / (theta isolated_c - age_c) for all classes that can run and have
    steps left; then, at that level, the largest sum of gain_c t_c. All: (classes,).

    Newton's method on the least factor lambda of all capacities, as in
    ``fairlead.policies.solve.parametric_level``. It starts where every job alone could just be in time;
    pairs make no job faster than it is alone.
    """
    counted = problem.can_run & (steps > 0)
    if not counted.any():
        nothing = (
            Program(problem=problem, previous=previous).load().maximise(_zero_objective(problem))
        )
        return LevelSolution(level=0.0, bound=0.0, solution=nothing, iterations=0, basis=())
    level = floor = float(((age + steps / problem.best) / isolated)[counted].max())
    basis, iterations = previous, 0
    for _ in range(STEPS):
        left_s = np.where(counted, level * isolated - age, 1.0)
        demand = np.where(counted, np.minimum(steps / left_s, problem.best), 0.0)
        program = _scaled(problem, demand, basis)
        solution = program.maximise(_zero_objective(problem))
        basis, iterations = solution.basis, iterations + solution.iterations
        excess = float(solution.columns[0])
        value = solution.throughput_price * problem.classes.count
        falls = -float((value * demand / left_s * isolated)[counted].sum())
        after = max(floor, level - excess / falls) if falls < 0 else level
        if abs(excess) <= REQUIREMENT_TOLERANCE or abs(after - level) <= STALL_TOLERANCE * level:
            break
        level = after
    else:
        raise SolveError(f"the level was not met after {STEPS} steps of Newton's method")
    bound = max(floor, _level_bound(problem, solution, demand, level, falls))
    program.pair_penalty = pair_penalty
    last = best_at_least_excess(
        program, solution, LinearObjective(gain, np.zeros(len(problem.accelerator_of_slot)))
    )
    return LevelSolution(
        level=level,
        bound=bound,
        solution=last,
        iterations=iterations + last.iterations,
        basis=basis,
    )


def _zero_objective(problem: ShareProblem) -> LinearObjective:
    """The objective that is 0 for all shares: only extra columns count."""
    return LinearObjective(np.zeros(len(problem.scale)), np.zeros(len(problem.accelerator_of_slot)))


def _scaled(problem: ShareProblem, demand: Floats, basis: tuple[bytes, ...]) -> Program:
    """The program: max 1 - lambda, with every demand met on lambda times the capacities. demand: (classes,)
    steps/s of a job."""
    types = np.arange(len(problem.capacity))
    program = Program(problem=problem, throughput=True, demand=demand, previous=basis)
    program.columns = ExtraColumns(
        cost=-np.ones(1), lower=-np.ones(1), upper=np.full(1, np.inf),
        column=np.zeros(len(types), np.int64), row=program.device_row(types), value=-np.ones(len(types)),
    )  # fmt: skip
    return program.load()


def _level_bound(
    problem: ShareProblem, solution: ProgramSolution, demand: Floats, level: float, falls: float
) -> float:
    """A bound below which no level can be met: where the tangent of the cost of all demands, at the
    solution's prices, reaches the price of all devices. falls: slope of that tangent; 0.0 unless < 0."""
    if not falls < 0:
        return 0.0
    value, price = solution.throughput_price, solution.device_price
    time = proven_time_price(
        problem, value, solution.time_price, price[problem.accelerator_of_slot]
    )
    count = problem.classes.count
    cost = float((count * (value * demand - time)).sum())
    return level + (cost - float(price @ problem.capacity)) / -falls
