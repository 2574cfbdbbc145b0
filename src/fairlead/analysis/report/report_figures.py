"""The pictures of the reports, drawn by small pure functions: data in, one ``<svg>`` element out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.analysis.report.markup import Html, clean
from fairlead.analysis.report.metric_catalogue import (
    MetricKind,
    Unit,
    unit_for,
    with_unit,
)
from fairlead.analysis.report.picture_data import OverTime, Timeline, step_line_of
from fairlead.analysis.report.relative_metrics import RelativeMetric, format_ratio
from fairlead.analysis.report.svg import (
    CHARACTER,
    FAINT,
    Axis,
    PlotFrame,
    colour,
    dashes,
    empty,
    fit,
    grid_x,
    grid_y,
    label_height,
    picture,
    slanted,
    write,
)
from fairlead.model.arrays import Floats

# Timelines need more colours than there are good ones: neighbours differ in hue or in lightness.
JOB_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
    "#7a7a7a", "#f0d942", "#004c78", "#a8cf8e", "#7b3f75", "#f3b49b",
)  # fmt: skip
OTHER_BARS_COLOUR = "#87939d"  # bars beside the one that they are compared with
HALO = 'stroke="#fff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
TIMELINE_MARGIN = 20  # px right of a timeline, for half of the last time


def cdf(
    samples: Sequence[tuple[str, Floats]],
    axis: str,
    *,
    kind: MetricKind = MetricKind.TIME,
    limits: Sequence[float] = (),
    size: tuple[int, int] = (560, 300),
) -> Html:
    """The share of each sample (increasing) up to each value; one curve per sample.

    A single sample has its percentiles marked or, where limits are given, the shares above them.
    """
    known = [(series, name, s) for series, (name, s) in enumerate(samples) if s.size]
    if not known:
        return empty("No job has completed.", size)
    frame = PlotFrame(*size)
    longest = max(float(s[-1]) for _, _, s in known)
    median = max(float(np.median(s)) for _, _, s in known)
    unit = unit_for(kind, [longest])
    x = _value_axis(frame, [s for _, _, s in known], longest > 25 * median, limits)
    y = Axis(0.0, 1.0, frame.bottom, frame.top)
    notes = ", ".join(word for word in (unit.name, "logarithmic" if x.log else "") if word)
    body = [
        grid_x(frame, x, unit, f"{axis} ({notes})" if notes else axis),
        grid_y(frame, y, Unit("%", 0.01, 0)),
        *(_limit(x, y, limit, series) for series, limit in enumerate(limits, 1)),
    ]
    body += [_curve(x, y, s, series, name) for series, name, s in known]
    if len(known) == 1:
        sample = known[0][2]
        body.append(_shares_above(x, y, sample, limits) if limits else _percentiles(x, y, sample))
    return picture(*size, f"Cumulative distribution: {axis}", "".join(body))


def jobs_over_time(over: OverTime, *, size: tuple[int, int] = (560, 300)) -> Html:
    """Jobs in the system as an area, and those that run as a line."""
    frame = PlotFrame(*size)
    unit = unit_for(MetricKind.TIME, [float(over.edges_s[-1])])
    x = Axis(float(over.edges_s[0]), float(over.edges_s[-1]), frame.left, frame.right)
    most = max(float(over.active.max()), float(over.running.max()), 1.0)
    y = Axis(0.0, most * 1.05, frame.bottom, frame.top)
    body = [
        grid_y(frame, y, Unit("", 1.0, 0)),
        _area(x, y, over.edges_s, over.active, colour(5), "active: jobs in the system"),
        _line(x, y, over.edges_s, over.running, colour(0), "running jobs"),
        grid_x(frame, x, unit, f"time ({unit.name})"),
    ]
    return picture(*size, "Jobs active and running over time", "".join(body))


def utilization_over_time(over: OverTime, *, width: int = 560, strip: int = 78) -> Html:
    """One strip per accelerator type, from 0 to 100 % busy."""
    if not over.utilization:
        return empty("No accelerator type was counted.", (width, strip))
    pitch = strip + 24
    size = (width, pitch * len(over.utilization) + 44)
    frame = PlotFrame(*size)
    unit = unit_for(MetricKind.TIME, [float(over.edges_s[-1])])
    x = Axis(float(over.edges_s[0]), float(over.edges_s[-1]), frame.left, frame.right)
    body = []
    for row, (name, busy) in enumerate(over.utilization.items()):
        top = 20 + row * pitch
        mean = over.average[name]
        y = Axis(0.0, 1.0, top + strip, top)
        part = PlotFrame(width, top + strip, top=top, bottom_margin=0)
        body += [
            grid_y(part, y, Unit("%", 0.01, 0), max_ticks=3),
            _area(
                x,
                y,
                over.edges_s,
                np.minimum(busy, 1.0),
                colour(row),
                f"{name}: {mean:.1%} on average",
            ),
            write(frame.left, top - 5, name, weight="bold"),
            write(frame.right, top - 5, f"{100 * mean:.1f} % on average", anchor="end", fill=FAINT),
        ]
    body.append(grid_x(frame, x, unit, f"time ({unit.name})", lines=False))
    return picture(*size, "Utilisation over time by accelerator type", "".join(body))


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a bar chart."""

    label: str
    value: float | None
    text: str  # the value as people read it
    series: int = 0
    best: bool = False


def bars(
    rows: Sequence[Bar], title: str, *, largest: float | None = None, width: int = 560
) -> Html:
    """Horizontal bars from zero, the best one marked."""
    pitch, thick = 26, 16
    if not rows:
        return empty("Nothing to compare.", (width, 2 * pitch))
    gutter = min(max(len(row.label) for row in rows) * CHARACTER + 12, width * 0.4)
    margin = max(len(row.text) for row in rows) * CHARACTER + 30
    top = max([largest or 0.0, *(row.value or 0.0 for row in rows)]) or 1.0
    scale = Axis(0.0, top, gutter, width - margin)
    body = []
    for i, row in enumerate(rows):
        center = i * pitch + pitch / 2
        long = max(scale.at(row.value or 0.0) - gutter, 0.0)
        body += [
            f'<g><title>{clean(row.label)}: {clean(row.text)}</title>'
            f'<rect x="{gutter:.1f}" y="{center - thick / 2:.1f}" width="{long:.1f}" height="{thick}" '
            f'fill="{colour(row.series)}"/></g>',
            write(gutter - 6, center + 4, fit(row.label, gutter - 6), anchor="end"),
            write(gutter + long + 5, center + 4, row.text + (" ★" if row.best else ""),
                  weight="bold" if row.best else ""),
        ]  # fmt: skip
    return picture(width, pitch * len(rows) + 4, title, "".join(body))


def panels(rows: Sequence[RelativeMetric], labels: Sequence[str], reference: int) -> Html:
    """A panel per quantity with a bar per run, and over each bar its ratio to the reference's (where
    that is 0, its value).

    The bar of the reference has a colour of its own, as in the comparisons of Shockwave (NSDI'23).
    """
    columns = next((c for c, most in ((4, 5), (2, 12)) if len(labels) <= most), 1)
    width, gap = 1120, 24
    each = (width - gap * (columns - 1)) / columns
    pitch = (each - 60) / max(len(labels), 1)
    below = label_height(labels)
    tall = 220 + below
    body = []
    for i, row in enumerate(rows):
        left, top = (i % columns) * (each + gap), (i // columns) * (tall + gap)
        inner = _panel(row, labels, reference, PlotFrame(each, tall, 52, 8, 40, below), pitch)
        body.append(f'<g transform="translate({left:.1f} {top:.1f})">{inner}</g>')
    height = -(-len(rows) // columns) * (tall + gap) - gap
    title = f"{', '.join(row.heading for row in rows)}: ratios to {labels[reference]}"
    return picture(width, round(height), title, "".join(body))


def _panel(
    row: RelativeMetric, labels: Sequence[str], reference: int, frame: PlotFrame, pitch: float
) -> str:
    unit = row.unit
    top = max((value for value in row.values if value is not None), default=0.0) or unit.size
    y = Axis(0.0, 1.05 * top, frame.bottom, frame.top)
    body = [
        write(0, 14, row.heading, weight="bold"),
        grid_y(frame, y, Unit("", unit.size, unit.decimals)),
    ]
    for i, (label, value, ratio) in enumerate(zip(labels, row.values, row.ratios, strict=True)):
        center, at = frame.left + (i + 0.5) * pitch, y.at(value or 0.0)
        fill, weight = (colour(0), "bold") if i == reference else (OTHER_BARS_COLOUR, "")
        tooltip = (
            f"{label}: {unit.full(value)}, {format_ratio(ratio, '×')} that of {labels[reference]}"
        )
        words = unit.full(value) if ratio is None else format_ratio(ratio, "×")
        body += [
            f'<g><title>{clean(tooltip)}</title><rect x="{center - 0.36 * pitch:.1f}" y="{at:.1f}" '
            f'width="{0.72 * pitch:.1f}" height="{frame.bottom - at:.1f}" fill="{fill}"/></g>',
            slanted(center + 4, frame.bottom + 14, label, weight),
        ]
        if pitch > len(words) * 0.8 * CHARACTER:
            body.append(write(center, at - 5, words, anchor="middle", weight=weight))
    base = f'<path d="M{frame.left:g} {frame.bottom:g}H{frame.right:g}" stroke="{FAINT}"/>'
    return "".join(body) + base


def device_timeline(
    shown: Timeline, names: Mapping[int, str], title: str, *, width: int = 1120
) -> Html:
    """Devices as rows, the jobs that held them as coloured bars; ``names`` says what each job is."""
    row_height = 9 if len(shown.rows) > 40 else 14
    tops = _row_tops(shown, row_height)
    left, bottom = 92, tops[-1] + row_height
    scale = (width - left - TIMELINE_MARGIN) / shown.columns
    x = Axis(shown.start_s, shown.end_s, left, width - TIMELINE_MARGIN)
    unit = unit_for(MetricKind.TIME, [shown.end_s])
    frame = PlotFrame(width, bottom + 44, left=left, right_margin=TIMELINE_MARGIN, top=4)
    body = [_timeline_labels(shown, tops, row_height, left, width)]
    for (job,), part in shown.bars.group_by("job", maintain_order=True):
        name = names.get(job, f"job {job}")
        strokes = _strokes(
            part.select("row", "half", "first", "last").rows(), tops, row_height, left, scale
        )
        body.append(
            f'<g stroke="{JOB_COLOURS[job % len(JOB_COLOURS)]}"><title>{clean(name)}</title>{strokes}</g>'
        )
    body.append(grid_x(frame, x, unit, f"time ({unit.name})", lines=False))
    data = {
        "left": left,
        "right": width - TIMELINE_MARGIN,
        "start": shown.start_s / unit.size,
        "end": shown.end_s / unit.size,
        "unit": unit.name,
        "height": row_height,
        "tops": " ".join(str(top) for top in tops),
        "rows": "|".join(f"{accelerator} device {device}" for accelerator, device in shown.rows),
    }
    tooltip = "".join(f' data-{key}="{clean(value)}"' for key, value in data.items())
    return picture(width, bottom + 44, title, "".join(body), f'class="timeline"{tooltip}')


def _value_axis(
    frame: PlotFrame, samples: Sequence[Floats], log: bool, limits: Sequence[float]
) -> Axis:
    """From 0, or, if logarithmic, from the least value, to the largest value or limit."""
    longest = max(*(float(s[-1]) for s in samples), *(1.05 * limit for limit in limits), 0.0)
    shortest = min(float(s[0]) for s in samples)
    if log and shortest > 0:
        return Axis(shortest, longest, frame.left, frame.right, log=True)
    return Axis(0.0, longest or 1.0, frame.left, frame.right)


def _limit(x: Axis, y: Axis, limit: float, series: int) -> str:
    at, line = x.at(limit), f'stroke="{colour(series)}" stroke-dasharray="4 3"'
    return f'<path d="M{at:.1f} {y.start:g}V{y.end:g}" {line}><title>{limit:g}</title></path>'


def _curve(x: Axis, y: Axis, sample: Floats, series: int, name: str) -> str:
    values, shares = step_line_of(sample)
    points = zip(x.all(values), y.all(shares), strict=True)
    path = f"M{x.all(values)[0]:.1f} {y.at(0.0):.1f}" + "".join(
        f"H{a:.1f}V{b:.1f}" for a, b in points
    )
    if x.at(float(values[-1])) < x.end:
        path += f"H{x.end:.1f}"
    dash = f' stroke-dasharray="{dashes(series)}"' if dashes(series) else ""
    stroke = f'stroke="{colour(series)}" stroke-width="2"{dash}'
    return f'<path d="{path}" fill="none" {stroke}><title>{clean(name)}</title></path>'


def _percentiles(x: Axis, y: Axis, sample: Floats) -> str:
    marks = []
    for name, share in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99)):
        value = float(np.quantile(sample, share))
        at, level = x.at(value), y.at(share)
        words = f"{name}: {with_unit(MetricKind.TIME, value, 3)}"
        fits = at + 8 + len(words) * CHARACTER < x.end + 10
        x_text, y_text, anchor = (at + 8, level + 16, "") if fits else (x.end, level + 19, "end")
        marks.append(f'<circle cx="{at:.1f}" cy="{level:.1f}" r="4" fill="{colour(1)}"/>')
        marks.append(write(x_text, y_text, words, anchor=anchor))
    return f"<g {HALO}>{''.join(marks)}</g>"


def _shares_above(x: Axis, y: Axis, sample: Floats, limits: Sequence[float]) -> str:
    """The part of the sample above each limit, as labels of the lines, where there is room."""
    words = [f"{100 * (sample > limit).mean():.1f} % above {limit:g}" for limit in limits]
    longest = max(map(len, words)) * CHARACTER
    first, last = x.at(limits[0]), x.at(limits[-1])
    at = last + 22 if last + 22 + longest < x.end else first - 8 - longest
    rows = []
    for row, text_of in enumerate(words):
        level = y.start - 14 - 18 * (len(words) - 1 - row)
        rows.append(
            f'<circle cx="{at - 9:.1f}" cy="{level - 4:.1f}" r="4" fill="{colour(row + 1)}"/>'
        )
        rows.append(write(at, level, text_of))
    return f"<g {HALO}>{''.join(rows)}</g>"


def _steps(x: Axis, y: Axis, edges: Floats, values: Floats) -> str:
    """A path along the tops of the bins, without its first move."""
    right, tops = x.all(edges[1:]), y.all(values)
    return "".join(f"V{b:.1f}H{a:.1f}" for a, b in zip(right, tops, strict=True))


def _area(x: Axis, y: Axis, edges: Floats, values: Floats, fill: str, name: str) -> str:
    zero = y.at(0.0)
    path = f"M{x.at(float(edges[0])):.1f} {zero:.1f}{_steps(x, y, edges, values)}V{zero:.1f}z"
    return f'<path d="{path}" fill="{fill}" fill-opacity="0.7"><title>{clean(name)}</title></path>'


def _line(x: Axis, y: Axis, edges: Floats, values: Floats, stroke: str, name: str) -> str:
    first = f"M{x.at(float(edges[0])):.1f} {y.at(float(values[0])):.1f}"
    path = first + _steps(x, y, edges, values)
    return (
        f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="1.6">'
        f"<title>{clean(name)}</title></path>"
    )


def _row_tops(shown: Timeline, row_height: int) -> list[int]:
    """(rows,) px from the top; each accelerator type has a heading above its first row."""
    tops: list[int] = []
    y = 0
    for _, rows, _ in shown.groups:
        y += 22
        tops += [y + i * row_height for i in range(rows)]
        y += rows * row_height
    return tops


def _timeline_labels(shown: Timeline, tops: list[int], height: int, left: float, width: int) -> str:
    """Backgrounds, the name of each accelerator type, and device ids where there is room."""
    parts, row = [], 0
    every = 1 if height >= 12 else 4
    for name, rows, there_are in shown.groups:
        if not rows:
            continue
        words = f"{name}: {there_are:,} devices"
        words += f", the first {rows} shown" if rows < there_are else ""
        parts.append(write(left, tops[row] - 6, words, weight="bold"))
        box = f'x="{left}" y="{tops[row]}" width="{width - left - TIMELINE_MARGIN}" height="{rows * height}"'
        parts.append(f'<rect {box} fill="#f1f1f1"/>')
        for i in range(0, rows, every):
            label = f"device {shown.rows[row + i][1]}"
            parts.append(
                write(left - 6, tops[row + i] + height / 2 + 4, label, anchor="end", fill=FAINT)
            )
        row += rows
    return "".join(parts)


def _strokes(
    bars_of_job: Sequence[tuple[int, int, int, int]],
    tops: list[int],
    row_height: int,
    left: float,
    scale: float,
) -> str:
    """The bars of one job as thick horizontal strokes: far shorter to write than rectangles."""
    paths: dict[bool, list[str]] = {}
    for row, half, first, last in bars_of_job:
        offset = row_height / 2 if half == 0 else row_height * (0.25 if half == 1 else 0.75)
        at = f"M{left + first * scale:.1f} {tops[row] + offset:g}h{(last - first) * scale:.1f}"
        paths.setdefault(half > 0, []).append(at)
    return "".join(
        f'<path d="{"".join(path)}" stroke-width="{(row_height - 1) / (2 if colocated else 1):g}"/>'
        for colocated, path in paths.items()
    )
