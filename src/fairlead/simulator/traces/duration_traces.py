"""Traces of real clusters that state a duration and a number of devices, and no model family.

The rule that gives them one, and their steps:
- The scale factor is the number of devices, rounded down to the next scale factor at which the
  throughput table has a rate; the trace's notes count the jobs for which that made a difference.
- The family is drawn with equal chances from those with a rate at that scale factor, with
  numpy's ``default_rng(seed)``, one draw per job in order of submission.
- The steps are the duration times the rate on the fastest accelerator type of the table.
Pass the columns of your cluster (``throughputs.columns(cluster.slots)``) to draw only from the
families that can run on it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model.argument_checks import brief_repr
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.fields import date_s, seconds, whole
from fairlead.simulator.traces.reader import Format, ReadRequest
from fairlead.simulator.traces.source import (
    HeaderColumns,
    Source,
    csv_rows,
    header_names,
)
from fairlead.simulator.traces.trace import Skipped, Trace


@dataclass(frozen=True, slots=True)
class _DurationRow:
    line: int
    submitted_s: float
    duration_s: float
    devices: int
    tenant: str


@dataclass(frozen=True, slots=True)
class _Wording:
    """Column names of a format, and how it writes a time."""

    name: str
    submitted: str
    duration: str
    devices: str
    tenant: str | None
    job: str | None  # of what identifies a job, if the format has it
    time_s: Callable[[Source, int, str, str], float]

    @property
    def required(self) -> tuple[str, ...]:
        names = (self.submitted, self.duration, self.devices)
        return names if self.tenant is None else (*names, self.tenant)


PHILLY = _Wording(
    name="Philly",
    submitted="timestamp",
    duration="duration",
    devices="num_gpus",
    tenant="cluster",
    job=None,
    time_s=date_s,
)
ITP = _Wording(
    name="ITP",
    submitted="submission_time",
    duration="duration",
    devices="num_gpu",
    tenant=None,
    job="job_id",
    time_s=seconds,
)


def _format(wording: _Wording) -> Format:
    def fits(head: bytes) -> bool:
        return header_names(head).issuperset(wording.required)

    def read(source: Source, request: ReadRequest) -> Trace:
        return _read(source, request, wording)

    has_vc = wording.tenant is not None
    return Format(wording.name, ",".join(wording.required), fits, read, has_vc)


FORMATS = (_format(PHILLY), _format(ITP))


def _read(source: Source, request: ReadRequest, wording: _Wording) -> Trace:
    rows: list[_DurationRow] = []
    skipped: list[Skipped] = []
    read, columns = _rows(source, wording)
    for row in read:
        if request.vc is not None and row.tenant != request.vc:
            continue
        if reason := _nothing_to_run(row):
            skipped.append(Skipped(row.line, reason))
        else:
            rows.append(row)
    if request.vc is not None and not rows and not skipped:
        raise source.fault(None, f"no row of the virtual cluster {brief_repr(request.vc)}")
    notes = []
    in_order = sorted(rows, key=lambda row: row.submitted_s)
    if in_order != rows:
        notes.append("the rows were not in order of submission: sorted")
    notes.extend(columns.notes())
    return _with_families(source, request, wording, in_order, skipped, notes)


def _nothing_to_run(row: _DurationRow) -> str | None:
    if row.devices == 0:
        return "it asks for 0 devices"
    return "its duration is 0 s" if row.duration_s == 0 else None


def _rows(source: Source, wording: _Wording) -> tuple[Iterator[_DurationRow], HeaderColumns]:
    rows = csv_rows(source)
    line, header = next(rows)
    optional = () if wording.job is None else (wording.job,)
    columns = HeaderColumns(source, line, header, wording.required, optional)
    return _checked_rows(source, wording, columns, rows), columns


def _checked_rows(
    source: Source, wording: _Wording, columns: HeaderColumns, rows: Iterator[tuple[int, list[str]]]
) -> Iterator[_DurationRow]:
    submitted, duration, devices = (columns.index[name] for name in wording.required[:3])
    tenant = None if wording.tenant is None else columns.index[wording.tenant]
    job = None if wording.job is None else columns.index.get(wording.job)
    seen: set[str] = set()
    for line, row in rows:
        columns.check(line, row)
        if job is not None:
            if row[job] in seen:
                raise source.fault(
                    line, f"{wording.job}: appears twice, got {brief_repr(row[job])}"
                )
            seen.add(row[job])
        yield _DurationRow(
            line,
            wording.time_s(source, line, wording.submitted, row[submitted]),
            seconds(source, line, wording.duration, row[duration]),
            whole(source, line, wording.devices, row[devices], least=0),
            "" if tenant is None else row[tenant].strip(),
        )


class _Families:
    """The job types of the table by scale factor."""

    def __init__(self, throughputs: Throughputs) -> None:
        self.rate = throughputs.fastest.tolist()
        self.job_types: dict[int, list[tuple[str, float]]] = {}
        for one, rate in zip(throughputs.job_types, self.rate, strict=True):
            if rate > 0:
                self.job_types.setdefault(one.scale_factor, []).append((one.name, rate))
        self.scales = sorted(self.job_types)

    def scale(self, devices: int) -> int | None:
        """The largest scale factor of the table that is not above ``devices``."""
        at = bisect_right(self.scales, devices)
        return self.scales[at - 1] if at else None

    def pick(self, scale: int, u: float) -> tuple[str, float]:
        """(family, rate) at this scale factor; chance in [0, 1)."""
        job_types = self.job_types[scale]
        return job_types[int(u * len(job_types))]


def _with_families(
    source: Source,
    request: ReadRequest,
    wording: _Wording,
    rows: list[_DurationRow],
    skipped: list[Skipped],
    notes: list[str],
) -> Trace:
    families = _Families(request.throughputs)
    chances = np.random.default_rng(request.seed).random(len(rows)).tolist()
    rows_used: list[_DurationRow] = []
    arrivals: list[Arrival] = []
    for row, u in zip(rows, chances, strict=True):
        scale = families.scale(row.devices)
        if scale is None:
            reason = f"the throughput table has no scale factor of {row.devices} or less"
            skipped.append(Skipped(row.line, reason))
            continue
        family, rate = families.pick(scale, u)
        job = Job(
            JobId(len(arrivals)),
            family,
            scale,
            row.duration_s * rate,
            tenant=row.tenant,
            duration_s=row.duration_s,
        )
        arrivals.append(Arrival(row.submitted_s - rows[0].submitted_s, job))
        rows_used.append(row)
    rounded = sum(a.job.scale_factor != r.devices for a, r in zip(arrivals, rows_used, strict=True))
    if rounded:
        notes.append(
            f"{rounded} jobs ask for a number of devices that the throughput table lacks: "
            "rounded down to its next scale factor"
        )
    return Trace(
        name=str(source.path),
        format=wording.name,
        arrivals=arrivals,
        skipped=tuple(skipped),
        notes=tuple(notes),
        lines=tuple(row.line for row in rows_used),
        devices=tuple(row.devices for row in rows_used),
    )
