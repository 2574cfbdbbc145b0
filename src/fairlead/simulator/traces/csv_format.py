"""A trace format in CSV from one function, which makes a job of a row. A reader of such a format needs no
other module."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo

from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.simulator.traces import fields
from fairlead.simulator.traces.reader import Checks, Format, ReadRequest
from fairlead.simulator.traces.source import HeaderColumns, Source, csv_rows, header_names
from fairlead.simulator.traces.trace import Skipped, Trace

SORTED = "the rows were not in order of submission: sorted"


class SkipRowError(Exception):
    """Raise it with the reason where a row has nothing to run: the row is left out and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """Job as a row describes it."""

    submitted_s: float  # on any clock: that of the first job becomes 0
    family: str
    scale_factor: int  # devices
    total_steps: float
    weight: float = 1.0
    tenant: str = ""
    slo_s: float | None = None  # deadline, in seconds from the submission
    duration_s: float | None = None  # as measured, for metrics


class Row:
    """The cells of a row by column. Whatever is wrong with one is a TraceError with file, line, column and
    value."""

    def __init__(self, line: int, cells: dict[str, str], checks: Checks) -> None:
        self.line = line  # from 1
        self._cells = cells
        self._checks = checks
        self._source = checks.source

    def text(self, column: str) -> str:
        """The cell without the spaces around it; empty where an optional column is missing."""
        return self._cells.get(column, "")

    def whole(self, column: str, *, least: int = 0) -> int:
        """A whole number >= least."""
        return fields.whole(self._source, self.line, column, self.text(column), least)

    def number(self, column: str) -> float:
        """A number >= 0."""
        return fields.at_least_zero(self._source, self.line, column, self.text(column))

    def seconds(self, column: str) -> float:
        """A time or a duration >= 0, in seconds."""
        return fields.seconds(self._source, self.line, column, self.text(column))

    def date_s(self, column: str, *, zone: tzinfo | None = UTC) -> float:
        """A date and time in ISO 8601, as seconds since 1970. zone: of a text that names none; None = such
        a text is a mistake."""
        return fields.date_s(self._source, self.line, column, self.text(column), zone)

    def family(self, column: str) -> str:
        """A family of the throughput table."""
        return self._checks.family(self.line, column, self.text(column))

    def steps(self, family: str, scale_factor: int, duration_s: float) -> float:
        """The steps of so many seconds on the fastest accelerator type of the table. Raises SkipRowError
        where the table has no rate of the family on so many devices."""
        table = self._checks.throughputs
        row = table.row(JobType.parse(family, scale_factor))
        rate = 0.0 if row is None else float(table.fastest[row])
        if rate <= 0:
            raise SkipRowError(f"no rate for {family} at scale factor {scale_factor}")
        if duration_s <= 0:
            raise SkipRowError("its duration is 0 s")
        return duration_s * rate


def csv_format(
    name: str,
    columns: tuple[str, ...],
    job: Callable[[Row], RowJob],
    *,
    optional: tuple[str, ...] = (),
) -> Format:
    """The format of CSV files whose header has at least these columns.

    job: makes the job of a row; it may raise SkipRowError. Jobs are numbered in order of submission, rows
    that are not in that order are sorted, and a note says so; columns that are neither in ``columns`` nor
    in ``optional`` are named in a note.
    """

    def fits(head: bytes) -> bool:
        return header_names(head).issuperset(columns)

    def read(source: Source, request: ReadRequest) -> Trace:
        return _read(source, request, name, (columns, optional), job)

    return Format(name, ",".join(columns), fits, read)


def _read(
    source: Source,
    request: ReadRequest,
    name: str,
    named: tuple[tuple[str, ...], tuple[str, ...]],
    job: Callable[[Row], RowJob],
) -> Trace:
    rows = csv_rows(source)
    line, header = next(rows)
    columns = HeaderColumns(source, line, header, *named)
    checks = Checks(source, request.throughputs)
    found: list[tuple[int, RowJob]] = []
    skipped: list[Skipped] = []
    for line, row in rows:
        columns.check(line, row)
        cells = {column: row[i].strip() for column, i in columns.index.items()}
        try:
            made = job(Row(line, cells, checks))
        except SkipRowError as reason:
            skipped.append(Skipped(line, str(reason)))
        else:
            _check(source, line, made)
            found.append((line, made))
    in_order = sorted(found, key=lambda one: one[1].submitted_s)
    notes = (*(() if in_order == found else (SORTED,)), *columns.notes())
    lines = tuple(line for line, _ in in_order)
    arrivals = _arrivals([one for _, one in in_order])
    return Trace(str(source.path), name, arrivals, tuple(skipped), notes, lines)


def _check(source: Source, line: int, made: RowJob) -> None:
    """Raise TraceError with the field that no job may have, whatever it was made of."""
    fields.number(source, line, "submitted_s", made.submitted_s)
    fields.whole(source, line, "scale_factor", made.scale_factor, 1)
    fields.above_zero(source, line, "total_steps", made.total_steps)
    fields.weight(source, line, "weight", made.weight)
    if made.slo_s is not None:
        fields.seconds_above_zero(source, line, "slo_s", made.slo_s)
    if made.duration_s is not None:
        fields.seconds(source, line, "duration_s", made.duration_s)


def _arrivals(jobs: list[RowJob]) -> list[Arrival]:
    """Ids from 0, and times from that of the first."""
    return [
        Arrival(
            one.submitted_s - jobs[0].submitted_s,
            Job(
                id=JobId(number),
                family=one.family,
                scale_factor=one.scale_factor,
                total_steps=one.total_steps,
                weight=one.weight,
                tenant=one.tenant,
                slo_s=one.slo_s,
                duration_s=one.duration_s,
            ),
        )
        for number, one in enumerate(jobs)
    ]
