"""Total throughput: the sum of throughputs, raw or relative to each job's fastest."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import effective_throughput
from fairlead.model.arrays import Floats
from fairlead.model.plan import BasePolicy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.linear_objectives import InteriorShares, maximise_sum, pairs_where_they_pay
from fairlead.policies.solve.linear_objectives import RateDemand
from fairlead.policies.solve.share_problem import ShareProblem


@dataclass(frozen=True, kw_only=True, slots=True)
class TotalThroughput(BasePolicy):
    """max_x sum_ij T_ij x_ij   s.t.  time of each job, devices of each type.

    T_ij rate of job i on slot type j. Steps of different models are added up, so models with short steps
    get all devices; see ``NormalisedThroughput``. Weights do not count. Source: Gavel's release,
    max_sum_throughput_perf.
    """

    name: str = "total_throughput"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return maximise_throughput(snapshot, np.ones(len(snapshot.jobs)), space_sharing=False)

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """Steps/s of all jobs."""
        return float(effective_throughput(made, snapshot).sum())


@dataclass(frozen=True, slots=True)
class NormalisedThroughput(BasePolicy):
    """max_x sum_i t_i / max_j T_ij,  t_i = sum_j T_ij x_ij,  s.t.  time of each job, devices of each type.

    TotalThroughput with each job's throughput relative to its rate alone on the fastest type that the
    cluster has: a job that runs all the time where it is fastest counts 1, whatever its steps are.
    Weights do not count. Source: Gavel (OSDI'20), total throughput, without its unit of steps.
    """

    name: str = "total_throughput_normalised"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return maximise_throughput(snapshot, _inverse_fastest_rate(snapshot), space_sharing=False)

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The sum of the jobs' throughputs, each over that on its fastest type."""
        return float(_inverse_fastest_rate(snapshot) @ effective_throughput(made, snapshot))


@dataclass(frozen=True, slots=True)
class SpaceSharingThroughput:
    """max_x sum_i sum_{c with i} sum_j T^i_cj x_cj   s.t.  time of each job, devices of each type.

    TotalThroughput over job groups c of one job or a pair of equal scale factor, T^i_cj the rate of i in c.
    Pairs are used only where they raise the sum. Source: Gavel (OSDI'20), space sharing.
    """

    name: str = "total_throughput_packed"
    heterogeneity_aware: bool = True
    space_sharing: bool = True
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        worth = np.ones(len(snapshot.jobs))
        return pairs_where_they_pay(
            maximise_throughput(snapshot, worth, space_sharing=False),
            maximise_throughput(snapshot, worth, space_sharing=True),
        )

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """Steps/s of all jobs."""
        return float(effective_throughput(made, snapshot).sum())


def _inverse_fastest_rate(snapshot: Snapshot) -> Floats:
    """(jobs,) one over the rate alone on the fastest type with devices."""
    usable = (snapshot.capacity > 0)[snapshot.accelerator_of_slot]
    best = (snapshot.solo_rate * usable).max(axis=1)
    return np.asarray(np.divide(1.0, best, out=np.zeros_like(best), where=best > 0))


def maximise_throughput(
    snapshot: Snapshot, worth: Floats, space_sharing: bool, interior: InteriorShares | None = None
) -> Allocation:
    """The allocation with the largest sum of throughputs times worth, (jobs,)."""
    problem, per_step = (
        ShareProblem.of(snapshot, space_sharing=space_sharing),
        np.ones(len(snapshot.slots)),
    )
    return maximise_sum(snapshot, worth, per_step, problem, RateDemand.none(problem), interior)
