"""Charts in our pages: one ``<svg>`` element each, with its values where the pointer rests."""

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from fairlead.analysis.report import page
from fairlead.analysis.report.chart import (
    Chart,
    Series,
    x_range,
    y_range,
)
from fairlead.analysis.report.markup import Html, clean, tag
from fairlead.analysis.report.metric_catalogue import Unit
from fairlead.analysis.report.svg import (
    CHARACTER,
    FAINT,
    INK,
    Axis,
    PlotFrame,
    colour,
    dashes,
    empty,
    grid_x,
    grid_y,
    label_height,
    log_ticks,
    picture,
    slanted,
    ticks,
    write,
)
from fairlead.model.arrays import Bools, Floats, Ints

NO_UNIT = Unit("", 1.0, 0)
MAX_MARKED_POINTS = 40  # a line of at most so many points has a dot at each
MAX_POINTS = 1500  # points of a line that are drawn; of longer ones an even selection
PUBLISHED_DASHES = "6 4"
BAR_GROUP_WIDTH = 0.8  # of the distance between categories
WIDE_SIZE = (1120, 400)  # px; alone in a row


def four_digits(value: float) -> str:
    """A value with four digits, or as a whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def figure(chart: Chart, *, wide: bool = False) -> Html:
    """A chart with its title and its legend, as a ``<figure>``."""
    inner = draw(chart, size=WIDE_SIZE if wide else (560, 300))
    if wide:
        return page.wide(inner, title=chart.title, key=chart_legend(chart))
    return page.figure(chart.title, chart_legend(chart), inner)


def gallery(drawn: Sequence[tuple[str, Chart]], names: Sequence[str]) -> Html:
    """The charts of these names, side by side where there is room; empty where there is none of them."""
    inner = [figure(chart) for name, chart in drawn if name in names]
    return tag("div", *inner, class_="figures") if inner else Html()


def chart_section(title: str, drawn: Sequence[tuple[str, Chart]], names: Sequence[str]) -> Html:
    """A section of the page with ``gallery``; empty where that is."""
    inner = gallery(drawn, names)
    return page.section(title, inner) if inner else Html()


def chart_legend(chart: Chart) -> Html:
    """The legend of a chart; empty where it has one entry."""
    entries = [
        (name, *_line_style(number, dashed)) for name, number, dashed in chart.legend_entries
    ]
    if chart.paired:
        entries.append(("published", FAINT, PUBLISHED_DASHES))
    return page.line_legend(entries) if len(entries) > 1 else Html()


def _line_style(number: int, published: bool) -> tuple[str, str]:
    """Colour and dashes of a line."""
    return colour(number), PUBLISHED_DASHES if published else dashes(number)


def draw(chart: Chart, *, size: tuple[int, int] = (560, 300)) -> Html:
    """The chart without title and legend."""
    if not any(np.isfinite(series.y).any() for series in chart.series):
        return empty("There is nothing to show.", size)
    y_low, y_high = y_range(chart)
    gridlines = log_ticks(y_low, y_high) if chart.log_y else ticks(y_low, y_high, 6)
    left = max(max((len(f"{t:,.10g}") for t in gridlines), default=1) * CHARACTER + 14, 36)
    below = 44.0
    if chart.kind == "bars":
        pitch = (size[0] - left - 20) / max(len(chart.categories), 1)
        names_fit = _names_fit(chart, pitch)
        below = (22 if names_fit else label_height(chart.categories)) + (22 if chart.x_label else 4)
    frame = PlotFrame(*size, left=left, top=26, bottom_margin=below)
    x = Axis(*x_range(chart), frame.left, frame.right, chart.log_x and chart.kind == "lines")
    y = Axis(y_low, y_high, frame.bottom, frame.top, chart.log_y)
    clip = f"clip-{crc32(repr(frame).encode()):x}"
    inside = _bars(chart, x, y) if chart.kind == "bars" else _lines(chart, x, y)
    width, height = frame.right - frame.left, frame.bottom - frame.top
    body = [
        f'<clipPath id="{clip}"><rect x="{frame.left - 5:g}" y="{frame.top - 4:g}" '
        f'width="{width + 10:g}" height="{height + 5:g}"/></clipPath>',
        write(0, 13, chart.y_label, fill=INK),
        grid_y(frame, y, NO_UNIT),
        _categories(chart, frame, x)
        if chart.kind == "bars"
        else grid_x(frame, x, NO_UNIT, chart.x_label),
        f'<g clip-path="url(#{clip})">{inside}</g>',
        *(_mark(frame, x.at(at), name) for at, name in chart.marks),
    ]
    return picture(*size, chart.title, "".join(body), 'class="chart"')


def _lines(chart: Chart, x: Axis, y: Axis) -> str:
    ordered = sorted(chart.series, key=lambda series: not series.published)  # ours on top
    return "".join(_line(chart, series, x, y) for series in ordered)


def _line(chart: Chart, series: Series, x: Axis, y: Axis) -> str:
    number = chart.names.index(series.name)
    stroke, dash = _line_style(number, series.published)
    name = f"{series.name} (published)" if series.published else series.name
    at = _thinned(series)
    right, up = x.all(series.x[at]), y.all(series.y[at])
    known = np.isfinite(right) & np.isfinite(up) & (series.y[at] > 0 if y.log else True)
    pieces = "".join(
        _path(right[first:end], up[first:end], series.steps)
        for first, end in _runs_of_points(known)
    )
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    parts = [
        f'<path d="{pieces}" fill="none" stroke="{stroke}" stroke-width="2"{pattern}>'
        f"<title>{clean(name)}</title></path>",
        _whiskers(series, x.all(series.x), y, stroke),
    ]
    if known.sum() <= MAX_MARKED_POINTS and not series.steps:
        fill = "#fff" if series.published else stroke
        for i in np.flatnonzero(known):
            tooltip = _tooltip(name, four_digits(float(series.x[i])), series, int(i))
            parts.append(
                f'<circle cx="{right[i]:.1f}" cy="{up[i]:.1f}" r="3.5" fill="{fill}" '
                f'stroke="{stroke}"><title>{clean(tooltip)}</title></circle>'
            )
    return "".join(parts)


def _thinned(series: Series) -> Ints:
    """Positions of the points that are drawn: of many, an even selection."""
    n = len(series.x)
    return (
        np.arange(n)
        if n <= MAX_POINTS
        else np.linspace(0, n - 1, MAX_POINTS).round().astype(np.int64)
    )


def _runs_of_points(known: Bools) -> list[tuple[int, int]]:
    """[first, end) of each run of points without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], known.astype(np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _path(right: Floats, up: Floats, steps: bool) -> str:
    points = list(zip(right.tolist(), up.tolist(), strict=True))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    if steps:
        return path + "".join(f"H{a:.1f}V{b:.1f}" for a, b in points[1:])
    return path + "".join(f"L{a:.1f} {b:.1f}" for a, b in points[1:])


def _tooltip(name: str, where: str, series: Series, i: int) -> str:
    """The tooltip of a point: its series, where it is, its value and error bar."""
    words = f"{name}, {where}: {four_digits(float(series.y[i]))}"
    if series.low is None or series.high is None or not series.high[i] > series.low[i]:
        return words
    return f"{words} ({four_digits(float(series.low[i]))} to {four_digits(float(series.high[i]))})"


def _whiskers(series: Series, right: Floats, y: Axis, stroke: str) -> str:
    """The error bars of a series; empty where it has none."""
    if series.low is None or series.high is None:
        return ""
    low, high = y.all(series.low), y.all(series.high)
    known = np.isfinite(series.y) & np.isfinite(low) & np.isfinite(high)
    path = "".join(
        f"M{right[i] - 3:.1f} {low[i]:.1f}h6m-3 0V{high[i]:.1f}m-3 0h6"
        for i in np.flatnonzero(known)
    )
    return f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="1.2"/>' if path else ""


def _bars(chart: Chart, x: Axis, y: Axis) -> str:
    """Series side by side in each category; published ones are empty, with a broken edge."""
    pitch = x.at(1.0) - x.at(0.0)
    thick = BAR_GROUP_WIDTH * pitch / max(len(chart.series), 1)
    floor = y.at(max(y.low, 0.0))
    parts = []
    for position, series in enumerate(chart.series):
        stroke, dash = _line_style(chart.names.index(series.name), series.published)
        attributes = (
            f'fill="#fff" stroke="{stroke}" stroke-dasharray="{dash}"'
            if series.published
            else f'fill="{stroke}"'
        )
        name = f"{series.name} (published)" if series.published else series.name
        center = x.all(series.x) + (position + 0.5) * thick - BAR_GROUP_WIDTH * pitch / 2
        for i in np.flatnonzero(np.isfinite(series.y)):
            top = y.at(float(series.y[i]))
            tooltip = _tooltip(name, chart.categories[int(series.x[i])], series, int(i))
            parts.append(
                f'<g><title>{clean(tooltip)}</title><rect x="{center[i] - 0.44 * thick:.1f}" '
                f'y="{min(top, floor):.1f}" width="{0.88 * thick:.1f}" '
                f'height="{abs(floor - top):.1f}" {attributes}/></g>'
            )
        parts.append(_whiskers(series, center, y, INK))
    return "".join(parts)


def _categories(chart: Chart, frame: PlotFrame, x: Axis) -> str:
    """The horizontal axis of bars: names, and the label below them."""
    pitch = x.at(1.0) - x.at(0.0)
    names_fit = _names_fit(chart, pitch)
    names = (
        write(x.at(float(i)), frame.bottom + 17, name, anchor="middle", fill=FAINT)
        if names_fit
        else slanted(x.at(float(i)) + 4, frame.bottom + 14, name)
        for i, name in enumerate(chart.categories)
    )
    base = f'<path d="M{frame.left:g} {frame.bottom:g}H{frame.right:g}" stroke="{FAINT}"/>'
    center = (frame.left + frame.right) / 2
    label = write(center, frame.height - 6, chart.x_label, anchor="middle") if chart.x_label else ""
    return "".join(names) + base + label


def _names_fit(chart: Chart, pitch: float) -> bool:
    """Return whether the names fit side by side. pitch: px from one to the next."""
    return max(map(len, chart.categories), default=0) * CHARACTER < pitch


def _mark(frame: PlotFrame, at: float, name: str) -> str:
    """A vertical line with its name."""
    near_end = at + 6 + len(name) * CHARACTER > frame.width
    words = write(
        at - 4 if near_end else at + 4, frame.top + 10, name,
        anchor="end" if near_end else "", fill=FAINT,
    )  # fmt: skip
    halo = 'stroke="#fff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    line = f'<path d="M{at:.1f} {frame.top:g}V{frame.bottom:g}" stroke="{FAINT}" stroke-dasharray="2 3"/>'
    return f"{line}<g {halo}>{words}</g>"
