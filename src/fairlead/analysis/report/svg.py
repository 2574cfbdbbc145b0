"""The elements of pictures: colours, axes, grids and words, as SVG text.

Colours are those of Okabe and Ito (2008), and one of Tol's (2021), told apart by people with any colour
vision; where lines share a picture, dashes tell them apart too once the colours repeat.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import degrees, radians, sin

import numpy as np

from fairlead.analysis.report.markup import Html, clean
from fairlead.analysis.report.metric_catalogue import Unit
from fairlead.model.arrays import Floats

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d", "#882255",
)  # fmt: skip
INK, FAINT, GRID = "#222222", "#5f5f5f", "#e4e4e4"
CHARACTER = 6.7  # mean width of a character at the font size of all pictures, px
SLANT, SLANTED = radians(50), 110  # of labels below bars: angle, and length in px
DASHES = ("", "7 3", "2 3", "9 3 2 3")


def colour(series: int) -> str:
    """The colour of the n-th series."""
    return COLOURS[series % len(COLOURS)]


def dashes(series: int) -> str:
    """The dash pattern of the n-th series: solid until the colours repeat."""
    return DASHES[series // len(COLOURS) % len(DASHES)]


@dataclass(frozen=True, slots=True)
class PlotFrame:
    """The part of a picture that holds the data; px."""

    width: float
    height: float
    left: float = 52
    right_margin: float = 20
    top: float = 10
    bottom_margin: float = 44

    @property
    def right(self) -> float:
        return self.width - self.right_margin

    @property
    def bottom(self) -> float:
        return self.height - self.bottom_margin


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to px."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value, px."""
        return float(self.all(np.array([value]))[0])

    def all(self, values: Floats) -> Floats:
        """Return the positions of values, px."""
        low, high = self.low, self.high
        if self.log:
            low, high, values = math.log(low), math.log(high), np.log(np.maximum(values, low))
        span = high - low or 1.0
        return np.asarray(self.start + (values - low) / span * (self.end - self.start), np.float64)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers inside [low, high], at most so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((m * power for m in (1, 2, 2.5, 5) if m * power >= rough), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten inside [low, high], with their doubles and fives where there is room."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    parts = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [m * 10.0**p for p in powers for m in parts if low <= m * 10.0**p <= high]


def grid_x(frame: PlotFrame, x: Axis, unit: Unit, label: str, *, lines: bool = True) -> str:
    """The horizontal axis with its label; ``lines``: with a line of the grid at every tick."""
    low, high = x.low / unit.size, x.high / unit.size
    most = int((frame.right - frame.left) // 70)
    marks = []
    for tick in log_ticks(low, high) if x.log else ticks(low, high, most):
        at = x.at(tick * unit.size)
        top = frame.top if lines else frame.bottom
        marks.append(
            f'<path d="M{at:.1f} {top:g}V{frame.bottom + 4:g}" stroke="{GRID if lines else FAINT}"/>'
        )
        marks.append(write(at, frame.bottom + 17, f"{tick:,.10g}", anchor="middle", fill=FAINT))
    base = f'<path d="M{frame.left:g} {frame.bottom:g}H{frame.right:g}" stroke="{FAINT}"/>'
    center = (frame.left + frame.right) / 2
    return "".join(marks) + base + write(center, frame.bottom + 36, label, anchor="middle")


def grid_y(frame: PlotFrame, y: Axis, unit: Unit, max_ticks: int = 6) -> str:
    """Lines and numbers of the vertical axis."""
    marks = []
    low, high = y.low / unit.size, y.high / unit.size
    for tick in log_ticks(low, high) if y.log else ticks(low, high, max_ticks):
        at = y.at(tick * unit.size)
        marks.append(f'<path d="M{frame.left:g} {at:.1f}H{frame.right:g}" stroke="{GRID}"/>')
        name = f"{tick:,.10g}" + (f" {unit.name}" if unit.name else "")
        marks.append(write(frame.left - 6, at + 4, name, anchor="end", fill=FAINT))
    return "".join(marks)


def empty(words: str, size: tuple[int, int]) -> Html:
    """A picture with a sentence, for where there is nothing to draw."""
    width, height = size
    return picture(
        width, height, words, write(width / 2, height / 2, words, anchor="middle", fill=FAINT)
    )


def fit(label: str, width: float) -> str:
    """Return a label, cut to the available width in px."""
    most = max(int(width / CHARACTER), 2)
    return label if len(label) <= most else label[: most - 1] + "…"


def write(
    x: float, y: float, words: str, *, anchor: str = "", weight: str = "", fill: str = ""
) -> str:
    """A ``<text>`` element. x, y: px."""
    style = "".join(
        f' {name}="{value}"'
        for name, value in (("text-anchor", anchor), ("font-weight", weight), ("fill", fill))
        if value
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{clean(words)}</text>'


def slanted(x: float, y: float, label: str, weight: str = "") -> str:
    """A label that rises to its end at this place."""
    words = write(x, y, fit(label, SLANTED), anchor="end", weight=weight)
    return f'<g transform="rotate({-degrees(SLANT):.0f} {x:.1f} {y:.1f})">{words}</g>'


def label_height(labels: Sequence[str]) -> float:
    """px that slanted labels take."""
    return 14 + min(max(map(len, labels), default=0) * CHARACTER, SLANTED) * sin(SLANT)


def picture(width: float, height: float, title: str, body: str, data: str = "") -> Html:
    """One ``<svg>`` element; ``data``: further attributes."""
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{clean(title)}" font-size="12" fill="{INK}" {data}>{body}</svg>'
    )
