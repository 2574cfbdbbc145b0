"""A format in CSV from one function."""

import re
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead.errors import TraceError
from fairlead.simulator.traces.csv_format import Row, RowJob, SkipRowError, csv_format
from fairlead.simulator.traces.reader import ReadRequest
from fairlead.simulator.traces.source import Source
from fairlead.simulator.traces.trace import Trace, skipped_summary

RATES = fairlead.read_throughputs("builtin")
MODEL = "ResNet-50 (batch size 64)"
COLUMNS = ("submit", "gpus", "secs", "model")


def lab_job(row: Row) -> RowJob:
    """Dates with their zone, durations, and a queue that is sometimes there."""
    devices = row.whole("gpus")
    if devices == 0:
        raise SkipRowError("it asks for 0 devices")
    family, duration_s = row.family("model"), row.seconds("secs")
    return RowJob(
        submitted_s=row.date_s("submit", zone=None),
        family=family,
        scale_factor=devices,
        total_steps=row.steps(family, devices, duration_s),
        tenant=row.text("queue"),
        duration_s=duration_s,
    )


LAB = csv_format("lab CSV", COLUMNS, lab_job, optional=("queue",))


def read(folder: Path, rows: str, header: str = "submit,gpus,secs,model") -> Trace:
    path = folder / "jobs.csv"
    path.write_text(f"{header}\n{rows}")
    source = Source(path, TraceError)
    assert LAB.fits(source.head()[1])
    return LAB.read(source, ReadRequest(RATES))


def test_rows_are_sorted_and_numbered_and_keep_their_lines(tmp_path: Path) -> None:
    rows = (
        f"2026-10-25T02:30+01:00,1,60,{MODEL},red,x\n2026-10-25T02:30+02:00,2,600,{MODEL},blue,y\n"
    )
    trace = read(tmp_path, rows, "submit,gpus,secs,model,queue,host")
    assert [(one.time_s, one.job.id, one.job.tenant) for one in trace.arrivals] == [
        (0.0, 0, "blue"),
        (3600.0, 1, "red"),
    ]
    assert trace.lines == (3, 2)
    assert trace.format == "lab CSV"
    assert trace.notes == (
        "the rows were not in order of submission: sorted",
        "not used: column 'host' (2 values)",
    )


def test_the_steps_are_those_of_the_fastest_type(tmp_path: Path) -> None:
    [one] = read(tmp_path, f"2026-01-01T10:00Z,1,60,{MODEL}\n").arrivals
    fastest = max(
        RATES.rate[i].max() for i, t in enumerate(RATES.job_types) if t == one.job.job_type
    )
    assert one.job.total_steps == pytest.approx(60 * fastest)
    assert (one.job.duration_s, one.job.tenant) == (60.0, "")


def test_rows_without_anything_to_run_are_counted(tmp_path: Path) -> None:
    day = "2026-01-01T10:00Z"
    trace = read(
        tmp_path, f"{day},0,9,{MODEL}\n{day},3,9,{MODEL}\n{day},1,0,{MODEL}\n{day},1,9,{MODEL}\n"
    )
    assert len(trace.arrivals) == 1
    assert skipped_summary(trace) == [
        "1 row skipped: it asks for 0 devices (line 2)",
        f"1 row skipped: no rate for {MODEL} at scale factor 3 (line 3)",
        "1 row skipped: its duration is 0 s (line 4)",
    ]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (f"yesterday,1,9,{MODEL}", "submit: expected a date and time, got 'yesterday'"),
        (f"2026-01-01T10:00,1,9,{MODEL}", "submit: expected a time zone, got '2026-01-01T10:00'"),
        (f"1960-01-01T10:00Z,1,9,{MODEL}", "submit: must not be before 1970"),
        (f"2026-01-01T10:00Z,x,9,{MODEL}", "gpus: expected a whole number, got 'x'"),
        (f"2026-01-01T10:00Z,1,-9,{MODEL}", "secs: must be >= 0, got '-9'"),
        ("2026-01-01T10:00Z,1,9,GPT-7", "model: 'GPT-7' is not in the throughput table"),
        ("2026-01-01T10:00Z,1,9", "expected 4 columns, got 3"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, row: str, sentence: str) -> None:
    with pytest.raises(TraceError, match=f"jobs.csv:2: {sentence}"):
        read(tmp_path, row + "\n")


def test_a_date_without_a_zone_is_of_the_zone_that_the_reader_names(tmp_path: Path) -> None:
    east = timezone(timedelta(hours=2))

    def job(row: Row) -> RowJob:
        return RowJob(
            submitted_s=row.date_s("at", zone=east), family=MODEL, scale_factor=1, total_steps=1.0
        )

    path = tmp_path / "t.csv"
    path.write_text("at\n2026-01-01 12:00\n2026-01-01T10:30Z\n")
    trace = csv_format("dates", ("at",), job).read(Source(path, TraceError), ReadRequest(RATES))
    assert [one.time_s for one in trace.arrivals] == [0.0, 1800.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"weight": 0.0}, "weight: must be > 0, got 0.0"),
        ({"total_steps": 0.0}, "total_steps: must be > 0, got 0.0"),
        ({"scale_factor": 0}, "scale_factor: must be >= 1, got 0"),
        ({"slo_s": 0.0}, "slo_s: must be > 0, got 0.0"),
        ({"duration_s": -1.0}, "duration_s: must be >= 0, got -1.0"),
        ({"submitted_s": float("nan")}, "submitted_s: expected a finite number, got nan"),
    ],
)
def test_what_no_job_may_be_is_named_with_its_line(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    good: dict[str, Any] = {
        "submitted_s": 0.0,
        "family": MODEL,
        "scale_factor": 1,
        "total_steps": 1.0,
    }
    path = tmp_path / "t.csv"
    path.write_text("at\n1\n")
    made = csv_format("own", ("at",), lambda _: RowJob(**(good | changes)))
    with pytest.raises(TraceError, match=f"t.csv:2: {re.escape(sentence)}"):
        made.read(Source(path, TraceError), ReadRequest(RATES))
