"""The metrics that the papers compare, and their ratios to those of a reference run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.analysis.report.metric_catalogue import (
    AVERAGE_JCT,
    MAKESPAN,
    Metric,
    Unit,
    unfair,
    unit_for,
    worst_rho,
)
from fairlead.model.duration_text import DASH


@dataclass(frozen=True, slots=True)
class RelativeMetric:
    """One metric over all runs."""

    metric: Metric
    unit: Unit
    values: tuple[float | None, ...]  # (runs,)
    ratios: tuple[
        float | None, ...
    ]  # (runs,) over the reference's; None where either is unknown or 0

    @property
    def heading(self) -> str:
        """Heading of its column: name and unit."""
        return f"{self.metric.name}, {self.unit.name}" if self.unit.name else self.metric.name


def relative_metrics(runs: Sequence[Mapping[str, object]], reference: int) -> list[RelativeMetric]:
    """Makespan, average JCT, worst rho and jobs with rho above 1.05, over those of the reference.

    Rho is the static one, as Shockwave (NSDI'23) reports it, or, where no run has it (it is not
    defined with a window), the isolated one.
    """
    which = "static" if any(worst_rho("static").of(run) is not None for run in runs) else "isolated"
    shown = (MAKESPAN, AVERAGE_JCT, worst_rho(which), unfair(which))
    return [_relative(metric, runs, reference) for metric in shown]


def _relative(
    metric: Metric, runs: Sequence[Mapping[str, object]], reference: int
) -> RelativeMetric:
    values = tuple(metric.of(run) for run in runs)
    one = values[reference]
    ratios = tuple(value / one if value is not None and one else None for value in values)
    return RelativeMetric(metric, unit_for(metric.kind, values), values, ratios)


def format_ratio(ratio: float | None, sign: str = "x") -> str:
    """A ratio with two decimals and a sign behind it."""
    return DASH if ratio is None else f"{ratio:.2f}{sign}"
