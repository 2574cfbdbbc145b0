"""A chart as data. Pages and files show the same."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairlead.model.arrays import Bools, Floats


@dataclass(frozen=True)
class Series:
    """Points of one name, in order of x."""

    name: str
    x: Floats
    y: Floats  # nan: no value there
    low: Floats | None = None  # ends of the error bars, as ``y``
    high: Floats | None = None
    published: bool = False  # drawn dashed, in the colour of the series of ours of the same name
    steps: bool = False  # constant from each x to the next (CDFs, counts over time)


@dataclass(frozen=True)
class Chart:
    """Lines, or bars where x are positions of ``categories``."""

    title: str
    x_label: str  # with its unit, as "Jobs per hour"
    y_label: str
    series: tuple[Series, ...]
    kind: Literal["lines", "bars"] = "lines"
    categories: tuple[str, ...] = ()  # names of bars
    log_x: bool = False
    log_y: bool = False
    y_max: float | None = (
        None  # the top of the axis: what is above (near divergence) leaves the chart
    )
    marks: tuple[tuple[float, str], ...] = ()  # vertical lines: x and name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the series, each once: the position of a name is the number of its colour."""
        return tuple(dict.fromkeys(series.name for series in self.series))

    @property
    def paired(self) -> bool:
        """Return whether a published series has one of ours of the same name."""
        ours = {series.name for series in self.series if not series.published}
        return any(series.published and series.name in ours for series in self.series)

    @property
    def legend_entries(self) -> tuple[tuple[str, int, bool], ...]:
        """Entries of a legend: name, number of the colour, and whether it is drawn dashed. Where ours and
        the published series share a name, they share an entry, and one more tells what dashes mean. Series
        without a value have none: they are there so that the others keep their colours."""
        ours = {series.name for series in self.series if not series.published}
        seen = {series.name for series in self.series if np.isfinite(series.y).any()}
        return tuple(
            (name, number, name not in ours)
            for number, name in enumerate(self.names)
            if name and name in seen
        )


def x_range(chart: Chart) -> tuple[float, float]:
    """The least and the largest x that are drawn, from 0 on where the least is near it; of bars the ends
    of the first and last group."""
    if chart.kind == "bars":
        return -0.5, max(len(chart.categories), 1) - 0.5
    found = [series.x[np.isfinite(series.x) & _drawn(chart, series)] for series in chart.series]
    found.append(np.array([x for x, _ in chart.marks]))
    every = np.concatenate(found)
    every = every[every > 0] if chart.log_x else every
    least, most = _wide(every, chart.log_x)
    return (0.0 if not chart.log_x and 0 <= least < 0.05 * most else least), most


def y_range(chart: Chart) -> tuple[float, float]:
    """The bottom and the top of the axis: from 0 on where values reach down to less than two thirds of
    the largest (bars always), with room above."""
    found = [values for s in chart.series for values in (s.y, s.low, s.high) if values is not None]
    every = np.concatenate([values[np.isfinite(values)] for values in found] or [np.empty(0)])
    every = every[every > 0] if chart.log_y else every
    least, most = _wide(every, chart.log_y)
    if chart.y_max is not None:
        most = chart.y_max
    if chart.log_y:
        return least / 1.15, most if chart.y_max is not None else most * 1.15
    if least >= 0 and (chart.kind == "bars" or least < 2 / 3 * most):
        least = 0.0
    margin = 0.06 * (most - least)
    return (
        least if least == 0 else least - margin,
        most if chart.y_max is not None else most + margin,
    )


def _drawn(chart: Chart, series: Series) -> Bools:
    """(points,) whether there is a value that can be drawn."""
    return np.isfinite(series.y) & (series.y > 0 if chart.log_y else True)


def _wide(values: Floats, log: bool) -> tuple[float, float]:
    """The least and the largest value, moved apart where they are equal."""
    if not values.size:
        return (1.0, 10.0) if log else (0.0, 1.0)
    least, most = float(values.min()), float(values.max())
    if least < most:
        return least, most
    return (least / 2, most * 2) if log else (min(least, 0.0), most or 1.0)
