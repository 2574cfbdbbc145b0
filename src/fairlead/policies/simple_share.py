"""The simple shares that Shockwave's release runs under the names Gandiva-Fair and isolated_plus."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.plan import BasePolicy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import (
    allocation,
    by_slot,
    violation,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SimpleShare(BasePolicy):
    """x_ij = N_j / n, divided by max(1, sum_j x_ij).

    Isolated without the scale factor: every job is to run an n-th of the devices' time, however many of
    them it takes, so the shares of jobs with several devices add up to more than there is, and the
    mechanism serves them as far as it goes. If strict, devices stay idle behind the first job in order of
    priority that does not fit. Source: Shockwave (NSDI'23), the release's gandiva_fair and isolated_plus.
    N_j devices of type j, n jobs.
    """

    strict: bool = False
    name: str = "gandiva_fair"
    heterogeneity_aware: bool = False
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective, and may promise more devices than there are."""
        part = snapshot.capacity / len(snapshot.jobs)
        share = np.tile(part / max(float(part.sum()), 1.0), (len(snapshot.jobs), 1))
        shares = by_slot(snapshot, share)
        report = SolveReport("closed-form", violation=violation(snapshot, shares))
        return allocation(snapshot, shares, report)
