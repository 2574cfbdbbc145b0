"""Makespan: all jobs done as early as possible; agnostic, heterogeneity-aware, and in pairs."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.plan import BasePolicy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.parametric_level import (
    Requirements,
    agnostic_rate,
    parametric_pairs,
    parametric_singles,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Makespan(BasePolicy):
    """min_x max_i  n_i / sum_j T_ij x_ij   s.t.  time of each job, devices of each type.

    n_i steps left, T_ij rate of job i on slot type j. The objective is the makespan in seconds if shares
    stayed as they are. Gavel's release bisects it to 5 %; this is exact. Among the optima, the one with
    the largest total of sum_j T_ij x_ij / p_i, p_i the rate under proportional shares. A job that can run
    nowhere, or has no steps left, gets nothing and has no say. Source: Gavel (OSDI'20), makespan; its
    release's min_total_duration_perf.
    """

    name: str = "makespan_aware"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True
    elastic: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified (``fairlead.policies.solve.parametric_level``)."""
        return parametric_singles(snapshot, None, requirements(snapshot))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The makespan in seconds."""
        return requirements(snapshot).measure(snapshot, made)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgnosticMakespan:
    """min_x max_i  n_i / (T_i sum_j x_ij)   s.t.  time of each job, devices of each type.

    Makespan with one rate T_i of a job on every accelerator type: its mean over all devices, or its rate
    on the type ``reference`` where the cluster has that. The objective is in seconds at those rates.
    Gavel's release always takes v100, and fails where there is none.
    """

    reference: str = ""
    name: str = "makespan"
    heterogeneity_aware: bool = False
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        rate = agnostic_rate(snapshot, self.reference)
        return parametric_singles(snapshot, rate, requirements(snapshot))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The makespan in seconds."""
        rate = agnostic_rate(snapshot, self.reference)
        return requirements(snapshot).measure_agnostic(snapshot, made, rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceSharingMakespan:
    """min_x max_i  n_i / sum_{c with i} sum_j T^i_cj x_cj   s.t.  time of each job, devices of each type.

    Makespan over job groups c of one job or a pair of equal scale factor, T^i_cj the rate of i in c. Pairs
    are used only where they shorten the makespan. Source: Gavel's min_total_duration_packed.
    """

    name: str = "makespan_packed"
    heterogeneity_aware: bool = True
    space_sharing: bool = True
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified (``fairlead.policies.solve.space_sharing``)."""
        return parametric_pairs(snapshot, requirements(snapshot))

    def measure(self, snapshot: Snapshot, made: Allocation) -> float:
        """The makespan in seconds."""
        return requirements(snapshot).measure(snapshot, made)


def requirements(snapshot: Snapshot) -> Requirements:
    """The requirements of a makespan of 1 s: all steps that are left."""
    jobs = len(snapshot.jobs)
    return Requirements(snapshot.steps_left, np.zeros(jobs), np.ones(jobs))
