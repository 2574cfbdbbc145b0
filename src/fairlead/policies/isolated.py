"""Isolated: every job gets its n-th part of every accelerator type."""

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import (
    allocation,
    by_slot,
    violation,
)


class Isolated:
    """x_ij = (N_j / n) / s_i, divided by max(1, sum_j x_ij).

    What a job would get if the cluster were divided among the n jobs for good. Source: the policy of
    that name in Gavel's release. N_j devices of type j, s_i devices of job i.
    """

    name = "isolated"
    heterogeneity_aware = False
    space_sharing = False
    work_conserving = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        part = snapshot.capacity / len(snapshot.jobs)
        share = part / snapshot.job_scale[:, None]
        share = by_slot(snapshot, share / np.maximum(share.sum(axis=1), 1.0)[:, None])
        report = SolveReport("closed-form", violation=violation(snapshot, share))
        return check_allocation(allocation(snapshot, share, report), snapshot)
