"""The pictures of the pages: views in, one ``<svg>`` out."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fairlead.analysis.report.markup import Html, clean
from fairlead.analysis.report.metric_catalogue import (
    MetricKind,
    Unit,
    unit_for,
)
from fairlead.analysis.report.report_figures import Bar, bars
from fairlead.analysis.report.svg import (
    CHARACTER,
    Axis,
    PlotFrame,
    colour,
    empty,
    fit,
    grid_x,
    grid_y,
    picture,
    write,
)
from fairlead.cluster.front.web.markup import percent
from fairlead.cluster.protocol.api_models import (
    AttemptView,
    NodeView,
    Sample,
    TenantView,
)
from fairlead.model.arrays import Floats
from fairlead.model.duration_text import duration

SIZE = (620, 220)
COLUMNS = 240  # most steps of a curve over time
TENANTS = 16  # most tenants in a picture
ATTEMPTS = 400  # most attempts of a job in a picture


def accelerators(samples: Sequence[Sample]) -> list[str]:
    """All accelerator types in the samples, by name."""
    return sorted({name for sample in samples for name in sample.capacity | sample.allocated})


def devices_over_time(samples: Sequence[Sample], now_s: float) -> Html:
    """Devices held, by accelerator type, one upon the other, below the line of all that work."""
    if not samples:
        return empty("No round has ended yet.", SIZE)
    frame = PlotFrame(*SIZE, left=40, right_margin=14)
    times, groups = _grouped(samples, now_s)
    names = accelerators(samples)
    allocated = _means([[s.allocated.get(name, 0) for name in names] for s in samples], groups)
    most = _means([[sum(s.capacity.values())] for s in samples], groups)[:, 0]
    unit = unit_for(MetricKind.TIME, [now_s - float(times[0])])
    x = Axis(min(float(times[0]) - now_s, -1.0), 0.0, frame.left, frame.right)
    tallest = max(float(most.max()), float(allocated.sum(1).max()), 1.0)
    y = Axis(0.0, 1.06 * tallest, frame.bottom, frame.top)
    tops = np.cumsum(allocated, 1)
    edges = times - now_s
    body = [
        grid_y(frame, y, Unit("", 1.0, 0), 4),
        *(_band(x, y, edges, tops, i, name) for i, name in enumerate(names)),
        f'<path class="capacity" d="{_steps(x, y, edges, most)}"><title>devices that work</title></path>',
        grid_x(frame, x, unit, f"time from now ({unit.name})", lines=False),
    ]
    return picture(*SIZE, "Devices held over time by accelerator type", "".join(body))


def _grouped(samples: Sequence[Sample], now_s: float) -> tuple[Floats, list[int]]:
    """(groups + 1,) edges in time, and the first sample of each group of about as many."""
    every = -(-len(samples) // COLUMNS)
    first = list(range(0, len(samples), every))
    return np.array([*(samples[i].time_s for i in first), now_s], np.float64), first


def _means(rows: Sequence[Sequence[float]], first: Sequence[int]) -> Floats:
    """(groups, columns): the mean of each group of rows."""
    array = np.array(rows, np.float64).reshape(len(rows), -1)
    sizes = np.diff([*first, len(rows)])[:, None]
    return np.asarray(np.add.reduceat(array, first, 0) / sizes, np.float64)


def _steps(x: Axis, y: Axis, edges: Floats, values: Floats) -> str:
    right, tops = x.all(edges[1:]), y.all(values)
    path = "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(right[:-1], tops[1:], strict=True))
    return f"M{x.at(float(edges[0])):.1f} {tops[0]:.1f}{path}H{right[-1]:.1f}"


def _band(x: Axis, y: Axis, edges: Floats, tops: Floats, series: int, name: str) -> str:
    """The area between two curves of steps; drawn back from the right along the lower one."""
    lower = tops[:, series - 1] if series else np.zeros(len(tops))
    left, below = x.all(edges[:-1]), y.all(lower)
    back = "".join(
        f"V{b:.1f}H{a:.1f}" for a, b in zip(reversed(left), reversed(below), strict=True)
    )
    path = f"{_steps(x, y, edges, tops[:, series])}{back}z"
    return f'<path d="{path}" fill="{colour(series)}"><title>{clean(name)}</title></path>'


def shares(tenants: Sequence[TenantView], width: int = 560) -> Html:
    """Return a chart of what each tenant was promised of all device time, and what it received."""
    shown = tenants[:TENANTS]
    if not shown:
        return empty("No tenant has jobs yet.", (width, 52))
    pitch = 34
    gutter = min(max(len(t.name) for t in shown) * CHARACTER + 12, width * 0.35)
    top = max([*(max(t.share_promised, t.share_received) for t in shown), 0.01])
    x = Axis(0.0, top, gutter, width - 64)
    rows = [_share_row(tenant, i * pitch, x) for i, tenant in enumerate(shown)]
    return picture(width, pitch * len(shown) + 2, "Shares by tenant", "".join(rows))


def _share_row(tenant: TenantView, top: float, x: Axis) -> str:
    parts = [write(x.start - 6, top + 20, fit(tenant.name, x.start - 8), anchor="end")]
    pairs = (
        ("promised", tenant.share_promised, 'class="promised"'),
        ("received", tenant.share_received, f'fill="{colour(0)}"'),
    )
    for row, (words, share, style) in enumerate(pairs):
        long, at = max(x.at(share) - x.start, 0.0), top + 4 + 13 * row
        label = clean(f"{tenant.name}: {words} {percent(share)}")
        parts.append(
            f'<g><title>{label}</title><rect x="{x.start:.1f}" y="{at:.1f}" width="{long:.1f}" '
            f'height="12" {style}/></g>'
        )
        parts.append(write(x.start + long + 5, at + 10, percent(share)))
    return "".join(parts)


def fairness(tenants: Sequence[TenantView]) -> Html:
    """The mean finish-time fairness of each tenant's ended jobs."""
    rows = [
        Bar(t.name, t.mean_rho, "no job has ended" if t.mean_rho is None else f"{t.mean_rho:.2f}")
        for t in tenants[:TENANTS]
    ]
    return bars(rows, "Mean rho by tenant")


def lost_work(tenants: Sequence[TenantView]) -> Html:
    """Device time of each tenant that went into work done again and into overhead."""
    rows = [
        Bar(t.name, t.lost_device_s, f"{duration(t.lost_device_s)} ({_part(t)})", series=1)
        for t in tenants[:TENANTS]
    ]
    return bars(rows, "Lost device time by tenant")


def _part(tenant: TenantView) -> str:
    return percent(tenant.lost_device_s / tenant.device_s) if tenant.device_s > 0 else "0.0 %"


SQUARES = 64  # of one node


def occupancy(nodes: Sequence[NodeView], width: int = 1280) -> Html:
    """All devices of a large cluster as small squares, node by node, type by type."""
    parts: list[str] = []
    top = 0.0
    for accelerator in sorted({node.accelerator for node in nodes}):
        group = [node for node in nodes if node.accelerator == accelerator]
        parts.append(write(0, top + 15, f"{accelerator}: {len(group):,} nodes", weight="bold"))
        top = _grid(parts, group, top + 22, width) + 10
    return picture(width, top, "Devices in use, node by node", "".join(parts))


def _grid(parts: list[str], nodes: Sequence[NodeView], top: float, width: int) -> float:
    """Draws the nodes of one type; returns where the next may begin, px."""
    drawn = list(map(_squares, nodes))
    each = max(map(len, drawn)) * 6 + 6
    across = max(int((width + 6) // each), 1)
    for i, node in enumerate(nodes):
        left, above = (i % across) * each, top + (i // across) * 10
        squares: dict[str, list[str]] = {}
        for place, use in enumerate(drawn[i]):
            squares.setdefault(use, []).append(f"M{left + 6 * place} {above:g}h5v7h-5z")
        allocated = sum(map(bool, node.jobs))
        label = clean(f"{node.name} ({node.state}): {allocated} of {node.devices} devices held")
        paths = "".join(f'<path class="{use}" d="{"".join(d)}"/>' for use, d in squares.items())
        parts.append(f"<g><title>{label}</title>{paths}</g>")
    return top + -(-len(nodes) // across) * 10


def _squares(node: NodeView) -> list[str]:
    """The use of each device of a node; of very many devices as many squares, in their proportion."""
    uses = [_use(node, device) for device in range(node.devices)]
    if len(uses) <= SQUARES:
        return uses
    parts = Counter(uses)
    less = [use for use, of in parts.items() for _ in range(max(of * SQUARES // len(uses), 1))]
    most, _ = parts.most_common(1)[0]
    return less + [most] * (SQUARES - len(less))


def _use(node: NodeView, device: int) -> str:
    """The class of a device: what it is used for."""
    if node.state != "up":
        return "gone"
    holders = len(node.jobs[device]) if device < len(node.jobs) else 0
    return ("free", "held", "shared")[min(holders, 2)]


def timeline(attempts: Sequence[AttemptView], submitted_s: float, now_s: float) -> Html:
    """Return a timeline of a job's attempts, one row per node; time spent on starting and stopping is
    darker."""
    shown = attempts[-ATTEMPTS:]
    if not shown:
        return empty("The job has not started yet.", (1120, 52))
    names = list(dict.fromkeys((attempt.node, attempt.accelerator) for attempt in shown))
    types = sorted({attempt.accelerator for attempt in shown})
    first = submitted_s if len(shown) == len(attempts) else shown[0].began_s
    last = max([s.ended_s if s.ended_s is not None else now_s for s in shown] + [first + 1])
    frame = PlotFrame(1120, 24 * len(names) + 50, left=_gutter(names), right_margin=20, top=4)
    x = Axis(first - submitted_s, last - submitted_s, frame.left, frame.right)
    unit = unit_for(MetricKind.TIME, [last - submitted_s])
    body = [grid_x(frame, x, unit, f"time since submission ({unit.name})")]
    for row, (node, accelerator) in enumerate(names):
        words = fit(f"{node} ({accelerator})", frame.left - 8)
        body.append(write(frame.left - 6, 24 * row + 21, words, anchor="end"))
    for attempt in shown:
        top = 24 * names.index((attempt.node, attempt.accelerator)) + 8
        fill = colour(types.index(attempt.accelerator))
        body.append(_attempt(attempt, x, top, fill, submitted_s, now_s))
    return picture(frame.width, frame.height, "Attempts of the job over time", "".join(body))


def _gutter(names: Sequence[tuple[str, str]]) -> float:
    return min(max(len(a) + len(b) + 3 for a, b in names) * CHARACTER + 12, 260)


def _attempt(
    attempt: AttemptView, x: Axis, top: float, fill: str, submitted_s: float, now_s: float
) -> str:
    ended = now_s if attempt.ended_s is None else attempt.ended_s
    began, end = x.at(attempt.began_s - submitted_s), x.at(ended - submitted_s)
    second = (x.end - x.start) / ((x.high - x.low) or 1.0)  # px
    before = (
        sum(max(part, 0.0) for part in (attempt.wait_s, attempt.start_s, attempt.load_s)) * second
    )
    after = (
        (max(attempt.save_s, 0.0) + max(attempt.stop_s, 0.0)) * second if attempt.ended_s else 0.0
    )
    long = max(end - began, 1.0)
    label = clean(
        f"attempt {attempt.attempt} on {attempt.node}, {duration(ended - attempt.began_s)}: "
        f"{attempt.why or 'runs'}"
    )
    costs = "".join(
        f'<rect class="cost" x="{at:.1f}" y="{top}" width="{wide:.1f}" height="18"/>'
        for at, wide in (
            (began, min(before, long)),
            (began + long - min(after, long), min(after, long)),
        )
        if wide > 0.2
    )
    box = f'x="{began:.1f}" y="{top}" width="{long:.1f}" height="18"'
    return f'<g><title>{label}</title><rect {box} fill="{fill}"/>{costs}</g>'
