"""The jobs that are still to come, as far as those that came lately tell.

Submissions come in batches (a sweep is one). Batches are expected at the rate at which they came for as long
as they were watched, and ever thinner beyond that: of a cluster that is ten minutes old nothing is known of
the next week. What comes is drawn from the batches that came.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.job import Arrival, Job, JobId

MAX_BATCHES = 100  # newest batches
BATCH_GAP_S = 2.0  # submissions so close to each other are one batch
MIN_BATCHES = 5  # batches that must have come before others are expected
MAX_BATCH_JOBS = 200  # jobs kept of a batch


@dataclass(frozen=True, slots=True)
class History:
    """Batches of jobs by the time that they came, oldest first."""

    batches: tuple[tuple[float, tuple[Job, ...]], ...] = ()

    def expected(self, now_s: float, seed: int, first_id: int) -> Iterator[Arrival]:
        """Jobs to come from now on, without end, drawn by a seed; ids from ``first_id`` on."""
        if len(self.batches) < MIN_BATCHES:
            return
        rng = np.random.default_rng((seed, 23))
        began_s = self.batches[0][0]
        watched_s = max(now_s - began_s, 1e-3)
        count = len(self.batches) - 1
        drawn, number = 0.0, first_id
        while True:
            drawn += rng.exponential() / count
            ahead_s = watched_s * (drawn if drawn <= 1 else float(np.exp(min(drawn - 1, 50.0))))
            _, jobs = self.batches[int(rng.integers(len(self.batches)))]
            for job in jobs:
                yield Arrival(now_s + ahead_s, replace(job, id=JobId(number), slo_s=None))
                number += 1


class RecentSubmissions:
    """Takes note of submissions."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float, list[Job]]] = deque(maxlen=MAX_BATCHES)

    def submitted(self, time_s: float, jobs: Sequence[Job]) -> None:
        """Jobs came at this time; times never descend."""
        if not jobs:
            return
        if self._batches and time_s - self._batches[-1][1] <= BATCH_GAP_S:
            first_s, _, batch = self._batches[-1]
            batch += jobs[: max(MAX_BATCH_JOBS - len(batch), 0)]
            self._batches[-1] = first_s, time_s, batch
            return
        self._batches.append((time_s, time_s, list(jobs[:MAX_BATCH_JOBS])))

    def history(self) -> History:
        """Return the history so far."""
        return History(tuple((first, tuple(jobs)) for first, _, jobs in self._batches))
