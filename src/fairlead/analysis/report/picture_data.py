"""What the pictures of a run are drawn from. Imports no Polars: the pages of a live server draw, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fairlead.model.arrays import Floats, Ints

if TYPE_CHECKING:
    import polars as pl

Device: TypeAlias = tuple[str, int]  # accelerator type, device id


@dataclass(frozen=True, slots=True)
class OverTime:
    """Averages of a run over successive bins of time."""

    edges_s: Floats  # (bins + 1,) increasing
    active: Floats  # (bins,) jobs in the system
    running: Floats  # (bins,) jobs that run
    utilization: Mapping[str, Floats]  # accelerator type -> (bins,) busy over available
    average: Mapping[str, float]  # the same over the whole run
    busy: Floats  # (bins,) busy over available, of all types
    stranded: Floats  # (bins,) idle though jobs wait, over available
    scattered: Floats  # (bins,) of the busy ones, held by jobs on more servers than they need
    lost_s: Floats  # (bins,) device-seconds of work that does not count
    preempted: Floats  # (bins,) jobs that had to stop


@dataclass(frozen=True, slots=True)
class Timeline:
    """Which job held which device, at the middle of each of some columns of time."""

    start_s: float
    end_s: float
    columns: int
    groups: tuple[tuple[str, int, int], ...]  # accelerator type, devices shown, devices there are
    rows: tuple[Device, ...]
    bars: "pl.DataFrame"  # job, row, half (0 whole, 1 upper, 2 lower), first, last: [first, last)


def step_line_of(values: Floats, most: int = 500) -> tuple[Floats, Floats]:
    """The empirical distribution of increasing values: (points,) where it steps, and the share it reaches."""
    n = values.size
    at: Ints = np.arange(n) if n <= most else np.linspace(0, n - 1, most).round().astype(np.int64)
    return values[at], (at + 1) / n
