"""The deaths of a node's spawner: whether they speak against the node, or rather against a job."""

from collections import Counter, deque
from collections.abc import Iterable

from fairlead.cluster.protocol.messages import SpawnerDeath

_WINDOW_S = 600.0  # within which
_MAX_DEATHS = 3  # deaths are no accident


class SpawnerDeaths:
    """Deaths of spawners in one run of an agent."""

    def __init__(self) -> None:
        self._number = 0
        self._recent: deque[tuple[float, frozenset[int]]] = deque()  # when, and who ran there

    def note(self, jobs: Iterable[int], now: float) -> SpawnerDeath:
        """One more. jobs: whose ranks may have run."""
        self._number += 1
        present = frozenset(jobs)
        self._recent.append((now, present))
        return SpawnerDeath(number=self._number, jobs=tuple(sorted(present)))

    def problem(self, now: float) -> str:
        """Return the problem of the node, "" = none. A death does not count where one of its jobs was at
        another one as well: the server finds out which of them it was."""
        while self._recent and now - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()
        seen = Counter(job for _, jobs in self._recent for job in jobs)
        unexplained = sum(all(seen[job] < 2 for job in jobs) for _, jobs in self._recent)
        if unexplained < _MAX_DEATHS:
            return ""
        times = f"{unexplained} times within {_WINDOW_S / 60:.0f} min"
        return f"the process that owns the ranks died {times}"
