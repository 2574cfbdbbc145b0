"""Units by the ids or by the rows of their jobs."""

import numpy as np

from fairlead.model.arrays import Bools, Ints


def rows_of_units(jobs: Ints, units: Ints, width: int) -> tuple[Ints, Bools]:
    """(units, width) rows of job ids, -1 = none, and which units have all their jobs in the system.
    jobs: (jobs,) ids, ascending."""
    if units.shape[1] < width:
        units = np.column_stack([units, np.full((len(units), width - units.shape[1]), -1)])
    row = np.minimum(np.searchsorted(jobs, units), len(jobs) - 1)
    none = units < 0
    same = none if not len(jobs) else (jobs[row] == units) | none
    row[none] = -1
    return row, np.asarray(same.all(axis=1))


def find_units(member: Ints, wanted: Ints, jobs: int) -> Ints:
    """(wanted,) rows of these units in member, -1 = not there. Both (.., width) rows of jobs."""
    have, want = member[:, 0].copy(), wanted[:, 0].copy()
    for k in range(1, wanted.shape[1]):
        want = want * (jobs + 1) + wanted[:, k] + 1
        have = have * (jobs + 1) + (member[:, k] + 1 if k < member.shape[1] else 0)
    order = np.argsort(have)
    at = order[np.minimum(np.searchsorted(have, want, sorter=order), len(order) - 1)]
    return np.where(have[at] == want, at, -1)
