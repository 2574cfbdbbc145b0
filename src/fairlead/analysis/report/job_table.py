"""The table of jobs in a report."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from fairlead.analysis.report.aggregate import worst_jobs
from fairlead.analysis.report.markup import Html, join
from fairlead.analysis.report.metric_catalogue import MetricKind, number
from fairlead.analysis.report.page import note
from fairlead.analysis.report.sortable_tables import SortableColumn, sortable
from fairlead.simulator.recording.adaptation_columns import in_words

MAX_JOBS = 500  # rows of the table


def values_of(frame: pl.DataFrame, name: str) -> list[object]:
    """A column, or as many gaps where there is none."""
    return frame[name].to_list() if name in frame.columns else [None] * frame.height


def _each(
    rule: Callable[[float, float], float], jobs: pl.DataFrame, first: str, second: str
) -> list[object]:
    pairs = zip(values_of(jobs, first), values_of(jobs, second), strict=True)
    known = ((number(a), number(b)) for a, b in pairs)
    return [None if a is None or b is None else rule(a, b) for a, b in known]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table of jobs."""

    name: str
    of: Callable[[pl.DataFrame], list[object]]
    kind: MetricKind | None = None  # None for words
    always: bool = False  # shown even if nothing is known


def _values_of(column: str) -> Callable[[pl.DataFrame], list[object]]:
    return lambda jobs: values_of(jobs, column)


def _waited(jobs: pl.DataFrame) -> list[object]:
    return _each(lambda start, arrival: start - arrival, jobs, "start_s", "arrival_s")


def _steps_done(jobs: pl.DataFrame) -> list[object]:
    return _each(
        lambda done, total: done / total if total else 1.0, jobs, "steps_done", "total_steps"
    )


def _deadline(jobs: pl.DataFrame) -> list[object]:
    met = _each(lambda jct, slo: float(jct <= slo), jobs, "jct_s", "slo_s")
    return [None if ok is None else "met" if ok else "missed" for ok in met]


def _batch_sizes(jobs: pl.DataFrame) -> list[object]:
    return [known and in_words(str(known)) for known in values_of(jobs, "batch_sizes")]


def _weight(jobs: pl.DataFrame) -> list[object]:
    """Weights; None for all jobs where all weights are equal."""
    weights = values_of(jobs, "weight")
    return weights if len(set(weights)) > 1 else [None] * jobs.height


JOB_COLUMNS = (
    _Column("Job", _values_of("job"), MetricKind.COUNT, always=True),
    _Column("Family", _values_of("family"), always=True),
    _Column("Devices", _values_of("scale_factor"), MetricKind.COUNT, always=True),
    _Column("Mode", _values_of("mode")),
    _Column("Batch size from epoch", _batch_sizes),
    _Column("Tenant", _values_of("tenant")),
    _Column("Weight", _weight, MetricKind.RATIO),
    _Column("Arrival", _values_of("arrival_s"), MetricKind.TIME, always=True),
    _Column("Waited", _waited, MetricKind.TIME),
    _Column("Run time", _values_of("run_s"), MetricKind.TIME),
    _Column("JCT", _values_of("jct_s"), MetricKind.TIME, always=True),
    _Column("Ended", _values_of("end"), always=True),
    _Column("Steps done", _steps_done, MetricKind.SHARE),
    _Column("Rho, isolated", _values_of("rho_isolated"), MetricKind.RATIO),
    _Column("Rho, static", _values_of("rho_static"), MetricKind.RATIO),
    _Column("Rho, Themis", _values_of("rho_themis"), MetricKind.RATIO),
    _Column("Cost", _values_of("cost"), MetricKind.MONEY),
    _Column("Restarts", _values_of("restarts"), MetricKind.COUNT),
    _Column("Moves", _values_of("moves"), MetricKind.COUNT),
    _Column("Lost to restarts", _values_of("restart_lost_s"), MetricKind.TIME),
    _Column("Deadline", _deadline),
)


def job_table(jobs: pl.DataFrame) -> Html:
    """The table of jobs; of many, the worst ones."""
    if not jobs.height:
        return note("There were no jobs.")
    shown = worst_jobs(jobs, MAX_JOBS)
    words = "Click a heading to sort."
    if shown.height < jobs.height:
        words = (
            f"The {shown.height:,} worst of {jobs.height:,} jobs: some of those that did not complete, "
            f"then those with the longest completion times. jobs.parquet holds all. {words}"
        )
    columns = [column for column in (_known(c, shown) for c in JOB_COLUMNS) if column]
    return join(note(words), sortable(columns))


def _known(column: _Column, jobs: pl.DataFrame) -> SortableColumn | None:
    """The column with its values; None where no value of it is known."""
    values = column.of(jobs)
    if not column.always and all(value is None or value == "" for value in values):
        return None
    return SortableColumn(column.name, values, column.kind, is_name=column.name == "Job")
