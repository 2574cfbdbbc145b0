"""Proportional fairness, and the partial allocation that makes it strategy-proof."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, effective_throughput
from fairlead.model.arrays import Bools, Floats
from fairlead.model.plan import BasePolicy
from fairlead.model.rates import proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation, violation
from fairlead.policies.solve.nash import (
    Equilibrium,
    NashMarket,
    equilibrium,
    surplus,
)
from fairlead.policies.solve.share_problem import ShareProblem

_MIN_SHARE_GAIN = 1e-9  # shares that add less than this part of a job's throughput are taken back
_SPENDING_TOLERANCE = (
    1e-12  # spending less than this part of its weight, a job takes nothing from others
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Nash(BasePolicy):
    """max_x prod_i (t_i / p_i)^(w_i / sum w),  t_i = sum_j T_ij x_ij,  s.t.  time of each job, devices.

    T_ij rate of job i on slot type j, p_i = sum_j T_ij N_j / sum_j N_j its rate under proportional
    shares, w_i its weight. The same shares maximise sum_i w_i log t_i (Nash's bargaining solution; no
    change of shares has a positive sum of weighted relative changes of throughput) and are an equilibrium
    in which every job spends its weight on devices at common prices; the throughputs are unique. Source:
    proportional fairness; Eisenberg and Gale (1959). The objective's relative gap is that
    of a weighted geometric mean. A job that can run nowhere gets nothing and is left out.
    """

    weighted: bool = True
    name: str = "nash"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified; an interior-point method over classes (``fairlead.policies.solve.nash``)."""
        problem = ShareProblem.of(snapshot)
        found = _solve(problem, _weights(snapshot, self.weighted)[problem.classes.representative])
        share = found.share[problem.classes.of]
        report = _report(snapshot, share, found, self.weighted)
        return check_allocation(allocation(snapshot, share, report), snapshot)

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The geometric mean of normalised throughputs."""
        weight = _weights(snapshot, self.weighted)
        throughput = effective_throughput(made, snapshot)
        runs = _can_run(snapshot)
        return _mean(throughput[runs], proportional_rate(snapshot)[runs], weight[runs])


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyProof(BasePolicy):
    """x_i = f_i x*_i,  x* the Nash shares,  f_i = prod_{k != i} (t_k(x*) / t_k(x* without i))^(w_k / w_i).

    Partial allocation: each job keeps the part of its proportionally fair shares by which its presence
    lowers the others' product of throughputs, so that no job gains by reporting other rates than its own;
    f_i >= 1/e, and what is taken back stays idle. Source: Cole, Gkatzelis and Goel (EC'13); Gavel's
    release, max_min_fairness_strategy_proof_perf, which ignores weights, as this does unless weighted.
    Objective and bound are those of x*. One solve, and one more for each class of jobs that are in others'
    way: the time grows with the square of the number of classes.
    """

    weighted: bool = True
    name: str = "strategy_proof"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; the report certifies the Nash shares that they are parts of."""
        problem = ShareProblem.of(snapshot)
        weight = _weights(snapshot, self.weighted)[problem.classes.representative]
        found = _solve(problem, weight)
        share = found.share[problem.classes.of]
        report = _report(snapshot, share, found, self.weighted)
        scaled = partial_allocation(problem, weight, found)
        share *= scaled[problem.classes.of, None]
        return check_allocation(allocation(snapshot, share, report), snapshot)


def partial_allocation(problem: ShareProblem, weight: Floats, found: Equilibrium) -> Floats:
    """(classes,) the part f of its Nash shares that each job of a class keeps."""
    count = problem.classes.count
    with_all = _throughput(problem, found)
    pays = problem.scale * (found.share @ problem.slot_cost(found.price))
    fraction = np.ones(len(count))
    for c in np.flatnonzero(pays > _SPENDING_TOLERANCE * weight):
        others = count.copy()
        others[c] -= 1
        there = (others > 0) & problem.can_run
        without = _throughput(problem, _solve(problem, weight, others))
        loss = np.log(with_all[there]) - np.log(without[there])
        fraction[c] = np.exp(min(0.0, float((weight * others)[there] @ loss) / weight[c]))
    return fraction


def _weights(snapshot: Snapshot, weighted: bool) -> Floats:
    return snapshot.weight if weighted else np.ones(len(snapshot.jobs))


def _solve(problem: ShareProblem, weight: Floats, count: Floats | None = None) -> Equilibrium:
    """Shares of all classes on all slots, zero where a class has no jobs or can run nowhere."""
    count = problem.classes.count if count is None else count
    runs = np.flatnonzero(problem.can_run & (count > 0))
    slots = np.flatnonzero((problem.capacity > 0)[problem.accelerator_of_slot])
    types = problem.capacity > 0
    inner = equilibrium(
        NashMarket(
            rate=problem.rate[np.ix_(runs, slots)],
            weight=weight[runs],
            class_size=count[runs],
            scale=problem.scale[runs],
            accelerator_of_slot=(np.cumsum(types) - 1)[problem.accelerator_of_slot[slots]],
            slot_devices=problem.slot_devices[slots],
            capacity=problem.capacity[types],
        )
    )
    share, price = np.zeros(problem.rate.shape), np.zeros(len(types))
    share[np.ix_(runs, slots)] = inner.share
    price[types] = inner.price
    made = problem.rate * share
    share[made < _MIN_SHARE_GAIN * made.sum(axis=1, keepdims=True)] = 0.0
    return Equilibrium(share, price, inner.steps)


def _throughput(problem: ShareProblem, found: Equilibrium) -> Floats:
    """(classes,) steps/s of a job."""
    return np.asarray((problem.rate * found.share).sum(axis=1))


def _report(snapshot: Snapshot, share: Floats, found: Equilibrium, weighted: bool) -> SolveReport:
    """Objective and bound from the jobs' own rows."""
    rate, weight = snapshot.solo_rate, _weights(snapshot, weighted)
    usable = (snapshot.capacity > 0)[snapshot.accelerator_of_slot]
    runs = _can_run(snapshot)
    excess = violation(snapshot, share)
    if not runs.any():
        return SolveReport("optimal", 0.0, 0.0, excess)
    throughput = (rate[runs] * share[runs]).sum(axis=1)
    total = float(weight[runs].sum())
    objective = _mean(throughput, proportional_rate(snapshot)[runs], weight[runs])
    jobs = NashMarket(
        rate=np.where(usable, rate[runs], 0.0),
        weight=weight[runs],
        class_size=np.ones(len(throughput)),
        scale=snapshot.job_scale[runs].astype(np.float64),
        accelerator_of_slot=snapshot.accelerator_of_slot,
        slot_devices=snapshot.slot_devices,
        capacity=snapshot.capacity,
    )
    beyond = surplus(jobs, throughput, found.price)
    return SolveReport(
        "optimal", objective, objective * float(np.exp(beyond / total)), excess, found.steps
    )


def _can_run(snapshot: Snapshot) -> Bools:
    """(jobs,) whether a job can use any device."""
    usable = (snapshot.capacity > 0)[snapshot.accelerator_of_slot]
    return np.asarray((snapshot.solo_rate[:, usable] > 0).any(axis=1))


def _mean(throughput: Floats, unit_rate: Floats, weight: Floats) -> float:
    """The weighted geometric mean of throughput / unit_rate; 0 where one is 0, or there is none."""
    if not len(throughput) or not throughput.min() > 0:
        return 0.0
    return float(np.exp(weight @ np.log(throughput / unit_rate) / weight.sum()))
