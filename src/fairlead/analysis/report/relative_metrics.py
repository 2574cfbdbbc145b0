"""Policies side by side with one of them: the numbers of the papers' comparisons, and their ratios."""

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
class Relative:
    """One quantity over all runs."""

    quantity: Metric
    unit: Unit
    values: tuple[float | None, ...]  # (runs,)
    ratios: tuple[
        float | None, ...
    ]  # (runs,) over the reference's; None where either is unknown or 0

    @property
    def heading(self) -> str:
        """Heading of its column: name and unit."""
        return f"{self.quantity.name}, {self.unit.name}" if self.unit.name else self.quantity.name


def relative(runs: Sequence[Mapping[str, object]], reference: int) -> list[Relative]:
    """Makespan, average JCT, worst rho and jobs with rho above 1.05, over those of the reference.

    Rho is the static one, as Shockwave (NSDI'23) reports it, or, where no run knows it (it is not
    defined for a window), the isolated one.
    """
    which = "static" if any(worst_rho("static").of(run) is not None for run in runs) else "isolated"
    shown = (MAKESPAN, AVERAGE_JCT, worst_rho(which), unfair(which))
    return [_relative(quantity, runs, reference) for quantity in shown]


def _relative(quantity: Metric, runs: Sequence[Mapping[str, object]], reference: int) -> Relative:
    values = tuple(quantity.of(run) for run in runs)
    one = values[reference]
    ratios = tuple(value / one if value is not None and one else None for value in values)
    return Relative(quantity, unit_for(quantity.kind, values), values, ratios)


def times(ratio: float | None, sign: str = "x") -> str:
    """A ratio as people read it."""
    return DASH if ratio is None else f"{ratio:.2f}{sign}"
