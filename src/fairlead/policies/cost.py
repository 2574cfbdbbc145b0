"""Work for money: throughput per dollar as Gavel's release has it, and as its paper states it."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, effective_throughput, group_members
from fairlead.model.arrays import Floats
from fairlead.model.plan import BasePolicy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation_by_class
from fairlead.policies.linear_objectives import (
    SHORTFALL_TOLERANCE,
    InteriorShares,
    allocation_violation,
    deadline_rates,
    late_jobs,
    maximise_sum,
    pairs_where_they_pay,
    prices,
    problem_by_need,
    scale_rates,
)
from fairlead.policies.solve.linear_objectives import (
    JobRates,
    RateDemand,
    at_ratio,
    best_ratio,
    least_shortfall,
    ratio_bound,
    sum_analytic_centre,
)
from fairlead.policies.solve.share_problem import ShareProblem


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputPerCost(BasePolicy):
    """max_x sum_ij T_ij / c_j x_ij   s.t.  time of each job, devices of each type.

    T_ij rate of job i on slot type j, c_j the price of a device there. Weights do not count. Not what the
    paper calls minimum cost, which is ``MinCost``. Source: Gavel's release,
    max_sum_throughput_normalized_by_cost_perf.
    """

    name: str = "throughput_per_cost"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    weighs_prices: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return most_per_dollar(snapshot, prices(snapshot, self.name))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """Steps/s per $/h, of all jobs."""
        return _rate_per_dollar(snapshot, made, prices(snapshot, self.name))


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputPerCostDeadlines(BasePolicy):
    """max_x sum_ij T_ij / c_j x_ij  among the x with the least  sum_i (1 - t_i / n_i)+,  n_i = steps / time.

    ThroughputPerCost after deadlines: t_i is job i's throughput, n_i the steps that it has left over the
    seconds to its deadline, or its fastest rate where even that is too slow or the deadline has passed.
    The report names the jobs that will be late. Shortfall adds up the parts of their needs that jobs go
    without, so a job that still can be in time comes before one of its size that cannot. Source:
    Gavel (OSDI'20), cost with SLOs; its release, max_sum_throughput_normalized_by_cost_perf_SLOs,
    which gives up every deadline when not all can be met (all_or_none; the shares are then at the analytic
    centre of the optima, as there).
    """

    all_or_none: bool = False
    name: str = "throughput_per_cost_slo"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    weighs_prices: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified at the least shortfall."""
        return _with_deadlines(
            snapshot, prices(snapshot, self.name), self.all_or_none, space_sharing=False
        )[0]

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """Steps/s per $/h, of all jobs."""
        return _rate_per_dollar(snapshot, made, prices(snapshot, self.name))


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceSharingThroughputPerCostDeadlines(BasePolicy):
    """max_x sum_i sum_{c with i} sum_j T^i_cj / c_j x_cj  among the x with the least  sum_i (1 - t_i / n_i)+.

    ThroughputPerCostDeadlines over job groups c of one job or a pair of equal scale factor, T^i_cj the rate
    of i in c. Pairs are used only where they lower the shortfall or, at the same shortfall, raise the sum.
    Source: the release's ``_packed_SLOs``, which gives up every deadline when not all can be met
    (all_or_none).
    """

    all_or_none: bool = False
    name: str = "throughput_per_cost_packed_slo"
    heterogeneity_aware: bool = True
    space_sharing: bool = True
    work_conserving: bool = True
    weighs_prices: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified at the least shortfall."""
        price = prices(snapshot, self.name)
        with_pairs, less = _with_deadlines(snapshot, price, self.all_or_none, space_sharing=True)
        if self.all_or_none:
            return with_pairs
        without_pairs, late = _with_deadlines(
            snapshot, price, self.all_or_none, space_sharing=False
        )
        return (
            with_pairs
            if less < late - SHORTFALL_TOLERANCE
            else pairs_where_they_pay(without_pairs, with_pairs)
        )

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """Steps/s per $/h, of all jobs."""
        return _rate_per_dollar(snapshot, made, prices(snapshot, self.name))


@dataclass(frozen=True, slots=True)
class MinCost(BasePolicy):
    """max_x (sum_i t_i / b_i) / (sum_ij c_j s_i x_ij)  and then  sum_i t_i / b_i.

    Most work per dollar. Any multiple of the best shares has the same ratio, and with raw throughputs only
    the one job and type with the most steps per dollar run. So a job's work is counted in dollars at its
    own best price, b_i = max_j T_ij / (c_j s_i): the ratio is then the part of the money that is well
    spent, 1 where every job runs only where it is cheapest, and among shares of that ratio the most work
    is done. Devices that would lower it stay idle, also in the rounds. Source: Gavel (OSDI'20), minimum
    cost; Charnes and Cooper (1962).
    """

    name: str = "min_cost"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = False
    weighs_prices: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        problem = ShareProblem.of(snapshot)
        return _best_ratio_allocation(
            snapshot, prices(snapshot, self.name), problem, RateDemand.none(problem)
        )

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The part of the money that is well spent."""
        return _cost_efficiency(snapshot, made, prices(snapshot, self.name))


@dataclass(frozen=True, slots=True)
class MinCostDeadlines(BasePolicy):
    """max_x (sum_i t_i / b_i) / (sum_ij c_j s_i x_ij)  among the x with the least  sum_i (1 - t_i / n_i)+.

    MinCost after deadlines, n_i = steps left / time left. What deadlines ask for may cost more than the
    best price; the ratio says how much. Shortfall is that of ``ThroughputPerCostDeadlines``, and the report
    names the jobs that will be late. Source: Gavel (OSDI'20), minimum cost subject to SLOs.
    """

    name: str = "min_cost_slo"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = False
    weighs_prices: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified at the least shortfall."""
        problem, demand = _deadline_demand(snapshot, space_sharing=False, all_or_none=False)
        return _report_unmet(
            snapshot, _best_ratio_allocation(snapshot, prices(snapshot, self.name), problem, demand)
        )

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The part of the money that is well spent."""
        return _cost_efficiency(snapshot, made, prices(snapshot, self.name))


def most_per_dollar(
    snapshot: Snapshot, price: Floats, interior: InteriorShares | None = None
) -> Allocation:
    """The allocation with the largest sum of throughputs over prices. price: (slots,)."""
    problem, worth = ShareProblem.of(snapshot), np.ones(len(snapshot.jobs))
    return maximise_sum(snapshot, worth, 1.0 / price, problem, RateDemand.none(problem), interior)


def _with_deadlines(
    snapshot: Snapshot, price: Floats, all_or_none: bool, space_sharing: bool
) -> tuple[Allocation, float]:
    """The most throughput per cost at the least shortfall, and the shortfall. price: (slots,)."""
    problem, demand = _deadline_demand(snapshot, space_sharing, all_or_none)
    worth = np.ones(len(snapshot.jobs))
    made = maximise_sum(
        snapshot, worth, 1.0 / price, problem, demand, sum_analytic_centre if all_or_none else None
    )
    return _report_unmet(snapshot, made), demand.shortfall


def _deadline_demand(
    snapshot: Snapshot, space_sharing: bool, all_or_none: bool
) -> tuple[ShareProblem, RateDemand]:
    """The problem, and what deadlines ask for in it. all_or_none: where not all needs can be met, none
    counts; nor does a deadline that has passed."""
    rate = deadline_rates(snapshot)
    if all_or_none:
        rate[np.isinf(rate)] = 0.0
    problem = problem_by_need(snapshot, rate, space_sharing)
    asked = rate[problem.classes.representative]
    demand = least_shortfall(problem, asked)
    beyond = bool((asked > np.where(problem.can_run, problem.best, 0.0)).any())
    if all_or_none and (beyond or demand.shortfall > SHORTFALL_TOLERANCE):
        return problem, RateDemand.none(problem)
    return problem, demand


def _report_unmet(snapshot: Snapshot, made: Allocation) -> Allocation:
    """The allocation with the jobs that will be late in its report."""
    late = late_jobs(snapshot, made, deadline_rates(snapshot))
    return replace(made, report=replace(made.report, unmet=late))


def _best_ratio_allocation(
    snapshot: Snapshot, price: Floats, problem: ShareProblem, demand: RateDemand
) -> Allocation:
    """The allocation with the best ratio and, at it, the most work. price: (slots,)."""
    worth = _least_cost_of_rate(problem, price)
    if not worth.any():
        nothing = np.zeros((len(snapshot.jobs), len(snapshot.slots)))
        report = SolveReport("optimal", 0.0, 0.0)
        return Allocation(snapshot.jobs[:, None].copy(), nothing, report)
    value = np.tile(worth[:, None], len(price))
    ratio, proof = best_ratio(problem, value, price, demand)
    solution = at_ratio(problem, value, price, demand, ratio)
    made = allocation_by_class(snapshot, problem, solution, SolveReport("optimal"))
    reached = _cost_efficiency(snapshot, made, price)
    jobs = JobRates(snapshot.solo_rate, snapshot.job_scale)
    return check_allocation(
        replace(
            made,
            report=SolveReport(
                "optimal",
                reached,
                ratio_bound(
                    problem, value, price, demand, prices=proof, jobs=jobs, reached=reached
                ),
                allocation_violation(snapshot, made),
                solution.iterations,
            ),
        ),
        snapshot,
    )


def _least_cost_of_rate(problem: ShareProblem, price: Floats) -> Floats:
    """(classes,) $/h for a step/s on the slot type where that is cheapest; 0 for a job that can run
    nowhere."""
    per_dollar = (problem.rate / problem.per_device(price)).max(axis=1)
    return np.asarray(
        np.divide(1.0, per_dollar, out=np.zeros_like(per_dollar), where=per_dollar > 0)
    )


def _rate_per_dollar(snapshot: Snapshot, made: Allocation, price: Floats) -> float:
    """Steps/s per $/h, of all jobs. price: (slots,)."""
    return float(effective_throughput(made, scale_rates(snapshot, 1.0 / price)).sum())


def _cost_efficiency(snapshot: Snapshot, made: Allocation, price: Floats) -> float:
    """Return the least possible cost of the work, each job where it is cheapest, over its cost.
    0 where no work is done."""
    problem = ShareProblem.of(snapshot)
    worth = _least_cost_of_rate(problem, price)[problem.classes.of]
    work = float(worth @ effective_throughput(made, snapshot))
    scale = snapshot.job_scale[group_members(made, snapshot)[:, 0]]
    cost = price * snapshot.slot_devices
    return work / float(scale @ (made.share @ cost)) if work > 0 else 0.0
