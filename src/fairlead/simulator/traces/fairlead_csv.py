"""Fairlead's own traces: CSV and Parquet with the same columns (docs/formats.md)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from fairlead.model.argument_checks import brief_repr
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.simulator.traces.adaptation_text import adapting, described
from fairlead.simulator.traces.fields import (
    above_zero,
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
from fairlead.simulator.traces.source import (
    HeaderColumns,
    Source,
    csv_rows,
    header_names,
    missing_column,
    unused_note,
)
from fairlead.simulator.traces.trace import Trace

REQUIRED = ("job", "arrival_s", "family", "scale_factor", "total_steps")
OPTIONAL = ("weight", "tenant", "slo_s", "duration_s", "adaptation", "samples", "devices")
COLUMNS = REQUIRED + OPTIONAL
PARQUET_MAGIC = b"PAR1"
SCHEMA = {
    "job": pl.Int64,
    "arrival_s": pl.Float64,
    "family": pl.String,
    "scale_factor": pl.Int64,
    "total_steps": pl.Float64,
    "weight": pl.Float64,
    "tenant": pl.String,
    "slo_s": pl.Float64,  # null = no deadline
    "duration_s": pl.Float64,  # null = not known
    "adaptation": pl.String,  # null = it keeps its batch size
    "samples": pl.Int64,  # per epoch; null = those of the family's data set
    "devices": pl.String,  # scale factors that an elastic job may have; null = it keeps its
}


def cells(arrival: Arrival) -> tuple[Any, ...]:
    """An arrival as a row of ``COLUMNS``."""
    job = arrival.job
    adaptation = job.adaptation
    return (
        job.id,
        arrival.time_s,
        job.family,
        job.scale_factor,
        job.total_steps,
        job.weight,
        job.tenant,
        job.slo_s,
        job.duration_s,
        None if adaptation is None else described(adaptation),
        None if adaptation is None else adaptation.samples,
        " ".join(map(str, job.devices)) or None,
    )


def _csv_fits(head: bytes) -> bool:
    return header_names(head).issuperset(REQUIRED)


def _read_csv(source: Source, request: ReadRequest) -> Trace:
    rows = csv_rows(source)
    line, header = next(rows)
    columns = HeaderColumns(source, line, header, REQUIRED, OPTIONAL)
    cells = _csv_cells(columns, rows)
    trace = _trace("Fairlead CSV", Checks(source, request.throughputs), cells)
    return replace(trace, notes=columns.notes())


def _csv_cells(
    columns: HeaderColumns, rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[Any]]]:
    """(line, cells in the order of ``COLUMNS``); a column that the file lacks is None throughout."""
    index = [columns.index.get(name) for name in COLUMNS]
    for line, row in rows:
        columns.check(line, row)
        yield line, [None if i is None or row[i] == "" else row[i] for i in index]


def _read_parquet(source: Source, request: ReadRequest) -> Trace:
    try:
        frame = pl.read_parquet(source.path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        # Damage in the middle of a file ends in a panic, which is no PolarsError.
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise source.fault(None, f"not a readable Parquet file: {brief_repr(reason)}") from None
    for name in REQUIRED:
        if name not in frame.columns:
            missing = missing_column(name, set(frame.columns) - set(COLUMNS))
            raise source.fault(None, f"{missing}; it needs {','.join(REQUIRED)}")
    columns: list[Iterable[Any]] = [
        frame[name].to_list() if name in frame.columns else [None] * len(frame) for name in COLUMNS
    ]
    rows = enumerate(zip(*columns, strict=True), start=1)
    unused = {
        name: len(frame) - frame[name].null_count() for name in frame.columns if name not in COLUMNS
    }
    trace = _trace("Fairlead Parquet", Checks(source, request.throughputs), rows)
    return replace(trace, notes=unused_note(unused, sorted(set(COLUMNS) - set(frame.columns))))


def _trace(name: str, checks: Checks, rows: Iterable[tuple[int, Iterable[Any]]]) -> Trace:
    lines: list[int] = []
    arrivals: list[Arrival] = []
    for line, row in rows:
        lines.append(line)
        arrivals.append(_arrival(checks, line, *row))
    return Trace(str(checks.source.path), name, arrivals, lines=tuple(lines))


def _arrival(
    checks: Checks,
    line: int,
    job: Any,
    arrival_s: Any,
    family: Any,
    scale_factor: Any,
    total_steps: Any,
    weight: Any,
    tenant: Any,
    slo_s: Any,
    duration_s: Any,
    adaptation: Any,
    samples: Any,
    devices: Any,
) -> Arrival:
    source = checks.source
    time_s = seconds(source, line, "arrival_s", arrival_s)
    made = Job(
        id=JobId(checks.id(line, "job", whole(source, line, "job", job, least=0))),
        family=checks.family(line, "family", family),
        scale_factor=whole(source, line, "scale_factor", scale_factor, least=1),
        total_steps=above_zero(source, line, "total_steps", total_steps),
        weight=1.0 if weight is None else checked_weight(source, line, "weight", weight),
        tenant="" if tenant is None else str(tenant),
        slo_s=None if slo_s is None else seconds_above_zero(source, line, "slo_s", slo_s),
        duration_s=None if duration_s is None else seconds(source, line, "duration_s", duration_s),
    )
    if devices is not None:
        if adaptation is not None:
            raise source.fault(line, "devices: a job that adapts its batch size keeps its devices")
        made = replace(made, devices=_numbers(checks, line, made, str(devices)))
    if adaptation is not None:
        size = None if samples is None else whole(source, line, "samples", samples, least=1)
        made = adapting(checks, line, "adaptation", made, str(adaptation), size)
    return Arrival(checks.arrival(line, "arrival_s", time_s), made)


def _numbers(checks: Checks, line: int, job: Job, text: str) -> tuple[int, ...]:
    """The scale factors that a job may have, ascending."""
    found = {whole(checks.source, line, "devices", one, least=1) for one in text.split()}
    if job.scale_factor not in found:
        raise checks.source.fault(
            line,
            f"devices: {brief_repr(text)} must include the scale_factor, {job.scale_factor}",
        )
    for number in sorted(found):
        if checks.throughputs.row(JobType.parse(job.family, number)) is None:
            raise checks.source.fault(
                line,
                f"devices: {brief_repr(job.family)} has no rate on {number} devices "
                f"({checks.throughputs.origin})",
            )
    return tuple(sorted(found))


FORMATS = (
    Format("Fairlead CSV", ",".join(REQUIRED), _csv_fits, _read_csv),
    Format(
        "Fairlead Parquet",
        "the same columns",
        lambda head: head.startswith(PARQUET_MAGIC),
        _read_parquet,
    ),
)
