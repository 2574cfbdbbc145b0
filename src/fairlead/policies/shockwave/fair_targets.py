"""The fair finish times that Shockwave's planner aims at."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.job_index import rows_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """Estimates of fair finish times, averaged over time. Arrays are (jobs,), ids ascending.

    Each time that jobs come or go, every job gets a new estimate. The mean weighs an estimate with the
    time that it was the last one; the target is ``momentum`` of the mean and the rest of the last one.
    Source: the release of Shockwave (NSDI'23), finish-time-fairness targets.
    """

    jobs: Ints
    weighted: Floats  # sum of estimate x time in force, of all but the last
    time: Floats  # sum of these times
    last: Floats  # the last estimate
    since: Floats  # when it was made

    @staticmethod
    def none() -> "Targets":
        """Targets of no jobs."""
        empty = np.zeros(0)
        return Targets(
            jobs=np.zeros(0, np.int64), weighted=empty, time=empty, last=empty, since=empty
        )

    def at(self, now: float, momentum: float) -> Floats:
        """(jobs,) the targets."""
        lasted = now - self.since
        time = self.time + lasted
        mean = np.divide(
            self.weighted + self.last * lasted, time, out=self.last.copy(), where=time > 0
        )
        return np.asarray(momentum * mean + (1.0 - momentum) * self.last)

    def renewed(self, jobs: Ints, estimate: Floats, now: float) -> "Targets":
        """Targets with a new estimate for each of these jobs; the others are forgotten. jobs: ids
        ascending."""
        old, known = rows_of(self.jobs, jobs)
        weighted, time = np.zeros(len(jobs)), np.zeros(len(jobs))
        rows = old[known]
        lasted = now - self.since[rows]
        weighted[known] = self.weighted[rows] + self.last[rows] * lasted
        time[known] = self.time[rows] + lasted
        return Targets(
            jobs=jobs.copy(),
            weighted=weighted,
            time=time,
            last=estimate,
            since=np.full(len(jobs), now),
        )
