"""Charts as files: PDF, PNG and SVG of the quality of a paper; the same chart gives the same bytes."""

import math
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
from fairlead.analysis.report.figure_style import FigureStyle
from fairlead.analysis.report.svg import (
    CHARACTER,
    FAINT,
    GRID,
    INK,
    colour,
    fit,
)
from fairlead.model.arrays import Floats
from fairlead.simulator.traces.atomic_write import write_atomically

if TYPE_CHECKING:  # matplotlib takes a while to load, and few commands need it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format: TypeAlias = Literal["pdf", "png", "svg"]
FORMATS: tuple[Format, ...] = ("pdf", "png", "svg")
DEFAULT_FORMATS: tuple[Format, ...] = ("png", "svg")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # tell series apart where colours do not
DASHES = (0, (4, 2))
# Dashes and hatches that a grey print keeps apart; the first are those of published series elsewhere.
LINE_STYLES: tuple[Any, ...] = (
    "-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 3)),
)  # fmt: skip
HATCHES = ("", "////", "\\\\\\\\", "xxx", "...", "---", "+++")
MARKS_PER_LINE = 6  # markers of a line with many points, in a figure with line styles
MAX_MARKED_POINTS = 40  # a line of at most so many points has a marker at each
WIDTH, HEIGHT = 5.4, 3.4  # inches: of the axes
BAR_GROUP_WIDTH = 0.8  # of the distance between categories
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
_METADATA: dict[Format, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
    "svg": {"Date": None},
}


def write_chart(
    chart: Chart,
    stem: Path,
    formats: tuple[Format, ...] = DEFAULT_FORMATS,
    style: FigureStyle | None = None,
) -> list[Path]:
    """Write ``stem.FORMAT`` for each format, whole or not at all, and return the paths.

    style: of a figure for a paper, which has exactly that size; None: as large as its axes and its legend
    need, as on a page of results.
    """
    with matplotlib_style(style):
        figure = draw(chart) if style is None else draw_for_paper(chart, style)
        written = []
        for kind in formats:
            path = stem.with_name(f"{stem.name}.{kind}")
            box = "tight" if style is None else None
            with write_atomically(path) as partial:
                figure.savefig(partial, format=kind, metadata=_METADATA[kind], bbox_inches=box)
            written.append(path)
    return written


@contextmanager
def matplotlib_style(style: FigureStyle | None) -> Iterator[None]:
    """Fairlead's style within the block, whatever the user's own settings of matplotlib are."""
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE, {} if style is None else _paper(style)]):
        yield


def _paper(style: FigureStyle) -> dict[str, Any]:
    """The settings of matplotlib that follow from the size of the type."""
    size = style.font_pt
    return {
        "font.size": size,
        "axes.titlesize": size,
        "axes.labelsize": size,
        "xtick.labelsize": 0.9 * size,
        "ytick.labelsize": 0.9 * size,
        "legend.fontsize": 0.9 * size,
        "lines.linewidth": 0.16 * size,
        "lines.markersize": 0.5 * size,
        "axes.linewidth": 0.08 * size,
        "grid.linewidth": 0.06 * size,
        "hatch.linewidth": 0.06 * size,
        "pdf.fonttype": 42,  # TrueType: what publishers accept, and readers can search
        "savefig.dpi": 300,
    }


def draw_for_paper(chart: Chart, style: FigureStyle) -> "Figure":
    """The chart as a figure of matplotlib of the style's size, with its legend above the axes. Raises
    ConfigError where the legend leaves the axes too little of the height that is asked for."""
    from matplotlib.figure import Figure

    per_line = style.width * 72 / (0.55 * style.font_pt)  # characters that fit side by side
    handles, names = _legend(chart, style)
    longest = max(map(len, names), default=0) + 6  # the sign takes as much as some letters
    columns = max(min(int(per_line / longest), len(names)), 1)
    height = style.height_with_legend(math.ceil(len(names) / columns) if len(names) > 1 else 0)
    figure = Figure(figsize=(style.width, height), layout="constrained")
    axes = figure.add_subplot()
    _fill_axes(axes, chart, style)
    if style.titles:
        axes.set_title(textwrap.fill(chart.title, int(0.9 * per_line)))
    axes.set_xlabel(textwrap.fill(chart.x_label, int(0.8 * per_line)))
    high = height * 72 / (0.55 * style.font_pt)
    axes.set_ylabel(textwrap.fill(chart.y_label, max(int(0.55 * high), 12)))
    if len(names) > 1:
        figure.legend(
            handles,
            names,
            loc="outside upper center",
            ncols=columns,
            columnspacing=1.0,
            handlelength=2.6,
        )
    return figure


def draw(chart: Chart) -> "Figure":
    """The chart as a figure of matplotlib, with its legend to the right of the axes."""
    from matplotlib.figure import Figure

    width = WIDTH if chart.kind == "lines" else max(WIDTH, 0.16 * _bar_count(chart))
    figure = Figure(figsize=(width + 1.0, HEIGHT + 1.0))
    axes = figure.add_axes((0.7 / (width + 1), 0.5 / (HEIGHT + 1), width / (width + 1), 0.77))
    axes.set_title("\n".join(textwrap.wrap(chart.title, round(13 * width))), pad=10)
    axes.set_xlabel(chart.x_label, wrap=True)
    axes.set_ylabel(chart.y_label)
    _fill_axes(axes, chart, None)
    handles, names = _legend(chart, None)
    if names:
        axes.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def _fill_axes(axes: "Axes", chart: Chart, style: FigureStyle | None) -> None:
    """Draw everything inside the axes, and their ticks."""
    vary_style = style is not None and style.line_styles
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.kind == "bars":
        _draw_bars(axes, chart, vary_style)
    else:
        _draw_lines(axes, chart, vary_style)
    axes.set_ylim(*y_range(chart))
    width = WIDTH if style is None else 0.8 * style.width
    height = 2 * HEIGHT if style is None else style.height
    _ticks(axes, chart, width, height, 10.0 if style is None else 0.9 * style.font_pt)
    _marks(axes, chart, 8.0 if style is None else 0.85 * style.font_pt)


def _bar_count(chart: Chart) -> int:
    return len(chart.series) * len(chart.categories)


def _draw_lines(axes: "Axes", chart: Chart, vary_style: bool) -> None:
    for series in chart.series:
        number = chart.names.index(series.name)
        has_markers = _has_markers(series)
        axes.plot(
            series.x,
            series.y,
            label=series.name,
            color=colour(number),
            linestyle=_line_style(number, series.published, vary_style),
            drawstyle="steps-post" if series.steps else "default",
            marker=MARKERS[number % len(MARKERS)] if has_markers or vary_style else "",
            markevery=1 if has_markers else _marker_positions(chart, series, number),
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
        margin = 0.03 * (high - low)
        axes.set_xlim(0.0 if low == 0 else low - margin, high + margin)


def _has_markers(series: Series) -> bool:
    """Return whether a line has so few points that each is marked."""
    return bool(np.isfinite(series.y).sum() <= MAX_MARKED_POINTS and not series.steps)


def _marker_positions(chart: Chart, series: Series, number: int) -> list[int]:
    """Positions of a line's markers: evenly along the axis, at other places than those of other lines."""
    known = np.flatnonzero(np.isfinite(series.x) & np.isfinite(series.y))
    known = known[series.x[known] > 0] if chart.log_x else known
    if not known.size:
        return []
    at = (np.arange(MARKS_PER_LINE) + (number + 0.5) / len(chart.names)) / MARKS_PER_LINE
    x = np.log(series.x[known]) if chart.log_x else series.x[known]
    target = x[0] + at * (x[-1] - x[0])
    found = known[np.minimum(np.searchsorted(x, target), len(known) - 1)]
    return [int(position) for position in np.unique(found)]


def _line_style(number: int, published: bool, vary_style: bool) -> Any:
    """A dash pattern of matplotlib."""
    if vary_style:
        return LINE_STYLES[number % len(LINE_STYLES)]
    return DASHES if published else "-"


def _draw_bars(axes: "Axes", chart: Chart, vary_style: bool) -> None:
    """Series side by side in each category; published ones are empty, with a broken edge."""
    thick = BAR_GROUP_WIDTH / max(len(chart.series), 1)
    for position, series in enumerate(chart.series):
        number = chart.names.index(series.name)
        at = series.x + (position + 0.5) * thick - BAR_GROUP_WIDTH / 2
        axes.bar(
            at,
            series.y,
            0.88 * thick,
            color="white" if series.published or _hatch(number, vary_style) else colour(number),
            edgecolor=colour(number),
            linestyle="--" if series.published else "-",
            linewidth=1.2,
            hatch=_hatch(number, vary_style),
            zorder=3,
        )
        if series.low is not None and series.high is not None:
            axes.errorbar(
                at, series.y, yerr=_errors(series), fmt="none", ecolor=INK,
                elinewidth=1.0, capsize=2.0, zorder=4,
            )  # fmt: skip
    axes.set_xlim(*x_range(chart))
    axes.grid(visible=False, axis="x")


def _hatch(number: int, vary_style: bool) -> str | None:
    return HATCHES[number % len(HATCHES)] if vary_style else None


def _errors(series: Series) -> Floats:
    """(2, points) how far the ends of the error bars are from the points; 0 where that is not known."""
    assert series.low is not None
    assert series.high is not None
    errors = np.stack([series.y - series.low, series.high - series.y])
    return np.where(np.isfinite(errors), np.maximum(errors, 0.0), 0.0)


def _ticks(axes: "Axes", chart: Chart, width_in: float, height_in: float, font_pt: float) -> None:
    """Plain numbers rather than powers of ten, as far as people read them; categories by name. Labels are
    thinned or slanted where they would run into each other."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for axis, log, (low, high) in (
        (axes.xaxis, chart.log_x and chart.kind == "lines", x_range(chart)),
        (axes.yaxis, chart.log_y, y_range(chart)),
    ):
        if log:
            numbers = 3 * math.log10(high / low)
            margin = axis is axes.yaxis or numbers * 4.5 * _em(font_pt) < width_in
            short = high / low < 1000 and margin
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,)))
            axis.set_minor_formatter(NullFormatter())
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if chart.kind == "bars":
        longest = 0.35 * height_in / (_em(font_pt) * math.sin(math.radians(35)))
        letters = (max(map(len, chart.categories), default=0) + 1) * len(chart.categories)
        long = letters * _em(font_pt) > width_in
        axes.set_xticks(
            np.arange(len(chart.categories)),
            [fit(name, longest * CHARACTER) for name in chart.categories],
            rotation=35 if long else 0,
            ha="right" if long else "center",
            rotation_mode="anchor",
        )


def _em(font_pt: float) -> float:
    """Mean width of a letter, inches."""
    return 0.58 * font_pt / 72


def _marks(axes: "Axes", chart: Chart, font_pt: float) -> None:
    for x, name in chart.marks:
        axes.axvline(x, color=FAINT, linestyle=":", linewidth=1.2)
        axes.annotate(
            name, (x, 1.0), (3, -3), xycoords=("data", "axes fraction"), textcoords="offset points",
            rotation=90, ha="left", va="top", fontsize=font_pt, color=FAINT,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}, zorder=5,
        )  # fmt: skip


def _legend(chart: Chart, style: FigureStyle | None) -> tuple[list[Any], list[str]]:
    """Handles and labels of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    bars = chart.kind == "bars"
    vary_style = style is not None and style.line_styles

    def handle(color: str, number: int | None, dashed: bool) -> "Line2D | Patch":
        if bars:
            fill = "white" if dashed else color
            hatch = None if number is None else _hatch(number, vary_style)
            line: Literal["--", "-"] = "--" if dashed else "-"
            return Patch(
                facecolor="white" if hatch else fill, edgecolor=color, linestyle=line, hatch=hatch
            )
        marker = MARKERS[(number or 0) % len(MARKERS)] if number is not None or vary_style else ""
        marked = vary_style or all(map(_has_markers, chart.series))
        return Line2D(
            [], [], color=color, linestyle=_line_style(number or 0, dashed, vary_style),
            marker=marker if marked else "", markerfacecolor="white" if dashed else color,
        )  # fmt: skip

    handles = [handle(colour(number), number, dashed) for _, number, dashed in chart.legend_entries]
    names = [textwrap.fill(name, 30) for name, _, _ in chart.legend_entries]
    if chart.paired:
        handles.append(handle(FAINT, None, True))
        names.append("published")
    return handles, names
