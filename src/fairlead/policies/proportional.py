"""Proportional: every job divides its time over the accelerator types as the devices are divided."""

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import (
    allocation,
    by_slot,
    violation,
)


class Proportional:
    """x_ij = N_j / sum_k N_k.

    The baseline of Gavel's fairness objectives, from its release. It gives every job all of its time,
    so with more demand than devices it promises more than there is; the report's violation says how
    much, and the rounds then share what there is. N_j devices of type j.
    """

    name = "proportional"
    heterogeneity_aware = False
    space_sharing = False
    work_conserving = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        n = len(snapshot.jobs)
        part = snapshot.capacity / n
        total = part.sum()
        row = part / total if total > 0 else part
        share = by_slot(snapshot, np.tile(row, (n, 1)))
        report = SolveReport("closed-form", violation=violation(snapshot, share))
        return allocation(snapshot, share, report)
