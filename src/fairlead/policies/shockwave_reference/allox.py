"""AlloX as Shockwave's release runs it, with jobs of several devices."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.gavel_reference.allox import first_in_line


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedAlloX:
    """min_m sum_i (k_i r_i / T_ij + a_i)  over matchings m of jobs i with (device of type j, position k).

    AlloX of the oldest part alpha, where a job of several devices is matched like one of a single device,
    and then has a share of 1 / s_i. A job keeps what it has; who has a share of 1 holds one device for
    good, the others are matched again each time, on the devices that nobody holds, and what they get
    comes on top. Shares may so promise more devices than there are. Source: Shockwave (NSDI'23), the
    release's allox. r_i steps left, T_ij rate of job i on type j, a_i age, s_i devices of a job.
    """

    alpha: float = 0.2
    name: str = "allox"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares: 1 / s_i for jobs that were ever first in line."""
        share = snapshot.share.copy()
        holds = share.sum(axis=1) == 1.0
        of_type = snapshot.accelerator_of_slot[share[holds].argmax(axis=1)]
        allocated = np.bincount(of_type, minlength=len(snapshot.capacity))
        free = np.maximum(snapshot.capacity - allocated, 0.0)
        waiting = np.flatnonzero(~holds)
        waiting = waiting[np.argsort(-snapshot.age_s[waiting], kind="stable")]
        waiting = waiting[: max(int(self.alpha * len(waiting)), int(free.sum()))]
        jobs, slot = first_in_line(snapshot, waiting, free)
        share[jobs, slot] = 1.0 / snapshot.job_scale[jobs]
        return allocation(snapshot, share, SolveReport("optimal"))
