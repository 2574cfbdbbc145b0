"""Gavel's formats and Shockwave's: tab-separated lines without a header, and generated jobs as JSON.

Source: spec of the released code of Gavel (OSDI'20) and of Shockwave (NSDI'23); docs/formats.md.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from fairlead.model.job import Arrival, Job, JobId
from fairlead.simulator.traces.adaptation_text import adapting
from fairlead.simulator.traces.fields import (
    above_zero,
    number,
    seconds,
    seconds_above_zero,
    whole,
)
from fairlead.simulator.traces.fields import weight as checked_weight
from fairlead.simulator.traces.reader import (
    Checks,
    Format,
    ReadRequest,
)
from fairlead.simulator.traces.source import Source, unused_note
from fairlead.simulator.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceLayout:
    """Positions of the fields in a line; the others (commands, folders, flags) are not read."""

    name: str
    width: int
    steps: int
    scale: int
    arrival: int
    weight: int | None = None
    slo: int | None = None
    duration: int | None = None
    mode: int | None = None  # by what rule the batch size adapts
    unused: tuple[tuple[int, str], ...] = ()  # the others, by their names in the release


_UNUSED_SEVEN = ((1, "command"), (2, "num_steps_arg"), (3, "needs_data_dir"))
_UNUSED = (
    (1, "command"),
    (2, "working_directory"),
    (3, "num_steps_arg"),
    (4, "needs_data_dir"),
)
LAYOUTS = (
    TraceLayout("Gavel, 7 columns", width=7, steps=4, arrival=5, scale=6, unused=_UNUSED_SEVEN),
    TraceLayout(
        "Gavel, 10 columns", width=10, steps=5, scale=6, weight=7, slo=8, arrival=9, unused=_UNUSED
    ),
    TraceLayout(
        "Shockwave, 12 columns",
        width=12,
        steps=5,
        scale=6,
        mode=7,
        weight=8,
        slo=9,
        duration=10,
        arrival=11,
        unused=_UNUSED,
    ),
)


def _tab_format(layout: TraceLayout) -> Format:
    def fits(head: bytes) -> bool:
        return head.count(b"\t") == layout.width - 1

    def read(source: Source, request: ReadRequest) -> Trace:
        return _read_tabs(source, request, layout)

    return Format(layout.name, f"{layout.width} tab-separated columns", fits, read)


def _read_tabs(source: Source, request: ReadRequest, layout: TraceLayout) -> Trace:
    checks = Checks(source, request.throughputs)
    lines: list[int] = []
    arrivals: list[Arrival] = []
    unused = {name: 0 for _, name in layout.unused}
    for line, text in source.lines():
        if not text.strip():
            continue
        cells = text.split("\t")
        if len(cells) != layout.width:
            raise source.fault(
                line, f"expected {layout.width} tab-separated columns, got {len(cells)}"
            )
        lines.append(line)
        arrivals.append(_tab_arrival(checks, line, cells, layout))
        for at, name in layout.unused:
            if cells[at].strip() not in ("", "0"):  # a flag that is not set says nothing
                unused[name] += 1
    notes = unused_note(unused)
    return Trace(str(source.path), layout.name, arrivals, notes=notes, lines=tuple(lines))


def _tab_arrival(checks: Checks, line: int, cells: list[str], layout: TraceLayout) -> Arrival:
    source = checks.source
    family = checks.family(line, "job_type", cells[0])
    steps = above_zero(source, line, "total_steps", cells[layout.steps])
    scale = whole(source, line, "scale_factor", cells[layout.scale], least=1)
    weight, slo_s, duration_s = 1.0, None, None
    if layout.weight is not None:
        weight = checked_weight(source, line, "priority_weight", cells[layout.weight])
    if layout.duration is not None:
        duration_s = seconds(source, line, "duration", cells[layout.duration])
    if layout.slo is not None:
        multiple = _slo_multiple(source, line, cells[layout.slo])
        if multiple is not None:
            nominal_s = duration_s or checks.nominal_s(family, scale, steps)
            slo_s = None if nominal_s is None else multiple * nominal_s
    arrival_s = seconds(source, line, "arrival_time", cells[layout.arrival])
    # The line number is the id, as in Gavel.
    job = Job(
        id=JobId(line - 1),
        family=family,
        scale_factor=scale,
        total_steps=steps,
        weight=weight,
        tenant="",
        slo_s=slo_s,
        duration_s=duration_s,
    )
    if layout.mode is not None:
        job = adapting(checks, line, "mode", job, cells[layout.mode])
    return Arrival(checks.arrival(line, "arrival_time", arrival_s), job)


def _slo_multiple(source: Source, line: int, value: object) -> float | None:
    """The deadline in durations; None where there is none, which Gavel writes as a negative number."""
    multiple = number(source, line, "SLO", value)
    if multiple == 0:
        raise source.fault(line, f"SLO: must be > 0, or -1 for no deadline, got {value}")
    return multiple if multiple > 0 else None


class GeneratedJob(msgspec.Struct):
    """One job of a list that Gavel's generator made; other keys are not read."""

    id: int
    arrival: float
    job_type: str
    scale_factor: int
    total_steps: float  # not whole: duration times rate
    duration: float  # seconds on the reference accelerator type
    priority: float = 1.0
    SLO: float | None = None  # multiple of the duration


_Keys: TypeAlias = dict[str, msgspec.Raw]


def _read_jobs(source: Source, request: ReadRequest) -> Trace:
    data = source.document()
    try:
        jobs = msgspec.json.decode(data, type=list[GeneratedJob])
        keys = Counter(key for one in msgspec.json.decode(data, type=list[_Keys]) for key in one)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise source.json_fault(problem, data) from None
    arrivals = list(_job_arrivals(Checks(source, request.throughputs), jobs))
    used = GeneratedJob.__struct_fields__
    unused = {name: count for name, count in keys.items() if name not in used}
    notes = unused_note(unused)
    return Trace(str(source.path), "Gavel, generated jobs", arrivals, notes=notes)


def _job_arrivals(checks: Checks, jobs: list[GeneratedJob]) -> Iterator[Arrival]:
    source = checks.source
    for row, one in enumerate(jobs, start=1):
        duration_s = seconds_above_zero(source, row, "duration", one.duration)
        multiple = None if one.SLO is None else _slo_multiple(source, row, one.SLO)
        slo_s = None if multiple is None else multiple * duration_s
        job = Job(
            id=JobId(checks.id(row, "id", one.id)),
            family=checks.family(row, "job_type", one.job_type),
            scale_factor=whole(source, row, "scale_factor", one.scale_factor, least=1),
            total_steps=above_zero(source, row, "total_steps", one.total_steps),
            weight=checked_weight(source, row, "priority", one.priority),
            tenant="",
            slo_s=slo_s,
            duration_s=duration_s,
        )
        arrival_s = seconds(source, row, "arrival", one.arrival)
        yield Arrival(checks.arrival(row, "arrival", arrival_s), job)


FORMATS = (
    *(_tab_format(layout) for layout in LAYOUTS),
    Format(
        "Gavel, generated jobs",
        "a JSON list of jobs",
        lambda head: head.lstrip().startswith(b"["),
        _read_jobs,
    ),
)
