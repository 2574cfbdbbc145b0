"""The table of rounds: one row per round, the empty ones included."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from fairlead.model.arrays import Floats

_COUNTS = ("active", "running", "started", "preempted", "moved")
_TIMES = ("time_s", "seconds")
_LATER = ("waiting", "lost_s", "spread_s")


@dataclass(slots=True, kw_only=True)
class RoundRow:
    """A round. What is known at its end is 0 until then."""

    time_s: float
    active: int  # jobs in the system
    running: int  # job groups
    started: int  # jobs, as the next three
    waiting: int
    solved: bool  # since the round before began?
    capacity: Floats  # (slots,) devices
    preempted: int = 0
    moved: int = 0
    seconds: float = 0.0
    lost_s: float = 0.0
    spread_s: float = 0.0
    busy: Floats | None = None  # (slots,) device-seconds


class RoundColumns:
    """The rows of rounds so far; ``columns[name]`` is the list of a field of all."""

    def __init__(self, slots: int) -> None:
        self._rows: list[RoundRow] = []
        self._idle: Floats = np.zeros(slots)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def last(self) -> RoundRow:
        """The last round; what it has come to is set there."""
        return self._rows[-1]

    def __getitem__(self, name: str) -> list[Any]:
        return list(map(attrgetter(name), self._rows))

    def add(self, row: RoundRow) -> None:
        """Add a round."""
        self._rows.append(row)

    def table(self, accelerators: Sequence[str]) -> pl.DataFrame:
        """One row per round."""
        slots = len(self._idle)
        rows = [self._idle if one is None else one for one in self["busy"]]
        busy = np.array(rows, np.float64).reshape(-1, slots)
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
