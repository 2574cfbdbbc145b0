"""The jobs that are still to come, as far as those that came lately tell.

Submissions come in batches (a sweep is one). In any time from now on as many batches are expected as came in
the same time before now: a burst that ended five minutes ago is not expected to go on in the next five
minutes, and of a cluster that is ten minutes old nothing is known of the time after the next ten. What comes
is drawn from the batches that came.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.job import Arrival, Job, JobId

MAX_BATCHES = 100  # newest batches
BATCH_GAP_S = 2.0  # submissions so close to each other are one batch
MIN_BATCHES = 5  # batches that must have come before others are expected
MAX_BATCH_JOBS = 200  # jobs kept of a batch


@dataclass(frozen=True, slots=True)
class History:
    """Batches of jobs by the time that they came, oldest first; of ``count`` since ``began_s`` the newest."""

    batches: tuple[tuple[float, tuple[Job, ...]], ...] = ()
    began_s: float = 0.0  # when the first of all came
    count: int = 0

    def expected(self, now_s: float, seed: int, first_id: int) -> Iterator[Arrival]:
        """Jobs to come from now on, drawn by a seed; ids from ``first_id`` on."""
        if len(self.batches) < MIN_BATCHES:
            return
        rng = np.random.default_rng((seed, 23))
        ahead_s, expected = self._expected_batches(now_s)
        drawn, number = 0.0, first_id
        while (drawn := drawn + rng.exponential()) < expected[-1]:
            _, jobs = self.batches[int(rng.integers(len(self.batches)))]
            time_s = now_s + float(np.interp(drawn, expected, ahead_s))
            for job in jobs:
                yield Arrival(time_s, replace(job, id=JobId(number), slo_s=None))
                number += 1

    def _expected_batches(self, now_s: float) -> tuple[Floats, Floats]:
        """Return times from now on, ascending, and how many batches are expected until each of them.

        Each gap between two batches stands for one batch. The gap that lasts until now counts by its length
        beside that of the last whole one: nobody knows yet how long it gets.
        """
        ago_s = now_s - np.array([time_s for time_s, _ in reversed(self.batches)])
        open_s, whole_s = ago_s[0], ago_s[1] - ago_s[0]
        expected = open_s / (open_s + whole_s) + np.arange(ago_s.size)
        if self.count > ago_s.size:
            ago_s = np.append(ago_s, now_s - self.began_s)
            expected = np.append(expected, expected[0] + self.count - 1)
        return np.append(0.0, ago_s), np.append(0.0, expected)


class RecentSubmissions:
    """Takes note of submissions."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float, list[Job]]] = deque(maxlen=MAX_BATCHES)
        self._began_s, self._count = 0.0, 0

    def submitted(self, time_s: float, jobs: Sequence[Job]) -> None:
        """Jobs came at this time; times never descend."""
        if not jobs:
            return
        if self._batches and time_s - self._batches[-1][1] <= BATCH_GAP_S:
            first_s, _, batch = self._batches[-1]
            batch += jobs[: max(MAX_BATCH_JOBS - len(batch), 0)]
            self._batches[-1] = first_s, time_s, batch
            return
        self._began_s, self._count = self._began_s if self._count else time_s, self._count + 1
        self._batches.append((time_s, time_s, list(jobs[:MAX_BATCH_JOBS])))

    def history(self) -> History:
        """Return the history so far."""
        batches = tuple((first, tuple(jobs)) for first, _, jobs in self._batches)
        return History(batches, self._began_s, self._count)
