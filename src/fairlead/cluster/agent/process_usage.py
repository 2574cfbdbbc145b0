"""The usage of simulated devices by the processes of their ranks: the devices have nothing to measure."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from fairlead.cluster.agent import proc
from fairlead.cluster.protocol.messages import AttemptKey, DeviceUsage

RankKey = tuple[AttemptKey, int]  # attempt and rank


class ProcessUsage:
    """Processor time and memory of ranks, with all processes of their sessions."""

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, int], tuple[int, float]] = {}  # leader -> ticks, and when
        self._total_bytes = psutil.virtual_memory().total

    def measure(self, leaders: Mapping[int, RankKey]) -> dict[RankKey, DeviceUsage]:
        """Rank -> part of one processor that it has used since the last call, 1 at most, and memory in use.
        leaders: pid of each rank's session. A rank that was not there at the last call is not told of yet."""
        now, page = time.monotonic(), os.sysconf("SC_PAGE_SIZE")
        ticks, pages = dict.fromkeys(leaders, 0), dict.fromkeys(leaders, 0)
        born: dict[int, int] = {}
        for one in proc.processes():
            if one.session in leaders:
                used = _used(one.pid)
                ticks[one.session] += used[0]
                pages[one.session] += used[1]
                if one.pid == one.session:
                    born[one.pid] = one.start_time
        found: dict[RankKey, DeviceUsage] = {}
        known, self._ticks = self._ticks, {}
        for pid, start_time in born.items():
            before = known.get((pid, start_time))
            self._ticks[pid, start_time] = ticks[pid], now
            if before is None or now <= before[1]:
                continue
            used_s = (ticks[pid] - before[0]) / os.sysconf("SC_CLK_TCK")
            found[leaders[pid]] = DeviceUsage(
                busy=min(
                    max(used_s / (now - before[1]), 0.0), 1.0
                ),  # processes that end are missing
                memory_bytes=pages[pid] * page,
                memory_total_bytes=self._total_bytes,
            )
        return found


def _used(pid: int) -> tuple[int, int]:
    """Clock ticks of processor time, and pages of memory, of a process; 0 if it has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0, 0
    after = text[text.rindex(")") + 2 :].split()
    return int(after[11]) + int(after[12]), int(after[21])
