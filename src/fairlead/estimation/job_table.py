"""The jobs that Fairlead's estimator knows: the evidence on each, and what is believed of it."""

from typing import Any, ClassVar

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.growable_table import GrowableTable


class JobEvidence(GrowableTable):
    """(jobs,) what is known of each job: its job type, its measurements, what its user estimates."""

    columns: ClassVar[dict[str, Any]] = {
        "id": np.int64,
        "job_type": np.int64,  # row of the tree
        "user": np.int64,
        "scale": np.int64,
        "weight": (np.float64, "slots"),  # rounds measured, those that were exact
        "mean": (np.float64, "slots"),  # log rate measured
        "user_estimate": (np.float64, "slots"),  # log rate as its user estimates it, NaN = none
        "checked": (
            np.bool_,
            "slots",
        ),  # whether the user's estimate was compared with a measurement
        "doubted": np.bool_,  # whether the user's estimate is grossly off
        "cannot": (np.bool_, "slots"),  # whether it cannot run there
        "info": (np.float64, "square"),  # its information on its job type: inverse covariance
        "shift": (np.float64, "slots"),  # and that times the mean
    }
    id: Ints
    job_type: Ints
    user: Ints
    scale: Ints
    weight: Floats
    mean: Floats
    user_estimate: Floats
    checked: Bools
    doubted: Bools
    cannot: Bools
    info: Floats
    shift: Floats


class JobBeliefs(GrowableTable):
    """(jobs,) what is believed of each job, what of that was announced, and which slot is explored."""

    columns: ClassVar[dict[str, Any]] = {
        "log_rate": (np.float64, "slots"),  # believed when it was last worked out
        "sigma": (np.float64, "slots"),  # of log_rate
        "stale": np.bool_,  # whether the evidence has changed since
        "name": np.int64,  # of the belief that the core goes by, -1 = none yet
        "announced": (np.float64, "slots"),  # rates of a belief of its own, as the core knows them
        "explored_slot": np.int64,  # slot that is to be explored, -1 = none
        "explored_rounds": np.int64,  # rounds since
    }
    log_rate: Floats
    sigma: Floats
    stale: Bools
    name: Ints
    announced: Floats
    explored_slot: Ints
    explored_rounds: Ints


class EstimatedJobs:
    """The jobs in the system: two tables with one row for each, in the same order."""

    def __init__(self, slots: int) -> None:
        """No jobs yet; slots: how many slot types."""
        self.evidence = JobEvidence(slots=(slots,), square=(slots, slots))
        self.beliefs = JobBeliefs(slots=(slots,))
        self._slots = slots
        self._row: dict[int, int] = {}

    @property
    def n(self) -> int:
        """Return how many jobs there are."""
        return self.evidence.n

    def row(self, job: int) -> int | None:
        """Return the row of a job; None = it is not in the system."""
        return self._row.get(job)

    def rows(self, jobs: Ints) -> Ints:
        """Return the rows of jobs by their ids, -1 = not in the system."""
        return np.array([self._row.get(job, -1) for job in jobs.tolist()], np.int64)

    def add(self, ids: list[int]) -> slice:
        """Make rows of zeros for new jobs, of which nothing was announced; return where they are."""
        at = self.evidence.grow(len(ids))
        self.beliefs.grow(len(ids))
        self.evidence.id[at] = ids
        self.evidence.user_estimate[at] = np.nan
        self.beliefs.name[at], self.beliefs.explored_slot[at] = -1, -1
        self.beliefs.stale[at] = True
        self._row.update(zip(ids, range(at.start, at.stop), strict=True))
        return at

    def remove(self, ids: list[int]) -> None:
        """Drop the rows of those jobs that are in the system."""
        gone = [self._row.pop(job) for job in ids if job in self._row]
        if not gone:
            return
        left = np.delete(np.arange(self.n), gone)
        self.evidence.keep(left)
        self.beliefs.keep(left)
        self._row = {job: row for row, job in enumerate(self.evidence.id.tolist())}

    def with_slots(self, more: int) -> "EstimatedJobs":
        """Return the same jobs with more slot types, of which nothing is known."""
        wide = EstimatedJobs(self._slots + more)
        wide.add(self.evidence.id.tolist())
        for old, new in ((self.evidence, wide.evidence), (self.beliefs, wide.beliefs)):
            for name in old.columns:
                before, now = getattr(old, name), getattr(new, name)
                now[tuple(slice(n) for n in before.shape)] = before
        return wide
