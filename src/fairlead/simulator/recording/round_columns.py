"""The table of rounds: one row per round, the empty ones included."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from fairlead.model.arrays import Floats

_COUNTS = ("active", "running", "started", "preempted", "moved")
_TIMES = ("time_s", "seconds")
_LATER = ("waiting", "lost_s", "spread_s")  # 0 until they are known


class RoundColumns:
    """Rows as they come. busy and capacity: (slots,) device-seconds and devices of a round."""

    def __init__(self, slots: int) -> None:
        names = (*_TIMES, *_COUNTS, "solved", "busy", "capacity", *_LATER)
        self._columns: dict[str, list[Any]] = {name: [] for name in names}
        self._idle: Floats = np.zeros(slots)

    def __len__(self) -> int:
        return len(self._columns["time_s"])

    @property
    def last_s(self) -> float:
        """When the last round began."""
        return float(self._columns["time_s"][-1])

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def add(self, *, solved: bool, capacity: Floats, **row: float) -> None:
        """Add a round. row: time_s, and counts of jobs that are active, running, started, preempted and
        moved; what is known at its end is 0 until then."""
        for name in (*_TIMES, *_COUNTS, *_LATER):
            self._columns[name].append(row.get(name, 0))
        self._columns["solved"].append(solved)
        self._columns["busy"].append(self._idle)
        self._columns["capacity"].append(capacity)

    def update(self, **values: Any) -> None:
        """Set columns of the last round."""
        for name, value in values.items():
            self._columns[name][-1] = value

    def table(self, accelerators: Sequence[str]) -> pl.DataFrame:
        """One row per round."""
        slots = len(self._idle)
        busy = np.array(self["busy"], np.float64).reshape(-1, slots)
        capacity = np.array(self["capacity"], np.float64).reshape(-1, slots)
        columns: dict[str, Any] = {"round": np.arange(len(self))}
        columns |= {name: np.array(self[name], np.float64) for name in _TIMES}
        columns |= {name: np.array(self[name], np.int64) for name in _COUNTS}
        columns["solved"] = np.array(self["solved"], np.bool_)
        columns |= {name: np.array(self[name], np.float64) for name in _LATER}
        for t, accelerator in enumerate(accelerators):
            columns[f"busy_{accelerator}"] = busy[:, t]
            columns[f"capacity_{accelerator}"] = capacity[:, t]
        return pl.DataFrame(columns)
