"""The usage of the devices of a job and of their memory: a picture of each over time, and the figures of
now."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from fairlead.analysis.report.markup import Html, clean, join, tag
from fairlead.analysis.report.metric_catalogue import MetricKind, Unit, counted, unit_for
from fairlead.analysis.report.svg import (
    Axis,
    PlotFrame,
    colour,
    dashes,
    grid_x,
    grid_y,
    picture,
)
from fairlead.cluster.front.web import tables
from fairlead.cluster.front.web.layout import SLOW, Section, columns, figure, note
from fairlead.cluster.front.web.markup import name
from fairlead.cluster.front.web.tables import TableCell, TableColumn
from fairlead.cluster.protocol.api_models import DeviceUsageView
from fairlead.model.duration_text import DASH

SHOWN = 16  # devices of an attempt that are drawn
_SIZE = (620, 200)
_PERCENT = Unit("%", 0.01, 0)
_GIB = 1 << 30
_Values: TypeAlias = Callable[[DeviceUsageView], Sequence[float | None]]

_COLUMNS = (
    TableColumn("Rank", "n"),
    TableColumn("Device", "tight"),
    TableColumn("Busy now", "n", "part of the time in which it computes, as NVML says"),
    TableColumn("On average", "n", "since the attempt began"),
    TableColumn("Memory now", "n"),
    TableColumn("At most", "n"),
)


def usage_section(usage: Sequence[DeviceUsageView], now_s: float) -> Section:
    """The section of the newest attempt of which anything is known; hidden where nothing is."""
    newest = max((one.attempt for one in usage), default=0)
    shown = [one for one in usage if one.attempt == newest]
    if not shown:
        return Section("usage", "Devices", Html(""), SLOW, hidden=True)
    drawn = shown[:SHOWN]
    cut = f" The first {SHOWN} of {counted(len(shown), 'device')} are drawn."
    about = (
        f"Attempt {newest}. A device that several jobs share is shown with all that they do on it."
    )
    body = join(
        note(about, cut if len(drawn) < len(shown) else None),
        columns(
            figure("Utilisation over time", _picture(drawn, now_s, "Utilisation", _busy)),
            figure("Memory in use over time", _picture(drawn, now_s, "Memory in use", _memory)),
        ),
        tables.table("usage-table", "Devices of the job", _COLUMNS, map(_row, enumerate(shown))),
    )
    return Section("usage", "Devices", body, SLOW)


def _busy(usage: DeviceUsageView) -> Sequence[float | None]:
    return usage.busy


def _memory(usage: DeviceUsageView) -> Sequence[float | None]:
    """Parts of the whole."""
    whole = max(usage.memory_total_bytes, 1)
    return [None if used is None else used / whole for used in usage.memory_bytes]


def _picture(usage: Sequence[DeviceUsageView], now_s: float, title: str, values: _Values) -> Html:
    frame = PlotFrame(*_SIZE, left=46, right_margin=14)
    first = min(one.start_s for one in usage)
    x = Axis(min(first - now_s, -1.0), 0.0, frame.left, frame.right)
    y = Axis(0.0, 1.0, frame.bottom, frame.top)
    unit = unit_for(MetricKind.TIME, [now_s - first])
    lines = (_line(x, y, i, one, values(one), now_s) for i, one in enumerate(usage))
    grid = grid_y(frame, y, _PERCENT, 4), grid_x(frame, x, unit, f"time from now ({unit.name})")
    return picture(*_SIZE, f"{title} of each device over time", "".join([*grid, *lines]))


def _line(
    x: Axis,
    y: Axis,
    series: int,
    usage: DeviceUsageView,
    values: Sequence[float | None],
    now_s: float,
) -> str:
    """Steps, with gaps where nothing was told."""
    path = "".join(_steps(x, y, usage, values, now_s))
    dash = dashes(series)
    style = f'stroke="{colour(series)}" stroke-width="1.6"'
    style += f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" fill="none" {style}><title>{clean(_title(usage))}</title></path>'


def _steps(
    x: Axis, y: Axis, usage: DeviceUsageView, values: Sequence[float | None], now_s: float
) -> Iterator[str]:
    drawing = False
    for point, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        begin_s = usage.start_s + point * usage.width_s - now_s
        left, right = x.at(begin_s), x.at(min(begin_s + usage.width_s, 0.0))
        at = y.at(value)
        yield f"V{at:.1f}H{right:.1f}" if drawing else f"M{left:.1f} {at:.1f}H{right:.1f}"
        drawing = True


def _title(usage: DeviceUsageView) -> str:
    return f"rank {usage.rank}: device {usage.device} of {usage.node}"


def _row(numbered: tuple[int, DeviceUsageView]) -> list[TableCell]:
    series, usage = numbered
    busy = [value for value in usage.busy if value is not None]
    memory = [value for value in usage.memory_bytes if value is not None]
    now, mean = (busy[-1], sum(busy) / len(busy)) if busy else (None, None)
    patch = tag("svg", _patch(series), viewBox="0 0 18 10", aria_hidden="true", class_="patch")
    where = join(name(usage.node), f" {usage.device} ", patch if series < SHOWN else None)
    return [
        TableCell(usage.rank),
        TableCell(where),
        *(
            TableCell(DASH if part is None else f"{100 * part:.0f} %", "" if part is None else part)
            for part in (now, mean)
        ),
        TableCell(_bytes(memory[-1], usage.memory_total_bytes), memory[-1]),
        TableCell(_bytes(max(memory), usage.memory_total_bytes), max(memory)),
    ]


def _patch(series: int) -> Html:
    dash = dashes(series) or None
    return tag("path", d="M0 5H18", stroke=colour(series), stroke_width=3, stroke_dasharray=dash)


def _bytes(used: int, whole: int) -> str:
    of = f" ({100 * used / whole:.0f} %)" if whole else ""
    return f"{used / _GIB:.1f} GiB{of}"
