"""Exact aggregation: jobs of one class become one variable with a multiplicity.

Permuting jobs of one class (same rate row, scale factor and weight) maps solutions to solutions, and the
objectives here are concave, so averaging over a class loses nothing: the optimum over classes is the
optimum over jobs, and a class's answer is given to each of its jobs alike.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Floats, Ints

_DENSE = 4  # ids up to this many times the number of jobs are counted by bincount, others sorted


@dataclass(frozen=True, slots=True)
class JobClasses:
    """The classes that are present, in ascending order of id."""

    id: Ints  # (classes,)
    count: Floats  # (classes,) jobs
    representative: Ints  # (classes,) position of one job of each class
    of: Ints  # (jobs,) row of each job's class


def group(job_class: Ints) -> JobClasses:
    """Group jobs by class id, (jobs,), in time linear in the jobs where ids are dense."""
    n = len(job_class)
    if n and job_class.min() >= 0 and job_class.max() < _DENSE * n + 1024:
        tally = np.bincount(job_class)
        ids = tally.nonzero()[0]
        row = np.empty(len(tally), np.int64)
        row[ids] = np.arange(len(ids))
        of, count = row[job_class], tally[ids]
    else:
        ids, of, count = np.unique(job_class, return_inverse=True, return_counts=True)
    representative = np.empty(len(ids), np.int64)
    representative[of] = np.arange(n)  # any job of a class: they are alike
    return JobClasses(ids, count.astype(np.float64), representative, of)
