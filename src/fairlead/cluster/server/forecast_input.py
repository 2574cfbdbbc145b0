"""The live state from which forecasts start."""

from dataclasses import dataclass
from statistics import median

import numpy as np

from fairlead.cluster.forecasting.arrivals import History
from fairlead.cluster.server.rates import UNKNOWN
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint
from fairlead.scheduler.setup import Setup


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """Measured rate of one job."""

    job: int
    job_type: JobType
    accelerator: str
    rate: float  # steps/s
    # the table has no rates of its job type, so its rate is not used for other jobs of the type
    by_itself: bool


@dataclass(frozen=True, slots=True)
class ForecastInput:
    """Copy of the live state at one moment, from which a forecast simulates on."""

    now_s: float
    setup: Setup
    state: SchedulerCheckpoint
    steps_done: dict[int, float]
    paused_s: dict[int, float]  # job that the core holds for now -> seconds until it is let go
    restart_s: float
    history: History
    measured: tuple[MeasuredJob, ...]
    unknown: frozenset[int]  # jobs of whose rates nobody knows anything


def measured_table(inputs: ForecastInput) -> Throughputs:
    """Return the throughput table in force, with the rows of running jobs scaled to their measured rates."""
    believed = inputs.setup.throughputs
    column: dict[str, list[int]] = {}
    for at, slot in enumerate(believed.slots):
        column.setdefault(slot.accelerator, []).append(at)
    ratios: dict[int, list[float]] = {}
    for one in inputs.measured:
        row = believed.row(one.job_type)
        if row is not None and not one.by_itself:
            before = max(believed.rate[row, column.get(one.accelerator, [])], default=0.0)
            if before > 0:
                ratios.setdefault(row, []).append(one.rate / before)
    if not ratios:
        return believed
    rows = [believed.rate[row] * median(of) for row, of in ratios.items()]
    kinds = tuple(believed.job_types[row] for row in ratios)
    return believed.learned(kinds, believed.slots, np.array(rows))


def measured_factors(inputs: ForecastInput) -> dict[int, float]:
    """Return measured rate over ``UNKNOWN``, the rate that is assumed, of each job of unknown rates."""
    return {one.job: one.rate / UNKNOWN for one in inputs.measured if one.by_itself}
