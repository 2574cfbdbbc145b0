"""Finish-time fairness: a job's finish time over that on a part of the cluster of its own."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats
from fairlead.model.plan import BasePolicy
from fairlead.model.rates import inverse_rate, isolated_rate
from fairlead.model.snapshot import Snapshot
from fairlead.policies.parametric_level import (
    Requirements,
    agnostic_rate,
    parametric_pairs,
    parametric_singles,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishTime(BasePolicy):
    """min_x max_i  (a_i + n_i / sum_j T_ij x_ij) / (c_i + n_i / I_i)   s.t.  time, devices of each type.

    a_i time since submission, n_i steps left, T_ij rate of job i on slot type j; I_i its rate with a part
    of the cluster for itself, by weight (by head if not weighted), and c_i the time that its steps so far
    would have taken at such rates, as the cluster and its jobs were then (``Snapshot.isolated_s``). The
    objective is the largest rho. Among the optima, the one with the largest total of sum_j T_ij x_ij /
    p_i. A job that can run nowhere, or has no steps left, gets nothing and has no say. Source: Themis
    (NSDI'20) and Gavel (OSDI'20), finish-time fairness; its release's finish_time_fairness_perf, which
    ignores weights.
    """

    weighted: bool = True
    name: str = "finish_time_aware"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified (``fairlead.policies.solve.parametric_level``)."""
        return parametric_singles(snapshot, None, self.demand(snapshot))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The largest rho."""
        return self.demand(snapshot).measure(snapshot, made)

    def demand(self, snapshot: Snapshot) -> Requirements:
        """Return what each job needs for rho = 1."""
        return _requirements(snapshot, isolated_rate(snapshot, self.weighted))


@dataclass(frozen=True, kw_only=True, slots=True)
class AgnosticFinishTime:
    """min_x max_i  (a_i + n_i / (T_i sum_j x_ij)) / (c_i + n_i / I_i)   s.t.  time, devices of each type.

    FinishTime with one rate T_i of a job on every accelerator type: its mean over all devices, or its
    rate on the type ``reference`` where the cluster has that. Gavel's release always takes v100, and
    fails where there is none.
    """

    weighted: bool = True
    reference: str = ""
    name: str = "finish_time"
    heterogeneity_aware: bool = False
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        rate = agnostic_rate(snapshot, self.reference)
        return parametric_singles(snapshot, rate, self.demand(snapshot, rate))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The largest rho."""
        rate = agnostic_rate(snapshot, self.reference)
        return self.demand(snapshot, rate).measure_agnostic(snapshot, made, rate)

    def demand(self, snapshot: Snapshot, rate: Floats) -> Requirements:
        """Return what each job needs for rho = 1. rate: (jobs, slots) that are taken for its own."""
        one = rate.max(axis=1, initial=0.0)
        return _requirements(snapshot, isolated_rate(snapshot, self.weighted, one))


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceSharingFinishTime:
    """min_x max_i  (a_i + n_i / sum_{c with i} sum_j T^i_cj x_cj) / (c_i + n_i / I_i)   s.t.  time, devices.

    FinishTime over job groups c of one job or a pair of equal scale factor, T^i_cj the rate of i in c. Pairs
    are used only where they lower the largest rho. Source: Gavel's finish_time_fairness_packed, which
    divides the rates by the weight; here the weight is in I_i.
    """

    weighted: bool = True
    name: str = "finish_time_packed"
    heterogeneity_aware: bool = True
    space_sharing: bool = True
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified (``fairlead.policies.solve.space_sharing``)."""
        return parametric_pairs(snapshot, self.demand(snapshot))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The largest rho."""
        return self.demand(snapshot).measure(snapshot, made)

    def demand(self, snapshot: Snapshot) -> Requirements:
        """Return what each job needs for rho = 1."""
        demand = _requirements(snapshot, isolated_rate(snapshot, self.weighted))
        if self.weighted:
            return demand
        # The release divides the rates by the weight: as many times the steps.
        return replace(demand, steps=demand.steps * snapshot.weight)


def _requirements(snapshot: Snapshot, rate: Floats) -> Requirements:
    """The requirements of rho = 1: the steps left in c_i + n_i / I_i seconds, or in 1 where a job can run
    nowhere. rate: (jobs,) I_i."""
    finish_s = snapshot.isolated_s + snapshot.steps_left * inverse_rate(rate)
    isolated = np.where(finish_s > 0, finish_s, 1.0)
    return Requirements(snapshot.steps_left, snapshot.age_s, isolated)
