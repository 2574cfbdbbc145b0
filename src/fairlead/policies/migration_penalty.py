"""A second solve that gives up a little of the objective to leave jobs where they are."""

from dataclasses import replace

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import tally_allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.rates import inverse_rate, proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.expand import pair_shares
from fairlead.policies.solve.program import ExtraColumns, Program
from fairlead.policies.solve.share_problem import ShareProblem

OBJECTIVE_TOLERANCE = 0.01  # part of the objective
_UNMET_TOLERANCE = 1e-7  # part of the needs
MAX_RATES = 2_000  # rates of classes beyond which the second solve takes longer than it is worth
INTERVAL_S = 7200.0  # a share that is withdrawn costs one start in about this time


def least_migration(
    snapshot: Snapshot, made: Allocation, need: Floats, space_sharing: bool = False
) -> Allocation:
    """max_x sum_i t_i / p_i - sum_ij m_i (y_ij - x_ij)+   s.t.  t_i >= need_i,  time, devices.

    y the shares of jobs alone in force, m_i = min(restart_i / INTERVAL_S, 1) * max_j T_ij / p_i what a
    start costs in normalised rate. need: (jobs,) steps/s that hold the policy's objective within
    ``OBJECTIVE_TOLERANCE`` of the optimum that ``made`` has. Without restart costs, with nothing in
    force, or with more than ``MAX_RATES`` rates, ``made`` itself; its report stays, for it is about the
    optimum.
    """
    solo = snapshot.group_members[:, 1] < 0 if snapshot.space_sharing else slice(None)
    current = snapshot.share[solo]
    if not (snapshot.restart_s.any() and current.any()):
        return made
    problem = ShareProblem.of(
        snapshot, _multiplicity_keys(snapshot, current, need), space_sharing=space_sharing
    )
    if np.count_nonzero(problem.rate) > MAX_RATES:
        return made
    classes = problem.classes
    gain = inverse_rate(proportional_rate(snapshot))[classes.representative]
    restart_s = np.minimum(snapshot.restart_s[classes.representative], INTERVAL_S)
    move_cost = restart_s / INTERVAL_S * gain * problem.best
    least = np.minimum(need[classes.representative], problem.best)
    program = Program(problem=problem, throughput=True, demand=least)
    in_force = current[classes.representative] * (problem.rate > 0)
    program.columns = _stay_columns(program, problem, in_force, gain, move_cost, least)
    solution = program.load().maximise(LinearObjective(gain, np.zeros(len(snapshot.slots))))
    if solution.columns[-1] > _UNMET_TOLERANCE:  # rounding: the needs cannot quite be met
        return made
    share = solution.per_job(problem)
    share[np.nonzero(in_force)] += solution.columns[:-1]
    pairs = pair_shares(problem, solution, snapshot) if space_sharing else ()
    new = allocation(snapshot, share[classes.of], made.report, *pairs)
    used, time = tally_allocation(new, snapshot)
    over = max(1.0, float((used / np.maximum(snapshot.capacity, 1.0)).max()), float(time.max()))
    return replace(new, share=new.share / over)


def _multiplicity_keys(snapshot: Snapshot, current: Floats, need: Floats) -> Ints:
    """(jobs,) a key, the same for jobs of one class with the same need and the same shares in force."""
    rows = np.column_stack([snapshot.job_class, need, snapshot.restart_s, current])
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _stay_columns(
    program: Program,
    problem: ShareProblem,
    in_force: Floats,
    gain: Floats,
    move_cost: Floats,
    least: Floats,
) -> ExtraColumns:
    """A column for every share in force of a job alone, up to that share, that earns what a move costs; and a
    last one, the part of all needs that is missed, which costs more than all else can earn: there may be no
    way to meet them before pairs have been found."""
    first, slot = np.nonzero(in_force)
    number, count = len(first), problem.classes.count[first]
    rate, accelerator = problem.rate[first, slot], problem.accelerator_of_slot[slot]
    devices = problem.scale[first] * count * problem.slot_devices[slot]
    devices = devices / np.maximum(problem.capacity, 1.0)[accelerator]
    column = np.tile(np.arange(number), 3)
    row = np.concatenate(
        [program.throughput_row(first), program.time_row(first), program.device_row(accelerator)]
    )
    asked = np.flatnonzero(least)
    shortfall_cost = 10.0 * float(problem.classes.count @ (gain * problem.best + move_cost))
    return ExtraColumns(
        cost=np.append(count * (gain[first] * rate + move_cost[first]), -shortfall_cost),
        lower=np.zeros(number + 1),
        upper=np.append(in_force[first, slot], 1.0),
        column=np.append(column, np.full(len(asked), number)),
        row=np.append(row, program.throughput_row(asked)),
        value=np.concatenate([rate, np.ones(number), devices, least[asked]]),
    )
