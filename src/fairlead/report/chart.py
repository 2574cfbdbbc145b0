"""A chart as data. Pages and files show the same."""

from dataclasses import dataclass
from typing import Literal

from fairlead.model.arrays import Floats


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
    y_most: float | None = (
        None  # the top of the axis: what is above (near divergence) leaves the chart
    )
    marks: tuple[tuple[float, str], ...] = ()  # vertical lines: x and name
