"""Gandiva_fair: every tenant gets its part of every type, and then tenants trade."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation, violation
from fairlead.policies.las import max_min_times
from fairlead.policies.ranked import best_slot
from fairlead.policies.solve.bilateral_trades import TradeMarket, trade


@dataclass(frozen=True, slots=True)
class GandivaFair:
    """e_uj = N_j w_u / sum_k w_k, then trades of devices that leave nobody worse off than with e_u.

    A tenant u has w_u tickets, the largest weight among its jobs, however many they are; a job without a
    tenant is a tenant of its own. Each tenant gets that part of the devices, in the cluster's mix of types;
    what it cannot use goes to the others by tickets. Its jobs divide it by weight, so that s_i x_i / w_i is
    equal where no job has all of its time. That is the fair share, with throughputs t_i^eq.

    Then jobs of one job type and tenant trade as one: those whose rate on type a over that on b is largest
    buy devices of a from those for whom it is smallest, and pay in devices of b, at the second largest ratio
    (``fairlead.policies.solve.bilateral_trades``). Neither side loses, so t_i >= t_i^eq for every job, and
    so for every tenant. Devices that nobody needs at first are exchanged one for one. The objective is
    sum_i t_i / t_i^eq; how far it can rise under t_i >= t_i^eq is a linear program, of which trading is
    a decentralised, approximate solution.

    Source: Chaudhary et al., EuroSys'20 (there one speed-up per user; here one per job type, so that a
    user with different jobs does not lose on some of them). s_i devices of a job, N_j devices of type j.
    """

    name: str = "gandiva_fair"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; the report has the objective, and no bound."""
        scale = snapshot.job_scale.astype(np.float64)
        best = best_slot(snapshot)
        rate = np.take_along_axis(snapshot.solo_rate, best, axis=1)
        rate = rate * (scale[:, None] <= snapshot.capacity)
        fair = fair_shares(snapshot, np.asarray((rate > 0).any(axis=1)))
        share = _traded(snapshot, rate, fair)
        progress, equal = (rate * share).sum(axis=1), (rate * fair).sum(axis=1)
        ratio = np.divide(progress, equal, out=np.zeros_like(equal), where=equal > 0)
        shares = np.zeros_like(snapshot.solo_rate)
        np.put_along_axis(shares, best, share, axis=1)
        report = SolveReport("traded", float(ratio.sum()), violation=violation(snapshot, shares))
        return check_allocation(allocation(snapshot, shares, report), snapshot)


def fair_shares(snapshot: Snapshot, runs: Bools) -> Floats:
    """(jobs, types) what a job has before any trade. runs: (jobs,) whether the job can run at all."""
    total = float(snapshot.capacity.sum())
    share = np.zeros((len(runs), len(snapshot.capacity)))
    jobs = np.flatnonzero(runs)
    if not len(jobs) or not total > 0:
        return share
    scale, weight = snapshot.job_scale[jobs].astype(np.float64), snapshot.weight[jobs]
    tenant = tenants(snapshot)[jobs]
    count = int(tenant.max()) + 1
    demand = np.bincount(tenant, scale, count).astype(np.float64)
    tickets = np.zeros(count)
    np.maximum.at(tickets, tenant, weight)
    known = demand > 0
    devices = np.zeros(count)
    devices[known] = demand[known] * max_min_times(
        demand[known] / tickets[known], demand[known], total
    )
    time = np.minimum(devices[tenant] / scale, 1.0)  # of a tenant with a single job
    for several in np.flatnonzero(np.bincount(tenant, minlength=count) > 1).tolist():
        its = np.flatnonzero(tenant == several)
        time[its] = max_min_times(scale[its] / weight[its], scale[its], float(devices[several]))
    share[jobs] = np.outer(time, snapshot.capacity / total)
    return share


def tenants(snapshot: Snapshot) -> Ints:
    """(jobs,) a number for each tenant; a job whose tenant has no name has one for itself."""
    named = np.array([name != "" for name in snapshot.tenants], np.bool_)[snapshot.tenant]
    job_column = len(snapshot.tenants) + np.arange(len(snapshot.jobs))
    return np.where(named, snapshot.tenant, job_column)


def _traded(snapshot: Snapshot, rate: Floats, fair: Floats) -> Floats:
    """(jobs, types) shares after trade; the jobs of one tenant and class trade as one owner."""
    named = np.array([name != "" for name in snapshot.tenants], np.bool_)[snapshot.tenant]
    key = np.column_stack([np.where(named, snapshot.tenant, -1), snapshot.job_class])
    _, first, owner = np.unique(key, axis=0, return_index=True, return_inverse=True)
    owner = owner.reshape(-1)
    scale = snapshot.job_scale.astype(np.float64)
    most = np.bincount(owner, scale).astype(np.float64)
    allocated = np.zeros((len(first), fair.shape[1]))
    np.add.at(allocated, owner, fair * scale[:, None])
    pool = np.maximum(snapshot.capacity - allocated.sum(axis=0), 0.0)
    market = TradeMarket(allocated, rate[first] / scale[first][:, None], most, pool)
    trade(market)
    return (market.allocated / most[:, None])[owner]
