"""Pictures as SVG text, drawn by small pure functions: data in, one ``<svg>`` element out.

Colours are those of Okabe and Ito (2008), told apart by people with any colour vision; where lines
share a picture, dashes tell them apart too once the colours repeat.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.report.quantities import Kind, Unit, text, unit_for
from fairlead.report.reduce import OverTime, Timeline, steps_of

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")
# Timelines need more colours than there are good ones: neighbours differ in hue or in lightness.
JOB_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
    "#7a7a7a", "#f0d942", "#004c78", "#a8cf8e", "#7b3f75", "#f3b49b",
)  # fmt: skip
INK, FAINT, GRID = "#222222", "#5f5f5f", "#e4e4e4"
CHARACTER = 6.7  # mean width of a character at the font size of all pictures
TIMELINE_MARGIN = 20  # px right of a timeline, for half of the last time
DASHES = ("", "7 3", "2 3", "9 3 2 3")


def colour(series: int) -> str:
    """The colour of the n-th series."""
    return COLOURS[series % len(COLOURS)]


def dashes(series: int) -> str:
    """The dash pattern of the n-th series: solid until the colours repeat."""
    return DASHES[series // len(COLOURS) % len(DASHES)]


def clean(value: object) -> str:
    """Any value as text that is safe in HTML and can be written as UTF-8."""
    printable = "".join(
        c if c >= " " or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in str(value)
    )
    return escape(printable.encode("utf-8", "replace").decode("utf-8"), quote=True)


def cdf(
    samples: Sequence[tuple[str, Floats]], axis: str, *, size: tuple[int, int] = (560, 300)
) -> str:
    """The share of each sample (seconds, increasing) up to each time; one curve per sample."""
    known = [(series, name, s) for series, (name, s) in enumerate(samples) if s.size]
    if not known:
        return empty("No job has completed.", size)
    frame = _Frame(*size)
    longest = max(float(s[-1]) for _, _, s in known)
    median = max(float(np.median(s)) for _, _, s in known)
    unit = unit_for(Kind.TIME, [longest])
    x = _time_axis(frame, [s for _, _, s in known], longest > 25 * median)
    y = _Axis(0.0, 1.0, frame.bottom, frame.top)
    note = ", logarithmic" if x.log else ""
    body = [
        _grid_x(frame, x, unit, f"{axis} ({unit.name}{note})"),
        _grid_y(frame, y, Unit("%", 0.01, 0)),
    ]
    body += [_curve(x, y, s, series, name) for series, name, s in known]
    if len(known) == 1:
        body.append(_percentiles(x, y, known[0][2]))
    return _svg(*size, f"Cumulative distribution: {axis}", "".join(body))


def jobs_over_time(over: OverTime, *, size: tuple[int, int] = (560, 300)) -> str:
    """Jobs in the system as an area, and those that run as a line."""
    frame = _Frame(*size)
    unit = unit_for(Kind.TIME, [float(over.edges_s[-1])])
    x = _Axis(float(over.edges_s[0]), float(over.edges_s[-1]), frame.left, frame.right)
    most = max(float(over.active.max()), float(over.running.max()), 1.0)
    y = _Axis(0.0, most * 1.05, frame.bottom, frame.top)
    body = [
        _grid_y(frame, y, Unit("", 1.0, 0)),
        _area(x, y, over.edges_s, over.active, colour(5), "active: jobs in the system"),
        _line(x, y, over.edges_s, over.running, colour(0), "running jobs"),
        _grid_x(frame, x, unit, f"time ({unit.name})"),
    ]
    return _svg(*size, "Jobs active and running over time", "".join(body))


def utilization_over_time(over: OverTime, *, width: int = 560, strip: int = 78) -> str:
    """One strip per accelerator type, from 0 to 100 % busy."""
    if not over.utilization:
        return empty("No accelerator type was counted.", (width, strip))
    pitch = strip + 24
    size = (width, pitch * len(over.utilization) + 44)
    frame = _Frame(*size)
    unit = unit_for(Kind.TIME, [float(over.edges_s[-1])])
    x = _Axis(float(over.edges_s[0]), float(over.edges_s[-1]), frame.left, frame.right)
    body = []
    for row, (name, busy) in enumerate(over.utilization.items()):
        top = 20 + row * pitch
        mean = over.average[name]
        y = _Axis(0.0, 1.0, top + strip, top)
        part = _Frame(width, top + strip, top=top, bottom_margin=0)
        body += [
            _grid_y(part, y, Unit("%", 0.01, 0), most_ticks=3),
            _area(
                x,
                y,
                over.edges_s,
                np.minimum(busy, 1.0),
                colour(row),
                f"{name}: {mean:.1%} on average",
            ),
            _text(frame.left, top - 5, name, weight="bold"),
            _text(frame.right, top - 5, f"{100 * mean:.1f} % on average", anchor="end", fill=FAINT),
        ]
    body.append(_grid_x(frame, x, unit, f"time ({unit.name})", lines=False))
    return _svg(*size, "Utilisation over time by accelerator type", "".join(body))


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a bar chart."""

    label: str
    value: float | None
    text: str  # the value as people read it
    series: int = 0
    best: bool = False


def bars(rows: Sequence[Bar], title: str, *, largest: float | None = None, width: int = 560) -> str:
    """Horizontal bars from zero, the best one marked."""
    pitch, thick = 26, 16
    if not rows:
        return empty("Nothing to compare.", (width, 2 * pitch))
    gutter = min(max(len(row.label) for row in rows) * CHARACTER + 12, width * 0.4)
    margin = max(len(row.text) for row in rows) * CHARACTER + 30
    top = max([largest or 0.0, *(row.value or 0.0 for row in rows)]) or 1.0
    scale = _Axis(0.0, top, gutter, width - margin)
    body = []
    for i, row in enumerate(rows):
        middle = i * pitch + pitch / 2
        long = max(scale.at(row.value or 0.0) - gutter, 0.0)
        body += [
            f'<g><title>{clean(row.label)}: {clean(row.text)}</title>'
            f'<rect x="{gutter:.1f}" y="{middle - thick / 2:.1f}" width="{long:.1f}" height="{thick}" '
            f'fill="{colour(row.series)}"/></g>',
            _text(gutter - 6, middle + 4, _fit(row.label, gutter - 6), anchor="end"),
            _text(gutter + long + 5, middle + 4, row.text + (" ★" if row.best else ""),
                  weight="bold" if row.best else ""),
        ]  # fmt: skip
    return _svg(width, pitch * len(rows) + 4, title, "".join(body))


def device_timeline(
    shown: Timeline, names: Mapping[int, str], title: str, *, width: int = 1120
) -> str:
    """Devices as rows, the jobs that held them as coloured bars; ``names`` says what each job is."""
    row_height = 9 if len(shown.rows) > 40 else 14
    tops = _row_tops(shown, row_height)
    left, bottom = 92, tops[-1] + row_height
    scale = (width - left - TIMELINE_MARGIN) / shown.columns
    x = _Axis(shown.start_s, shown.end_s, left, width - TIMELINE_MARGIN)
    unit = unit_for(Kind.TIME, [shown.end_s])
    frame = _Frame(width, bottom + 44, left=left, right_margin=TIMELINE_MARGIN, top=4)
    body = [_timeline_labels(shown, tops, row_height, left, width)]
    for (job,), part in shown.bars.group_by("job", maintain_order=True):
        name = names.get(job, f"job {job}")
        strokes = _strokes(
            part.select("row", "half", "first", "last").rows(), tops, row_height, left, scale
        )
        body.append(
            f'<g stroke="{JOB_COLOURS[job % len(JOB_COLOURS)]}"><title>{clean(name)}</title>{strokes}</g>'
        )
    body.append(_grid_x(frame, x, unit, f"time ({unit.name})", lines=False))
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
    told = "".join(f' data-{key}="{clean(value)}"' for key, value in data.items())
    return _svg(width, bottom + 44, title, "".join(body), f'class="timeline"{told}')


def empty(words: str, size: tuple[int, int]) -> str:
    """What stands where there is nothing to draw."""
    width, height = size
    return _svg(
        width, height, words, _text(width / 2, height / 2, words, anchor="middle", fill=FAINT)
    )


@dataclass(frozen=True, slots=True)
class _Frame:
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
class _Axis:
    """From values to px."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        return float(self.all(np.array([value]))[0])

    def all(self, values: Floats) -> Floats:
        low, high = self.low, self.high
        if self.log:
            low, high, values = math.log(low), math.log(high), np.log(np.maximum(values, low))
        span = high - low or 1.0
        return np.asarray(self.start + (values - low) / span * (self.end - self.start), np.float64)


def _time_axis(frame: _Frame, samples: Sequence[Floats], log: bool) -> _Axis:
    longest = max(float(s[-1]) for s in samples)
    shortest = min(float(s[0]) for s in samples)
    if log and shortest > 0:
        return _Axis(shortest, longest, frame.left, frame.right, log=True)
    return _Axis(0.0, longest or 1.0, frame.left, frame.right)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers inside [low, high], at most so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((m * power for m in (1, 2, 2.5, 5) if m * power >= rough), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten inside [low, high], with their doubles and fives where there is room."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    parts = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [m * 10.0**p for p in powers for m in parts if low <= m * 10.0**p <= high]


def _grid_x(frame: _Frame, x: _Axis, unit: Unit, label: str, *, lines: bool = True) -> str:
    low, high = x.low / unit.size, x.high / unit.size
    ticks = (
        _log_ticks(low, high) if x.log else _ticks(low, high, int((frame.right - frame.left) // 70))
    )
    marks = []
    for tick in ticks:
        at = x.at(tick * unit.size)
        top = frame.top if lines else frame.bottom
        marks.append(
            f'<path d="M{at:.1f} {top:g}V{frame.bottom + 4:g}" stroke="{GRID if lines else FAINT}"/>'
        )
        marks.append(_text(at, frame.bottom + 17, f"{tick:,.10g}", anchor="middle", fill=FAINT))
    base = f'<path d="M{frame.left:g} {frame.bottom:g}H{frame.right:g}" stroke="{FAINT}"/>'
    middle = (frame.left + frame.right) / 2
    return "".join(marks) + base + _text(middle, frame.bottom + 36, label, anchor="middle")


def _grid_y(frame: _Frame, y: _Axis, unit: Unit, most_ticks: int = 6) -> str:
    marks = []
    for tick in _ticks(y.low / unit.size, y.high / unit.size, most_ticks):
        at = y.at(tick * unit.size)
        marks.append(f'<path d="M{frame.left:g} {at:.1f}H{frame.right:g}" stroke="{GRID}"/>')
        name = f"{tick:,.10g}" + (f" {unit.name}" if unit.name else "")
        marks.append(_text(frame.left - 6, at + 4, name, anchor="end", fill=FAINT))
    return "".join(marks)


def _curve(x: _Axis, y: _Axis, sample: Floats, series: int, name: str) -> str:
    values, shares = steps_of(sample)
    points = zip(x.all(values), y.all(shares), strict=True)
    path = f"M{x.all(values)[0]:.1f} {y.at(0.0):.1f}" + "".join(
        f"H{a:.1f}V{b:.1f}" for a, b in points
    )
    if x.at(float(values[-1])) < x.end:
        path += f"H{x.end:.1f}"
    dash = f' stroke-dasharray="{dashes(series)}"' if dashes(series) else ""
    stroke = f'stroke="{colour(series)}" stroke-width="2"{dash}'
    return f'<path d="{path}" fill="none" {stroke}><title>{clean(name)}</title></path>'


def _percentiles(x: _Axis, y: _Axis, sample: Floats) -> str:
    marks = []
    for name, share in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99)):
        value = float(np.quantile(sample, share))
        at, level = x.at(value), y.at(share)
        words = f"{name}: {text(Kind.TIME, value, 3)}"
        room = at + 8 + len(words) * CHARACTER < x.end + 10
        x_text, y_text, anchor = (at + 8, level + 16, "") if room else (x.end, level + 19, "end")
        marks.append(f'<circle cx="{at:.1f}" cy="{level:.1f}" r="4" fill="{colour(1)}"/>')
        marks.append(_text(x_text, y_text, words, anchor=anchor))
    halo = 'stroke="#fff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return f"<g {halo}>{''.join(marks)}</g>"


def _steps(x: _Axis, y: _Axis, edges: Floats, values: Floats) -> str:
    """A path along the tops of the bins, without its first move."""
    right, tops = x.all(edges[1:]), y.all(values)
    return "".join(f"V{b:.1f}H{a:.1f}" for a, b in zip(right, tops, strict=True))


def _area(x: _Axis, y: _Axis, edges: Floats, values: Floats, fill: str, name: str) -> str:
    zero = y.at(0.0)
    path = f"M{x.at(float(edges[0])):.1f} {zero:.1f}{_steps(x, y, edges, values)}V{zero:.1f}z"
    return f'<path d="{path}" fill="{fill}" fill-opacity="0.7"><title>{clean(name)}</title></path>'


def _line(x: _Axis, y: _Axis, edges: Floats, values: Floats, stroke: str, name: str) -> str:
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
        parts.append(_text(left, tops[row] - 6, words, weight="bold"))
        box = f'x="{left}" y="{tops[row]}" width="{width - left - TIMELINE_MARGIN}" height="{rows * height}"'
        parts.append(f'<rect {box} fill="#f1f1f1"/>')
        for i in range(0, rows, every):
            label = f"device {shown.rows[row + i][1]}"
            parts.append(
                _text(left - 6, tops[row + i] + height / 2 + 4, label, anchor="end", fill=FAINT)
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
        f'<path d="{"".join(path)}" stroke-width="{(row_height - 1) / (2 if packed else 1):g}"/>'
        for packed, path in paths.items()
    )


def _fit(label: str, width: float) -> str:
    most = max(int(width / CHARACTER), 2)
    return label if len(label) <= most else label[: most - 1] + "…"


def _text(
    x: float, y: float, words: str, *, anchor: str = "", weight: str = "", fill: str = ""
) -> str:
    style = "".join(
        f' {name}="{value}"'
        for name, value in (("text-anchor", anchor), ("font-weight", weight), ("fill", fill))
        if value
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{clean(words)}</text>'


def _svg(width: float, height: float, title: str, body: str, data: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{clean(title)}" font-size="12" fill="{INK}" {data}>{body}</svg>'
    )
