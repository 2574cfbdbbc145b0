"""The usage of the devices of jobs over time, as agents told: for the pages of jobs.

It is kept in memory alone, so it begins anew with the server. Each series has at most ``POINTS`` points; when
it is full, every two become one, so a job of weeks takes no more than one of an hour.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from operator import add
from typing import TypeAlias

from fairlead.cluster.protocol.api_models import DeviceUsageView
from fairlead.cluster.protocol.messages import AttemptStatus, DeviceUsage

POINTS = 240  # of a series
WIDTH_S = 10.0  # of a point, at first
MAX_SERIES = 10_000  # of all jobs; those that nobody has told of for longest go

_Key: TypeAlias = tuple[int, int, str, int]  # attempt, rank, node, device


class _Series:
    """Of one device of an attempt: means of its utilisation, and the most memory, of equal times."""

    def __init__(self, now: float) -> None:
        self.start = now
        self.width_s = WIDTH_S
        self.total_bytes = 0
        self._busy = array("f")  # sums
        self._counts = array("L")  # of these
        self._memory = array("d")  # the most, bytes; -1 = nothing was told

    def note(self, usage: DeviceUsage, now: float) -> None:
        """Add a usage that was told at ``now``."""
        point = int((now - self.start) / self.width_s)
        while point >= POINTS:
            self._halve()
            point = int((now - self.start) / self.width_s)
        for _ in range(point + 1 - len(self._busy)):
            self._busy.append(0.0)
            self._counts.append(0)
            self._memory.append(-1.0)
        if usage.busy >= 0:
            self._busy[point] += usage.busy
            self._counts[point] += 1
        self._memory[point] = max(self._memory[point], usage.memory_bytes)
        self.total_bytes = usage.memory_total_bytes

    def _halve(self) -> None:
        self.width_s *= 2
        if len(self._busy) % 2:
            self._busy.append(0.0)
            self._counts.append(0)
            self._memory.append(-1.0)
        self._busy = array("f", map(add, self._busy[::2], self._busy[1::2]))
        self._counts = array("L", map(add, self._counts[::2], self._counts[1::2]))
        self._memory = array("d", map(max, self._memory[::2], self._memory[1::2]))

    def busy(self) -> tuple[float | None, ...]:
        """Utilisation of each point; None = it was not told then."""
        pairs = zip(self._busy, self._counts, strict=True)
        return tuple(busy / count if count else None for busy, count in pairs)

    def memory(self) -> tuple[int | None, ...]:
        """The most memory in use in each point, bytes."""
        return tuple(int(most) if most >= 0 else None for most in self._memory)


class UsageHistory:
    """Any thread may call it."""

    def __init__(self, monotonic: Callable[[], float], max_series: int = MAX_SERIES) -> None:
        self._monotonic = monotonic
        self._max_series = max_series
        self._jobs: OrderedDict[int, dict[_Key, _Series]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()

    def note(self, node: str, statuses: Iterable[AttemptStatus]) -> None:
        """Record the usage of devices that a node has told with the statuses of its attempts."""
        for status in statuses:
            if status.usage:
                with self._lock:
                    self._note(node, status)

    def _note(self, node: str, status: AttemptStatus) -> None:
        now = self._monotonic()
        series = self._jobs.setdefault(status.job, {})
        self._jobs.move_to_end(status.job)
        for usage in status.usage:
            key = (status.attempt, usage.rank, node, usage.device)
            if key not in series:
                series[key] = _Series(now)
                self._count += 1
            series[key].note(usage, now)
        while self._count > self._max_series and len(self._jobs) > 1:
            _, oldest = self._jobs.popitem(last=False)
            self._count -= len(oldest)

    def of(self, job: int, now_s: float) -> list[DeviceUsageView]:
        """Return the known usage of devices by a job, by attempt and rank. now_s: the cluster's time."""
        with self._lock:
            now = self._monotonic()
            return [
                DeviceUsageView(
                    attempt=attempt,
                    rank=rank,
                    node=node,
                    device=device,
                    start_s=now_s - (now - series.start),
                    width_s=series.width_s,
                    busy=series.busy(),
                    memory_bytes=series.memory(),
                    memory_total_bytes=series.total_bytes,
                )
                for (attempt, rank, node, device), series in sorted(self._jobs.get(job, {}).items())
            ]
