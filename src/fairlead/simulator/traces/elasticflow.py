"""ElasticFlow's traces: jobs with a model, a global batch size, a number of iterations and a deadline.

Source: the traces published with ElasticFlow (ASPLOS'23), in both spellings of their columns. The family of a
job is ``MODEL (batch size N)``, so that the throughput table needs such families; jobs without one there are
skipped by whoever runs the trace. A step is an iteration at the global batch size.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.model.argument_checks import brief_repr
from fairlead.model.job import Arrival, Job, JobId
from fairlead.simulator.traces.fields import (
    above_zero,
    seconds,
    whole,
)
from fairlead.simulator.traces.reader import Format, ReadRequest
from fairlead.simulator.traces.source import (
    HeaderColumns,
    Source,
    csv_rows,
    header_names,
)
from fairlead.simulator.traces.trace import Skipped, Trace


@dataclass(frozen=True, slots=True)
class Spelling:
    """Column names of a file."""

    name: str
    submitted: str  # s
    iterations: str
    deadline: str  # s, on the clock of submissions
    job: str = "job_id"
    model: str = "model_name"
    batch: str = "batch_size"
    devices: str = "num_gpu"
    duration: str = "duration"  # s, on the devices that the job asks for

    @property
    def required(self) -> tuple[str, ...]:
        """All of them: with fewer the file is another format's."""
        return (
            *(self.job, self.submitted, self.iterations, self.model),
            *(self.deadline, self.batch, self.devices, self.duration),
        )


SPELLINGS = (
    Spelling("ElasticFlow", "submission_time", "num_iteration", "deadline"),
    Spelling("ElasticFlow, simulator's columns", "submit_time", "iteration", "ddl"),
)


def _format(spelling: Spelling) -> Format:
    def fits(head: bytes) -> bool:
        return header_names(head).issuperset(spelling.required)

    def read(source: Source, _request: ReadRequest) -> Trace:
        return _read(source, spelling)

    return Format(spelling.name, ",".join(spelling.required), fits, read)


FORMATS = tuple(map(_format, SPELLINGS))


@dataclass(frozen=True, slots=True)
class _TraceRow:
    line: int
    arrival: Arrival  # with the id -1: ids follow the order of submission
    late_s: float | None  # how far before the submission the deadline lies, if it does


def _read(source: Source, spelling: Spelling) -> Trace:
    rows = csv_rows(source)
    line, header = next(rows)
    columns = HeaderColumns(source, line, header, spelling.required)
    found = list(_rows(source, spelling, columns, rows))
    skipped = tuple(
        Skipped(row.line, "its deadline is not after its submission")
        for row in found
        if row.late_s is not None
    )
    on_time = [row for row in found if row.late_s is None]
    in_order = sorted(on_time, key=lambda row: row.arrival.time_s)
    sorted_note = "the rows were not in order of submission: sorted"
    return Trace(
        str(source.path),
        spelling.name,
        list(_numbered(in_order)),
        skipped,
        (*(() if in_order == on_time else (sorted_note,)), *columns.notes()),
        tuple(row.line for row in in_order),
    )


def _numbered(rows: list[_TraceRow]) -> Iterator[Arrival]:
    """Ids from 0, and times from that of the first."""
    for number, row in enumerate(rows):
        one = row.arrival.job
        job = Job(
            JobId(number),
            one.family,
            one.scale_factor,
            one.total_steps,
            slo_s=one.slo_s,
            duration_s=one.duration_s,
        )
        yield Arrival(row.arrival.time_s - rows[0].arrival.time_s, job)


def _rows(
    source: Source,
    spelling: Spelling,
    columns: HeaderColumns,
    rows: Iterator[tuple[int, list[str]]],
) -> Iterator[_TraceRow]:
    seen: set[str] = set()
    for line, row in rows:
        columns.check(line, row)
        cell = {name: row[columns.index[name]].strip() for name in spelling.required}
        if cell[spelling.job] in seen:
            raise source.fault(
                line, f"{spelling.job}: appears twice, got {brief_repr(cell[spelling.job])}"
            )
        seen.add(cell[spelling.job])
        yield _row(source, line, spelling, cell)


def _row(source: Source, line: int, spelling: Spelling, cell: dict[str, str]) -> _TraceRow:
    model = cell[spelling.model]
    if not model:
        raise source.fault(line, f"{spelling.model}: must not be empty")
    batch = whole(source, line, spelling.batch, cell[spelling.batch], least=1)
    time_s = seconds(source, line, spelling.submitted, cell[spelling.submitted])
    slo_s = seconds(source, line, spelling.deadline, cell[spelling.deadline]) - time_s
    job = Job(
        JobId(-1),
        f"{model} (batch size {batch})",
        whole(source, line, spelling.devices, cell[spelling.devices], least=1),
        above_zero(source, line, spelling.iterations, cell[spelling.iterations]),
        slo_s=slo_s,
        duration_s=seconds(source, line, spelling.duration, cell[spelling.duration]),
    )
    return _TraceRow(line, Arrival(time_s, job), None if slo_s > 0 else -slo_s)
