"""Job groups by the ids or by the rows of their jobs."""

import numpy as np

from fairlead.model.arrays import Bools, Ints


def rows_of_groups(jobs: Ints, groups: Ints, width: int) -> tuple[Ints, Bools]:
    """(groups, width) rows of job ids, -1 = none, and which job groups have all their jobs in the system.
    jobs: (jobs,) ids, ascending."""
    if groups.shape[1] < width:
        groups = np.column_stack([groups, np.full((len(groups), width - groups.shape[1]), -1)])
    row = np.minimum(np.searchsorted(jobs, groups), len(jobs) - 1)
    none = groups < 0
    same = none if not len(jobs) else (jobs[row] == groups) | none
    row[none] = -1
    return row, np.asarray(same.all(axis=1))


def find_groups(group_members: Ints, groups: Ints, jobs: int) -> Ints:
    """(wanted,) rows of these job groups in group_members, -1 = not there. Both (.., width) rows of jobs."""
    have, key = group_members[:, 0].copy(), groups[:, 0].copy()
    for k in range(1, groups.shape[1]):
        key = key * (jobs + 1) + groups[:, k] + 1
        have = have * (jobs + 1) + (group_members[:, k] + 1 if k < group_members.shape[1] else 0)
    order = np.argsort(have)
    at = order[np.minimum(np.searchsorted(have, key, sorter=order), len(order) - 1)]
    return np.where(have[at] == key, at, -1)
