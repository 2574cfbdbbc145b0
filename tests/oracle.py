"""Every program of the policies, stated literally over jobs and solved with cvxpy.

Slow, and as plain as can be: one variable for each job group and slot type, no classes, no pruning. A
function per policy gives the optimal objective as the policy's docstring defines it; ``tests.programs``
lists them.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import cvxpy as cp
import numpy as np
from scipy.optimize import brentq

from fairlead.model.arrays import Bools, Floats
from fairlead.model.snapshot import Snapshot

TIGHT = 1e-10
BEYOND = 1e-7  # relative: what counts as rising above a level
SLACK = 1e-9  # relative: how far below its level a frozen job may fall for rounding
LATE = 1e-10  # shortfall above the least that rounding makes


class Shares:
    """x[u, j], the feasible set, and what each job gets out of it.

    rate: (jobs, slots) steps/s of a job alone; packed: are pairs of equal scale factor job groups too?
    size: of the cluster and of everybody's time, all in the same measure (for ratios).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        rate: Floats,
        packed: bool = False,
        size: float | cp.Expression = 1.0,
    ) -> None:
        jobs, slots = rate.shape
        groups: list[tuple[int, ...]] = [(i,) for i in range(jobs)]
        scale = snapshot.job_scale
        if packed and snapshot.colocated_rate is not None:
            groups += [(a, b) for a, b in combinations(range(jobs), 2) if scale[a] == scale[b]]
        self.x = cp.Variable((len(groups), slots), nonneg=True)
        member = np.zeros((jobs, len(groups)))  # is job i in job group u?
        gets = np.zeros(
            (jobs, len(groups), slots)
        )  # steps/s of job i in job group u on slot type j
        for u, group in enumerate(groups):
            member[list(group), u] = 1.0
            if len(group) == 1:
                gets[group[0], u] = rate[group[0]]
            else:
                (a, b), colocated_rate = group, snapshot.colocated_rate
                assert colocated_rate is not None
                gets[a, u] = colocated_rate[snapshot.job_type[a], snapshot.job_type[b]]
                gets[b, u] = colocated_rate[snapshot.job_type[b], snapshot.job_type[a]]
        devices = scale[[group[0] for group in groups]].astype(np.float64)
        accelerator_of_slot = np.eye(len(snapshot.capacity))[
            snapshot.accelerator_of_slot
        ]  # (slots, types)
        self.flat = cp.vec(self.x, order="C")
        self.gets = gets.reshape(jobs, -1)
        self.steps_per_s = self.gets @ self.flat  # (jobs,)
        self.used = devices @ self.x @ accelerator_of_slot  # (types,) devices
        self.feasible = [
            member @ cp.sum(self.x, axis=1) <= size,
            self.used <= snapshot.capacity * size,
        ]


def maximum(objective: cp.Expression, constraints: list[cp.Constraint]) -> float:
    """The largest value; the program must have one."""
    return solved(cp.Problem(cp.Maximize(objective), constraints))


def solved(problem: cp.Problem) -> float:
    """The optimum: of a linear program by HiGHS, of a conic one by Clarabel."""
    if problem.is_lp():
        problem.solve(
            solver=cp.HIGHS,
            highs_options={
                "primal_feasibility_tolerance": TIGHT,
                "dual_feasibility_tolerance": TIGHT,
            },
        )
        assert problem.status == cp.OPTIMAL, problem.status
    else:
        with warnings.catch_warnings():  # it stops a little short of what is asked now and then
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=TIGHT, tol_gap_rel=TIGHT, tol_feas=TIGHT)
        assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE), problem.status
    return float(problem.value)


# --- what the programs have in common ---------------------------------------------------------


def consolidated(snapshot: Snapshot) -> list[int]:
    """The first slot type of each accelerator type."""
    return [
        int(np.flatnonzero(snapshot.accelerator_of_slot == k)[0])
        for k in range(len(snapshot.capacity))
    ]


def proportional(snapshot: Snapshot) -> Floats:
    """p_i: steps/s of a job whose time goes over the devices of the cluster alike."""
    devices = snapshot.capacity / max(snapshot.capacity.sum(), 1.0)
    return np.asarray(snapshot.solo_rate[:, consolidated(snapshot)] @ devices)


def mean_rate(snapshot: Snapshot) -> Floats:
    """(jobs, slots) what an agnostic policy takes for a job's rates: p_i everywhere."""
    return np.repeat(proportional(snapshot)[:, None], len(snapshot.slots), axis=1)


def isolated_rate(snapshot: Snapshot, part: Floats) -> Floats:
    """(jobs,) steps/s with a part of every type for oneself, and no more than all of one's time."""
    x = part[:, None] * snapshot.capacity / snapshot.job_scale[:, None]
    x /= np.maximum(x.sum(axis=1), 1.0)[:, None]
    return np.asarray((snapshot.solo_rate[:, consolidated(snapshot)] * x).sum(axis=1))


def inverse(value: Floats) -> Floats:
    return np.divide(1.0, value, out=np.zeros_like(value), where=value > 0)


# --- max-min fairness ---------------------------------------------------------------------------


def las(snapshot: Snapshot) -> float:
    """max min_i s_i / w_i sum_j x_ij"""
    ones = np.ones_like(snapshot.solo_rate)
    return max_min(
        Shares(snapshot, ones), snapshot.job_scale / snapshot.weight, np.ones(len(ones), np.bool_)
    )


def las_aware(snapshot: Snapshot, packed: bool = False) -> float:
    """max min_i s_i / (w_i p_i) t_i"""
    p = proportional(snapshot)
    worth = snapshot.job_scale / snapshot.weight * inverse(p)
    return max_min(Shares(snapshot, snapshot.solo_rate, packed), worth, p > 0)


def las_packed(snapshot: Snapshot) -> float:
    """max min_i 1 / (w_i p_i) sum_{c with i} s_c t_c"""
    return las_aware(snapshot, packed=True)


def max_min(shares: Shares, worth: Floats, can: Bools) -> float:
    """max min_i worth_i t_i over the jobs that can run"""
    if not can.any():
        return 0.0
    level = cp.multiply(worth[can], shares.steps_per_s[can])
    return maximum(cp.min(level), shares.feasible)


def water_filling(snapshot: Snapshot) -> Floats:
    """(jobs,) s_i / w_i sum_j x_ij, lexicographically as fair as can be"""
    ones, jobs = np.ones_like(snapshot.solo_rate), len(snapshot.jobs)
    slope = snapshot.weight / snapshot.job_scale
    filled = fill(Shares(snapshot, ones), np.ones(jobs), np.ones(jobs, np.bool_), lambda _: slope)
    return filled / slope


def water_filling_aware(snapshot: Snapshot, packed: bool = False) -> Floats:
    """(jobs,) s_i / (w_i p_i) t_i, lexicographically as fair as can be"""
    p = proportional(snapshot)
    shares = Shares(snapshot, snapshot.solo_rate, packed)
    slope = snapshot.weight / snapshot.job_scale
    return fill(shares, inverse(p), p > 0, lambda _: slope) / slope


def water_filling_packed(snapshot: Snapshot) -> Floats:
    """The same over jobs and pairs."""
    return water_filling_aware(snapshot, packed=True)


@dataclass(frozen=True)
class Inner:
    """An entity: what is in it by weight, or in order of submission."""

    weight: float
    jobs: tuple[int, ...]  # positions
    inside: tuple["Inner", ...] = ()
    fifo: bool = False  # only without entities inside

    def pace(self, snapshot: Snapshot, rising: Bools, amount: float) -> Floats:
        """(jobs,) what each job gets of an amount that goes to those that rise"""
        out = np.zeros(len(rising))
        jobs = [i for i in self.jobs if rising[i]]
        inside = [entity for entity in self.inside if entity.rises(rising)]
        if self.fifo:
            out[jobs[:1]] = amount
            return out
        total = sum(snapshot.weight[jobs]) + sum(entity.weight for entity in inside)
        for i in jobs:
            out[i] = amount * snapshot.weight[i] / total
        for entity in inside:
            out += entity.pace(snapshot, rising, amount * entity.weight / total)
        return out

    def rises(self, rising: Bools) -> bool:
        inside = any(entity.rises(rising) for entity in self.inside)
        return inside or bool(rising[list(self.jobs)].any())


def hierarchical(snapshot: Snapshot, root: Inner, aware: bool = True) -> Floats:
    """(jobs,) t_i / p_i (or sum_j x_ij) raised by entities, each job by its pace over its devices"""
    p, scale = proportional(snapshot), snapshot.job_scale

    def slopes(rising: Bools) -> Floats:
        return root.pace(snapshot, rising, 1.0) / scale

    if aware:
        return fill(Shares(snapshot, snapshot.solo_rate), inverse(p), p > 0, slopes)
    ones = np.ones_like(snapshot.solo_rate)
    return fill(Shares(snapshot, ones), np.ones_like(p), np.ones(len(p), np.bool_), slopes)


def fill(shares: Shares, worth: Floats, can: Bools, slopes: Callable[[Bools], Floats]) -> Floats:
    """(jobs,) worth_i t_i: raise all jobs together, each at its slope, freeze those that cannot rise
    alone, go on with the others. slopes: of the jobs that rise, given which do."""
    jobs = len(can)
    floor, up, wanted = (cp.Parameter(jobs, nonneg=True) for _ in range(3))
    got, z = cp.multiply(worth, shares.steps_per_s), cp.Variable(nonneg=True)
    feasible = [*shares.feasible, got >= floor + cp.multiply(up, z)]
    together = cp.Problem(cp.Maximize(z), feasible)
    alone = cp.Problem(cp.Maximize(wanted @ got), feasible)
    level, rising = np.zeros(jobs), can.copy()
    while rising.any():
        slope = np.where(rising, slopes(rising), 0.0)
        floor.value, up.value = level * (1 - SLACK), slope
        level = level + slope * solved(together)
        floor.value, up.value = level * (1 - SLACK), np.zeros(jobs)
        for i in np.flatnonzero(rising).tolist():
            wanted.value = np.eye(jobs)[i]
            rising[i] = solved(alone) > level[i] * (1 + BEYOND) + SLACK
    return level


# --- makespan and finish-time fairness ------------------------------------------------------------


def makespan(snapshot: Snapshot) -> float:
    """min max_i n_i / (p_i sum_j x_ij)"""
    return slowest(snapshot, Shares(snapshot, mean_rate(snapshot)))


def makespan_aware(snapshot: Snapshot) -> float:
    """min max_i n_i / t_i"""
    return slowest(snapshot, Shares(snapshot, snapshot.solo_rate))


def makespan_packed(snapshot: Snapshot) -> float:
    """min max_i n_i / sum_{c with i} t_c"""
    return slowest(snapshot, Shares(snapshot, snapshot.solo_rate, packed=True))


def slowest(snapshot: Snapshot, shares: Shares) -> float:
    """1 / max min_i t_i / n_i"""
    has_say = (snapshot.steps_left > 0) & (proportional(snapshot) > 0)
    if not has_say.any():
        return 0.0
    steps = snapshot.steps_left
    unit = float(steps.max() / shares.gets.max())  # seconds, so that the program is of order one
    return unit / max_min(shares, inverse(steps) * unit, has_say)


def finish_time(snapshot: Snapshot) -> float:
    """min max_i rho_i with p_i for every rate"""
    return worst_rho(snapshot, Shares(snapshot, mean_rate(snapshot)), by_weight(snapshot))


def finish_time_aware(snapshot: Snapshot) -> float:
    """min max_i rho_i"""
    return worst_rho(snapshot, Shares(snapshot, snapshot.solo_rate), by_weight(snapshot))


def finish_time_packed(snapshot: Snapshot) -> float:
    """min max_i rho_i over jobs and pairs"""
    shares = Shares(snapshot, snapshot.solo_rate, packed=True)
    return worst_rho(snapshot, shares, by_weight(snapshot))


def by_weight(snapshot: Snapshot) -> Floats:
    """(jobs,) part of the cluster that a job has when it is by itself."""
    return np.asarray(snapshot.weight / snapshot.weight.sum())


def worst_rho(snapshot: Snapshot, shares: Shares, part: Floats) -> float:
    """min max_i (a_i + n_i / t_i) / (c_i + n_i / I_i), where feasible means that all jobs can have
    t_i >= n_i / (rho (c_i + n_i / I_i) - a_i)"""
    has_say = (snapshot.steps_left > 0) & (proportional(snapshot) > 0)
    if not has_say.any():
        return 0.0
    age, steps = snapshot.age_s[has_say], snapshot.steps_left[has_say]
    isolated_s = snapshot.isolated_s[has_say] + steps / isolated_rate(snapshot, part)[has_say]
    fastest = shares.gets.max(axis=1)[has_say]
    alone = (
        age + steps / fastest
    ) / isolated_s  # nobody can do better than at full speed all the time
    need = cp.Parameter(int(has_say.sum()), nonneg=True)
    spare = cp.Variable()
    rate = cp.multiply(1 / fastest, shares.steps_per_s[has_say])
    problem = cp.Problem(cp.Maximize(spare), [*shares.feasible, rate >= cp.multiply(need, spare)])

    def excess(log_rho: float) -> float:
        """log of the factor by which every requirement could be larger"""
        need.value = steps / fastest / (np.exp(log_rho) * isolated_s - age)
        return float(np.log(solved(problem)))

    low = float(np.log(alone.max())) + 1e-12
    if excess(low) >= 0:
        return float(alone.max())
    high = low + 1
    while excess(high) < 0:
        high += 2
    return float(np.exp(brentq(excess, low, high, xtol=1e-10, rtol=1e-12)))


# --- sums -----------------------------------------------------------------------------------------


def total_throughput(snapshot: Snapshot, packed: bool = False) -> float:
    """max sum_i t_i"""
    shares = Shares(snapshot, snapshot.solo_rate, packed)
    return maximum(cp.sum(shares.steps_per_s), shares.feasible)


def total_throughput_packed(snapshot: Snapshot) -> float:
    """The same over jobs and pairs."""
    return total_throughput(snapshot, packed=True)


def total_throughput_normalised(snapshot: Snapshot) -> float:
    """max sum_i t_i / the fastest that it could be"""
    shares = Shares(snapshot, snapshot.solo_rate)
    return maximum(inverse(fastest(snapshot)) @ shares.steps_per_s, shares.feasible)


def fastest(snapshot: Snapshot) -> Floats:
    """(jobs,) steps/s alone on the fastest type that has devices"""
    has = (snapshot.capacity > 0)[snapshot.accelerator_of_slot]
    return np.asarray((snapshot.solo_rate * has).max(axis=1))


def throughput_per_cost(snapshot: Snapshot) -> float:
    """max sum_ij T_ij / c_j x_ij"""
    shares = Shares(snapshot, snapshot.solo_rate / price(snapshot))
    return maximum(cp.sum(shares.steps_per_s), shares.feasible)


def throughput_per_cost_slo(snapshot: Snapshot, packed: bool = False, slack: float = LATE) -> float:
    """max sum_ij T_ij / c_j x_ij among the shares with the least shortfall"""
    shares = Shares(snapshot, snapshot.solo_rate, packed)
    groups = shares.x.shape[0]
    worth = (shares.gets.sum(axis=0) / np.tile(price(snapshot), groups)) @ shares.flat
    late, constraints = shortfall(snapshot, shares.steps_per_s)
    in_time = late <= least_shortfall(snapshot, packed) + slack
    return maximum(worth, [*shares.feasible, *constraints, in_time])


def throughput_per_cost_packed_slo(snapshot: Snapshot, slack: float = LATE) -> float:
    """The same over jobs and pairs."""
    return throughput_per_cost_slo(snapshot, packed=True, slack=slack)


def min_cost(snapshot: Snapshot) -> float:
    """max (sum_i t_i / b_i) / (sum_ij c_j s_i x_ij), b_i = max_j T_ij / (c_j s_i)"""
    return min_cost_slo(snapshot, slack=np.inf)


def min_cost_slo(snapshot: Snapshot, slack: float = LATE) -> float:
    """The same among the shares with the least shortfall. As Charnes and Cooper do it: shares scaled so
    that they cost 1, in a cluster that is scaled as they are."""
    size = cp.Variable(nonneg=True)
    shares = Shares(snapshot, snapshot.solo_rate, size=size)
    worth = work_worth(snapshot)
    if not worth.any():
        return 0.0
    constraints = [*shares.feasible, shares.used @ snapshot.price == 1]
    if slack < np.inf:
        late, more = shortfall(snapshot, shares.steps_per_s, size)
        constraints += [*more, late <= (least_shortfall(snapshot) + slack) * size]
    return maximum(worth @ shares.steps_per_s, constraints)


def price(snapshot: Snapshot) -> Floats:
    """(slots,) $ per device-hour"""
    return snapshot.price[snapshot.accelerator_of_slot]


def work_worth(snapshot: Snapshot) -> Floats:
    """(jobs,) 1 / b_i: $/h per step/s at a job's own best price"""
    has = (snapshot.capacity > 0)[snapshot.accelerator_of_slot]
    per_dollar = np.where(has, snapshot.solo_rate / price(snapshot), 0.0).max(axis=1)
    return inverse(per_dollar / snapshot.job_scale)


def needs(snapshot: Snapshot) -> Floats:
    """(jobs,) steps left / time left, but no more than the job's fastest rate; 0 = no deadline"""
    dated = np.isfinite(snapshot.deadline_s) & (snapshot.steps_left > 0)
    asked = snapshot.steps_left / np.maximum(snapshot.deadline_s, 1e-300)
    return np.where(dated, np.minimum(asked, fastest(snapshot)), 0.0)


def shortfall(
    snapshot: Snapshot, steps_per_s: cp.Expression, size: float | cp.Expression = 1.0
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """sum_i (1 - t_i / n_i)+ over the jobs that need n_i > 0, and what makes it so"""
    need = needs(snapshot)
    short = cp.Variable(len(need), nonneg=True)
    has = (need > 0).astype(np.float64)
    return cp.sum(short), [short >= has * size - cp.multiply(inverse(need), steps_per_s)]


def least_shortfall(snapshot: Snapshot, packed: bool = False) -> float:
    shares = Shares(snapshot, snapshot.solo_rate, packed)
    late, constraints = shortfall(snapshot, shares.steps_per_s)
    return -maximum(-late, [*shares.feasible, *constraints])


def nash(snapshot: Snapshot) -> float:
    """max prod_i (t_i / p_i) ** (w_i / sum w) over the jobs that can run"""
    p = proportional(snapshot)
    can = p > 0
    if not can.any():
        return 0.0
    part = snapshot.weight[can] / snapshot.weight[can].sum()
    return float(np.exp(part @ np.log(nash_bargain(snapshot, can)[can])))


def partial_allocation(snapshot: Snapshot) -> Floats:
    """(jobs,) f_i t_i / p_i, t the Nash throughputs, f_i what i costs the others of their product"""
    can = proportional(snapshot) > 0
    together = nash_bargain(snapshot, can)
    kept = np.zeros(len(can))
    for i in np.flatnonzero(can):
        others = can & (np.arange(len(can)) != i)
        loss = np.log(together[others]) - np.log(nash_bargain(snapshot, others)[others])
        kept[i] = np.exp(snapshot.weight[others] @ loss / snapshot.weight[i])
    return kept * together


def nash_bargain(snapshot: Snapshot, present: Bools) -> Floats:
    """(jobs,) t_i / p_i of those who are present"""
    shares = Shares(snapshot, snapshot.solo_rate)
    if present.any():
        level = cp.multiply(inverse(proportional(snapshot)), shares.steps_per_s)
        part = snapshot.weight[present] / snapshot.weight[present].sum()
        maximum(part @ cp.log(level[present]), shares.feasible)
        return np.where(present, level.value, 0.0)
    return np.zeros(len(present))


def gain_over(snapshot: Snapshot, fair: Floats) -> float:
    """max sum_i t_i / fair_i with t_i >= fair_i; fair: (jobs,) steps/s, 0 = out of it"""
    shares = Shares(snapshot, snapshot.solo_rate)
    gain = inverse(fair) @ shares.steps_per_s
    return maximum(gain, [*shares.feasible, shares.steps_per_s >= fair * (1 - 1e-9)])
