"""Times that jobs would have had on a fair share of the cluster, and by the shares of the policy."""

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.job_index import JobIndex
from fairlead.simulator.recording.job_columns import JobColumns
from fairlead.simulator.recording.recorder_kernels import (
    count_isolated,
    count_target_time,
    set_target_shares,
)


class IsolatedTime:
    """Gavel's accumulated isolated time: at certain moments, what was done since the last one, at the rate
    that an isolated share of the cluster gave then."""

    def __init__(self, columns: JobColumns, index: JobIndex) -> None:
        self._columns, self._index = columns, index

    def renew(self, capacity: Floats) -> None:
        """Count what was done; from now on the share is of this capacity. capacity: (slots,)."""
        i = self._index.row_of_id()
        self.add(i)
        self._columns.arrays.isolated_rate[i] = self.rate(i, capacity)

    def rate(self, i: Ints, capacity: Floats) -> Floats:
        """(jobs,) steps/s on an n-th of the cluster as it is now."""
        jobs = self._columns.arrays
        share = capacity / max(len(self._index), 1) / jobs.scale[i][:, None]
        share /= np.maximum(share.sum(axis=1), 1.0)[:, None]
        return np.asarray((jobs.rate[i] * share).sum(axis=1))

    def add(self, i: Ints) -> None:
        """Count what jobs have done. i: their positions."""
        count_isolated(i, self._columns.isolated)


class TargetRunTime:
    """Time that jobs should have run by the policy's shares."""

    def __init__(self, columns: JobColumns, index: JobIndex) -> None:
        self.given = False  # does the policy give shares?
        self._columns, self._index = columns, index

    def renew(self, allocation: Allocation, now_s: float) -> None:
        """The target share of each job is the sum of the shares of its job groups, from now on."""
        jobs, every = self._columns.arrays, self._index.row_of_id()
        self.add(every, np.full(len(every), now_s))
        jobs.target_share[every] = 0.0
        group_member, share = self._index.find(allocation.job_groups), allocation.share.sum(axis=1)
        set_target_shares(group_member, share, jobs.target_share)
        self.given = True

    def add(self, i: Ints, until_s: Floats) -> None:
        """Count target run time up to these times. i: (jobs,) positions."""
        count_target_time(i, until_s, self._columns.targets)
