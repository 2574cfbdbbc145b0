"""The jobs of a simulation: who is still to come, and how many have come and left."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model.job import Arrival, Job


@dataclass(frozen=True, slots=True)
class MeasuredJobs:
    """Measure jobs first .. stop-1 by order of submission; the run ends when all of them have ended."""

    first: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.first


class Submissions:
    """Arrivals in order of time, and counts of jobs."""

    def __init__(self, arrivals: Iterable[Arrival], measured_jobs: MeasuredJobs | None) -> None:
        self.submitted = 0
        self.ended = 0
        self._measured = measured_jobs
        self._measured_ended = 0
        self._arrivals: Iterator[Arrival] = iter(arrivals)
        self._next = next(self._arrivals, None)

    @property
    def progress(self) -> int:
        """Return how many jobs have ended; of the measured ones, where only some are."""
        return self.ended if self._measured is None else self._measured_ended

    def is_over(self) -> bool:
        """Return whether all jobs have come and ended, or all measured ones have."""
        if self._measured is not None:
            return self._measured_ended == len(self._measured)
        return self._next is None and self.ended == self.submitted

    def next_s(self) -> float:
        """When the next jobs come; inf = never."""
        return np.inf if self._next is None else self._next.time_s

    def take(self) -> tuple[Job, ...]:
        """The jobs that come next, at one time."""
        batch: list[Job] = []
        arrival = first = self._next
        while arrival is not None and first is not None and arrival.time_s == first.time_s:
            batch.append(arrival.job)
            arrival = next(self._arrivals, None)
        self._next = arrival
        return tuple(batch)

    def count_end(self, position: int) -> None:
        """A job has left. position: its place in order of submission."""
        self.ended += 1
        measured = self._measured
        if measured is not None and measured.first <= position < measured.stop:
            self._measured_ended += 1
