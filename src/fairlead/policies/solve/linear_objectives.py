"""Linear objectives of the shares, with deadlines if there are any, and their ratio to what they cost.

    sum_ij value_ij T_ij x_ij    or    (sum_ij value_ij T_ij x_ij) / (sum_ij c_j s_i x_ij)

over the programs of ``fairlead.policies.solve.program``. A deadline asks for a throughput of need_i. Not
all can be met in general, so a first phase finds the least shortfall, L* = min sum_i u_i / n with
t_i >= (1 - u_i) need_i: u_i in [0, 1] is the part of its need that job i goes without, n the number of jobs
with deadlines. A second phase holds it, up to the solver's tolerance, and maximises the objective.

A ratio is made linear by Charnes and Cooper's change of variables (Naval Res. Logist. Q. 9, 1962): shares
times a factor f >= 0 that is chosen so that the cost is 1. Its optimum may be tiny shares (any multiple of
the best shares has the same ratio), so that a further phase holds the ratio and maximises the sum.

Bounds hold for any prices >= 0 of devices p, needs m and shortfall l: with r_i the most that any
configuration earns per unit of a job's time at values value_ij + m_i and these costs,

    sum_k p_k N_k + l L* + sum_i (r_i + max(0, m_i need_i - l / n) - m_i need_i).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.policies.solve.analytic_centre import SparseColumns, analytic_centre
from fairlead.policies.solve.candidate_pairs import proven_time_price
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.program import ConstraintRow, ExtraColumns, Program, ProgramSolution
from fairlead.policies.solve.share_problem import ShareProblem

MAX_CENTRED_CLASSES = 500  # classes; the method's time grows with their cube
TOLERANCE = 1e-9  # part of an optimum that the next phase may give up


@dataclass(frozen=True, slots=True)
class RateDemand:
    """Rates that deadlines require, and the shortfall that cannot be avoided."""

    rate: Floats  # (classes,) steps/s that each job must get; 0 = no deadline, and never above its fastest
    shortfall: float  # L*, per job with a deadline
    basis: tuple[bytes, ...] = ()  # where L* was found, with the pairs that it takes

    @staticmethod
    def none(problem: ShareProblem) -> "RateDemand":
        """Return the demand of jobs without deadlines."""
        return RateDemand(np.zeros(len(problem.scale)), 0.0)

    @property
    def with_deadline(self) -> Ints:
        """Classes that have a deadline."""
        return np.flatnonzero(self.rate > 0)

    @property
    def allowed(self) -> float:
        """The shortfall that later phases may have."""
        return self.shortfall + TOLERANCE

    def part(self, problem: ShareProblem) -> Floats:
        """(dated classes,) part of the jobs with deadlines."""
        count = problem.classes.count[self.with_deadline]
        return np.asarray(count / max(1.0, count.sum()))


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices that prove a bound."""

    device: Floats  # (types,)
    time: Floats  # (classes,) of one job
    demand: Floats  # (classes,) per step/s asked of one job
    shortfall: float


@dataclass(frozen=True, slots=True)
class JobRates:
    """Single jobs, so that bounds are computed from their own rows."""

    rate: Floats  # (jobs, slots) steps/s alone
    scale: Ints  # (jobs,)


@dataclass(frozen=True, slots=True)
class LargestSum:
    """The largest sum, and the prices that prove it."""

    solution: ProgramSolution
    prices: Prices


def largest_sum(
    problem: ShareProblem, value: Floats, demand: RateDemand, previous: tuple[bytes, ...] = ()
) -> LargestSum:
    """max sum_ij value_ij T_ij x_ij, with the needs met but for their shortfall. value: (classes, slots)."""
    program = _program(problem, demand, demand.basis or previous)
    solution = program.maximise(LinearObjective(value, _no_cost(problem)))
    return LargestSum(solution, _prices(solution, 0))


def sum_analytic_centre(problem: ShareProblem, value: Floats, demand: RateDemand) -> Floats | None:
    """(classes, slots) shares of one job, alone, at the analytic centre of those with the largest sum, all
    needs met; None where it was not found, or there are too many classes to look for it."""
    first, slot = np.nonzero(problem.rate > 0)
    n, count = len(problem.scale), problem.classes.count
    if n > MAX_CENTRED_CLASSES or not len(first):
        return None
    required = demand.rate[first]
    devices = count * problem.scale
    per_device = (
        devices[first]
        * problem.slot_devices[slot]
        / np.maximum(problem.capacity, 1.0)[problem.accelerator_of_slot[slot]]
    )
    asked = np.divide(
        problem.rate[first, slot], required, out=np.zeros(len(required)), where=required > 0
    )
    row = np.column_stack(
        [first, n + problem.accelerator_of_slot[slot], n + len(problem.capacity) + first]
    )
    entry = np.column_stack([np.ones(len(first)), per_device, -asked])
    b = np.ones(2 * n + len(problem.capacity))
    b[n + len(problem.capacity) :][demand.with_deadline] = -1.0
    gain = count[first] * value[first, slot] * problem.rate[first, slot]
    there = entry != 0
    start = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    columns = SparseColumns(start, row[there], entry[there])
    found = analytic_centre(columns, b, gain / (gain.max(initial=0.0) or 1.0))
    if found is None:
        return None
    share = np.zeros(problem.rate.shape)
    share[first, slot] = found.x
    by_slot = devices @ share * problem.slot_devices
    used = np.bincount(problem.accelerator_of_slot, by_slot, len(problem.capacity))
    over = max(share.sum(axis=1).max(), (used / np.maximum(problem.capacity, 1.0)).max())
    return np.asarray(share / max(1.0, over))


def least_shortfall(
    problem: ShareProblem, rate: Floats, previous: tuple[bytes, ...] = ()
) -> RateDemand:
    """The demand of ``rate`` with the least shortfall. rate: (classes,) steps/s asked of each job, 0 =
    nothing."""
    asked = RateDemand(np.where(problem.can_run, np.minimum(rate, problem.best), 0.0), np.inf)
    with_deadline = asked.with_deadline
    if not len(with_deadline):
        return RateDemand.none(problem)
    program = _program(problem, asked, previous)
    nothing = LinearObjective(np.zeros(problem.rate.shape), _no_cost(problem))
    late = program.maximise(nothing, -asked.part(problem))
    return RateDemand(asked.rate, max(0.0, -late.objective), late.basis)


def sum_bound(
    problem: ShareProblem, value: Floats, demand: RateDemand, prices: Prices, jobs: JobRates | None
) -> float:
    """A bound: no shares have a larger sum. jobs: None where there are pairs; the bound is then of
    classes."""
    return _bound(problem, value, demand, prices, _no_cost(problem), jobs)


def best_ratio(
    problem: ShareProblem, value: Floats, cost: Floats, demand: RateDemand
) -> tuple[float, Prices]:
    """max sum_ij value_ij T_ij x_ij / sum_ij cost_j s_i x_ij, and what proves it. cost: (slots,) > 0."""
    budget = float(cost @ problem.capacity[problem.accelerator_of_slot]) or 1.0
    program = _homogeneous(problem, cost / budget, demand)
    solution = program.maximise(LinearObjective(value, _no_cost(problem)))
    return solution.objective / budget, _prices(solution, 1)


def at_ratio(
    problem: ShareProblem, value: Floats, cost: Floats, demand: RateDemand, ratio: float
) -> ProgramSolution:
    """The largest sum among shares with this ratio, less ``TOLERANCE`` of it."""
    at_ratio_row = ConstraintRow(
        LinearObjective(value, cost * ratio * (1 - TOLERANCE)), 0.0, np.inf
    )
    program = _program(problem, demand, (), [at_ratio_row])
    return program.maximise(LinearObjective(value, _no_cost(problem)))


def ratio_bound(
    problem: ShareProblem,
    value: Floats,
    cost: Floats,
    demand: RateDemand,
    *,
    prices: Prices,
    jobs: JobRates,
    reached: float,
) -> float:
    """A bound: no shares have a larger ratio. It is at most that of the best configuration, and at most what
    is reached plus the sum that could still be gained beyond it over the least that the needs cost."""
    best = float((value * problem.rate / problem.per_device(cost)).max(initial=0.0))
    least = _least_cost(problem, cost, demand)
    if not least > 0:
        return best
    gain = _bound(problem, value, demand, prices, cost * reached, jobs)
    return min(best, reached + max(0.0, gain) / least)


def _least_cost(problem: ShareProblem, cost: Floats, demand: RateDemand) -> float:
    """Return the cost of the needs where each job is cheapest.
    It leaves out the most expensive ones as far as shortfall allows."""
    per_step = np.full(problem.rate.shape, np.inf)
    np.divide(problem.per_device(cost), problem.rate, out=per_step, where=problem.rate > 0)
    with_deadline = demand.with_deadline
    each = demand.rate[with_deadline] * per_step[with_deadline].min(axis=1)
    order = np.argsort(-each)
    part = demand.part(problem)[order]
    unmet = part - np.clip(demand.allowed - (np.cumsum(part) - part), 0.0, part)
    jobs = problem.classes.count[with_deadline].sum()
    return float(each[order] @ unmet * jobs)


# --- programs ------------------------------------------------------------------------------------


def _program(
    problem: ShareProblem,
    demand: RateDemand,
    previous: tuple[bytes, ...] = (),
    rows: Sequence[ConstraintRow] = (),
) -> Program:
    """Further columns: the part of its need that each job of a class with a deadline goes without.
    Without such classes there are neither these columns nor rows for them."""
    with_deadline = demand.with_deadline
    if not len(with_deadline):
        return Program(problem=problem, rows=rows, previous=previous).load()
    program = Program(problem=problem, throughput=True, demand=demand.rate, previous=previous)
    program.rows = [ConstraintRow(_nothing(problem), -np.inf, demand.allowed), *rows]
    column = np.arange(len(with_deadline))
    late = np.full(len(with_deadline), program.further_row(0))
    program.columns = ExtraColumns(
        cost=np.zeros(len(with_deadline)),
        lower=np.zeros(len(with_deadline)),
        upper=np.ones(len(with_deadline)),
        column=np.concatenate([column, column]),
        row=np.concatenate([program.throughput_row(with_deadline), late]),
        value=np.concatenate([demand.rate[with_deadline], demand.part(problem)]),
    )
    return program.load()


def _homogeneous(problem: ShareProblem, cost: Floats, demand: RateDemand) -> Program:
    """The program of shares times f, where 1 + the last further column is f, and the cost is 1."""
    with_deadline = demand.with_deadline
    program = Program(
        problem=problem,
        throughput=len(with_deadline) > 0,
        demand=demand.rate if len(with_deadline) else None,
    )
    spent = ConstraintRow(LinearObjective(np.zeros(problem.rate.shape), -cost), 1.0, 1.0)
    program.rows = [ConstraintRow(_nothing(problem), -np.inf, demand.allowed), spent]
    column = np.arange(len(with_deadline))
    late = np.full(len(with_deadline), program.further_row(0))
    everywhere = np.concatenate(
        [
            program.time_row(np.arange(len(problem.scale))),
            program.device_row(np.arange(len(problem.capacity))),
        ]
    )
    factor = np.concatenate([program.throughput_row(with_deadline), everywhere, late[:1]])
    weight = np.concatenate(
        [
            -demand.rate[with_deadline],
            -np.ones(len(everywhere)),
            np.full(len(late[:1]), -demand.allowed),
        ]
    )
    program.columns = ExtraColumns(
        cost=np.zeros(len(with_deadline) + 1),
        lower=np.append(np.zeros(len(with_deadline)), -1.0),
        upper=np.full(len(with_deadline) + 1, np.inf),
        column=np.concatenate([column, column, np.full(len(factor), len(with_deadline))]),
        row=np.concatenate([program.throughput_row(with_deadline), late, factor]),
        value=np.concatenate([demand.rate[with_deadline], demand.part(problem), weight]),
    )
    return program.load()


def _no_cost(problem: ShareProblem) -> Floats:
    return np.zeros(len(problem.accelerator_of_slot))


def _nothing(problem: ShareProblem) -> LinearObjective:
    return LinearObjective(np.zeros(len(problem.scale)), _no_cost(problem))


# --- bounds ----------------------------------------------------------------------------------------


def _prices(solution: ProgramSolution, further: int) -> Prices:
    """The prices of a solution. further: number of further rows after that of shortfall."""
    has = len(solution.row_price) > further
    late = float(solution.row_price[0]) if has else 0.0
    return Prices(
        solution.device_price, solution.time_price, solution.throughput_price, max(0.0, late)
    )


def _bound(
    problem: ShareProblem,
    value: Floats,
    demand: RateDemand,
    prices: Prices,
    cost: Floats,
    jobs: JobRates | None,
) -> float:
    """The bound of the module's docstring, on the sum less a cost (slots,) per device."""
    count = problem.classes.count
    value, cost = value + prices.demand[:, None], prices.device[problem.accelerator_of_slot] + cost
    if jobs is None:
        rents = float(count @ proven_time_price(problem, value, prices.time, cost))
    else:
        cost[problem.capacity[problem.accelerator_of_slot] <= 0] = np.inf
        pays = cost * problem.slot_devices
        rents = _total_rent(
            np.ascontiguousarray(jobs.rate), jobs.scale, problem.classes.of, value, pays
        )
    bound = float(rents + prices.device @ problem.capacity)
    with_deadline = demand.with_deadline
    if len(with_deadline):
        asked = count[with_deadline] * prices.demand[with_deadline] * demand.rate[with_deadline]
        without = np.maximum(0.0, asked - prices.shortfall * demand.part(problem))
        bound += float((without - asked).sum()) + prices.shortfall * demand.allowed
    return bound


@kernel("f8(f8[:,::1], i8[::1], i8[::1], f8[:,::1], f8[::1])", allocates=False)
def _total_rent(rate: Floats, scale: Ints, of: Ints, value: Floats, cost: Floats) -> float:
    """Over all jobs, the most that each earns per unit of its time alone. value: (classes, slots) per
    step/s; cost: (slots,) per device."""
    total = 0.0
    for i in range(len(rate)):
        most = 0.0
        for j in range(rate.shape[1]):
            most = max(most, value[of[i], j] * rate[i, j] - scale[i] * cost[j])
        total += most
    return total
