"""Charts as files: PNG and SVG of the quality of a paper; the same chart gives the same bytes."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from fairlead.analysis.report.chart import (
    Chart,
    Series,
    x_range,
    y_range,
)
from fairlead.analysis.report.svg import (
    FAINT,
    GRID,
    INK,
    colour,
)
from fairlead.model.arrays import Floats
from fairlead.simulator.traces.atomic_write import write_atomically

if TYPE_CHECKING:  # matplotlib takes a while to load, and few commands need it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format: TypeAlias = Literal["png", "svg"]
FORMATS: tuple[Format, ...] = ("png", "svg")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # tell series apart where colours do not
DASHES = (0, (4, 2))
MIN_MARKED_POINTS = 40  # a line of at most so many points has a marker at each
WIDTH, HEIGHT = 5.4, 3.4  # inches: of the axes
BAR_ROOM = 0.8  # of the distance between categories
_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is there on every machine
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "savefig.dpi": 200,
    "svg.hashsalt": "fairlead",  # names inside the file do not change from time to time
}
_METADATA: dict[Format, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}


def write_chart(chart: Chart, stem: Path, formats: tuple[Format, ...] = FORMATS) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, whole or not at all, and return their paths."""
    with _style():
        figure = draw(chart)
        written = []
        for kind in formats:
            path = stem.with_name(f"{stem.name}.{kind}")
            with write_atomically(path) as partial:
                figure.savefig(partial, format=kind, metadata=_METADATA[kind], bbox_inches="tight")
            written.append(path)
    return written


@contextmanager
def _style() -> Iterator[None]:
    """Our look, whatever the user's own settings of matplotlib are."""
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE]):
        yield


def draw(chart: Chart) -> "Figure":
    """The chart as a figure of matplotlib."""
    from matplotlib.figure import Figure

    width = WIDTH if chart.kind == "lines" else max(WIDTH, 0.16 * _bars(chart))
    figure = Figure(figsize=(width + 1.0, HEIGHT + 1.0))
    axes = figure.add_axes((0.7 / (width + 1), 0.5 / (HEIGHT + 1), width / (width + 1), 0.77))
    axes.set_title("\n".join(textwrap.wrap(chart.title, round(13 * width))), pad=10)
    axes.set_xlabel(chart.x_label, wrap=True)
    axes.set_ylabel(chart.y_label)
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.kind == "bars":
        _draw_bars(axes, chart)
    else:
        _draw_lines(axes, chart)
    axes.set_ylim(*y_range(chart))
    _ticks(axes, chart)
    _marks(axes, chart)
    _legend(axes, chart)
    return figure


def _bars(chart: Chart) -> int:
    return len(chart.series) * len(chart.categories)


def _draw_lines(axes: "Axes", chart: Chart) -> None:
    for series in chart.series:
        number = chart.names.index(series.name)
        few = np.isfinite(series.y).sum() <= MIN_MARKED_POINTS and not series.steps
        axes.plot(
            series.x,
            series.y,
            label=series.name,
            color=colour(number),
            linestyle=DASHES if series.published else "-",
            drawstyle="steps-post" if series.steps else "default",
            marker=MARKERS[number % len(MARKERS)] if few else "",
            markerfacecolor="white" if series.published else colour(number),
            zorder=2 if series.published else 3,
        )
        if series.low is not None and series.high is not None:
            axes.errorbar(
                series.x,
                series.y,
                yerr=_errors(series),
                fmt="none",
                ecolor=colour(number),
                elinewidth=1.2,
                capsize=2.5,
            )
    low, high = x_range(chart)
    if chart.log_x:
        axes.set_xlim(low / 1.08, high * 1.08)
    else:
        room = 0.03 * (high - low)
        axes.set_xlim(0.0 if low == 0 else low - room, high + room)


def _draw_bars(axes: "Axes", chart: Chart) -> None:
    """Series side by side in each category; published ones are empty, with a broken edge."""
    thick = BAR_ROOM / max(len(chart.series), 1)
    for place, series in enumerate(chart.series):
        number = chart.names.index(series.name)
        at = series.x + (place + 0.5) * thick - BAR_ROOM / 2
        axes.bar(
            at,
            series.y,
            0.88 * thick,
            color="white" if series.published else colour(number),
            edgecolor=colour(number),
            linestyle="--" if series.published else "-",
            linewidth=1.2,
            zorder=3,
        )
        if series.low is not None and series.high is not None:
            axes.errorbar(
                at, series.y, yerr=_errors(series), fmt="none", ecolor=INK,
                elinewidth=1.0, capsize=2.0, zorder=4,
            )  # fmt: skip
    axes.set_xlim(*x_range(chart))
    axes.grid(visible=False, axis="x")


def _errors(series: Series) -> Floats:
    """(2, points) how far the ends of the error bars are from the points; 0 where nobody knows."""
    assert series.low is not None
    assert series.high is not None
    apart = np.stack([series.y - series.low, series.high - series.y])
    return np.where(np.isfinite(apart), np.maximum(apart, 0.0), 0.0)


def _ticks(axes: "Axes", chart: Chart) -> None:
    """Plain numbers rather than powers of ten, as far as people read them; categories by name."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for axis, log, (low, high) in (
        (axes.xaxis, chart.log_x and chart.kind == "lines", x_range(chart)),
        (axes.yaxis, chart.log_y, y_range(chart)),
    ):
        if log:
            short = high / low < 1000
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,)))
            axis.set_minor_formatter(NullFormatter())
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if chart.kind == "bars":
        long = max(map(len, chart.categories), default=0) * len(chart.categories) > 60
        axes.set_xticks(
            np.arange(len(chart.categories)),
            list(chart.categories),
            rotation=35 if long else 0,
            ha="right" if long else "center",
            rotation_mode="anchor",
        )


def _marks(axes: "Axes", chart: Chart) -> None:
    for x, name in chart.marks:
        axes.axvline(x, color=FAINT, linestyle=":", linewidth=1.2)
        axes.annotate(
            name, (x, 1.0), (3, -3), xycoords=("data", "axes fraction"), textcoords="offset points",
            rotation=90, ha="left", va="top", fontsize=8, color=FAINT,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}, zorder=5,
        )  # fmt: skip


def _legend(axes: "Axes", chart: Chart) -> None:
    """Beside the axes, where it hides nothing."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    bars = chart.kind == "bars"

    def sign(color: str, number: int | None, dashed: bool) -> "Line2D | Patch":
        if bars:
            fill = "white" if dashed else color
            return Patch(facecolor=fill, edgecolor=color, linestyle="--" if dashed else "-")
        marker = "" if number is None else MARKERS[number % len(MARKERS)]
        few = all(np.isfinite(s.y).sum() <= MIN_MARKED_POINTS and not s.steps for s in chart.series)
        return Line2D(
            [], [], color=color, linestyle=DASHES if dashed else "-", marker=marker if few else "",
            markerfacecolor="white" if dashed else color,
        )  # fmt: skip

    signs = [sign(colour(number), number, dashed) for _, number, dashed in chart.entries]
    names = [textwrap.fill(name, 30) for name, _, _ in chart.entries]
    if chart.paired:
        signs.append(sign(FAINT, None, True))
        names.append("published")
    if names:
        axes.legend(signs, names, loc="upper left", bbox_to_anchor=(1.01, 1.0))
