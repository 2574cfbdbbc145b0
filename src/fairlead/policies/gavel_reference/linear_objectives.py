"""Policies with linear objectives as Gavel's release answers: the analytic centre of the optima."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies.cost import ThroughputPerCost, most_per_dollar
from fairlead.policies.linear_objectives import prices
from fairlead.policies.solve.linear_objectives import sum_analytic_centre
from fairlead.policies.total_throughput import TotalThroughput, maximise_throughput


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedTotalThroughput(TotalThroughput):
    """``TotalThroughput`` at the analytic centre of the optima."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        worth = np.ones(len(snapshot.jobs))
        return maximise_throughput(
            snapshot, worth, space_sharing=False, interior=sum_analytic_centre
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedThroughputPerCost(ThroughputPerCost):
    """``ThroughputPerCost`` at the analytic centre of the optima."""

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares, certified."""
        return most_per_dollar(snapshot, prices(snapshot, self.name), sum_analytic_centre)
