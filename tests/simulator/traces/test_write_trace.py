"""What is written can be read again, and nothing is ever half-written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job_types import job_types

from fairlead.errors import InputError, TraceError
from fairlead.model.cluster import SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.trace import Trace
from fairlead.simulator.traces.write_trace import write_trace

positive = st.floats(1e-6, 1e12)
fields = st.fixed_dictionaries(
    {
        "family": st.sampled_from(["LM", "ResNet", "GPT"]),
        "scale_factor": st.integers(1, 64),
        "total_steps": positive,
        "weight": st.floats(1e-6, 1e6),
        "tenant": st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=9),
        "slo_s": st.none() | st.floats(1e-9, 1e9),
        "duration_s": st.none() | st.floats(0, 1e9),
    }
)
gaps = st.floats(0, 1e6)


@pytest.fixture(scope="module")
def table() -> Throughputs:
    kinds = (("LM", 1), ("LM", 2), ("ResNet", 2), ("GPT", 8))
    return Throughputs(
        (SlotType("h100"),), job_types(*kinds), np.array([[10.0], [18.0], [0.0], [1.0]])
    )


def arrivals(rows: list[tuple[float, int, dict[str, Any]]]) -> list[Arrival]:
    made: list[Arrival] = []
    time_s, last = 0.0, -1
    for gap, step, row in rows:
        time_s, last = time_s + gap, last + step
        made.append(Arrival(time_s, Job(JobId(last), **row)))
    return made


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@given(rows=st.lists(st.tuples(gaps, st.integers(1, 9), fields), min_size=1, max_size=5))
def test_our_formats_keep_everything(
    tmp_path_factory: pytest.TempPathFactory,
    table: Throughputs,
    suffix: str,
    rows: list[tuple[float, int, dict[str, Any]]],
) -> None:
    path = tmp_path_factory.mktemp("trace") / f"a.{suffix}"
    trace = Trace("made up", "none", arrivals(rows))
    write_trace(trace, path)
    assert read_trace(path, table).arrivals == trace.arrivals
    assert list(path.parent.iterdir()) == [path]


def test_gavels_format_has_whole_steps_and_line_numbers(tmp_path: Path, table: Throughputs) -> None:
    jobs = [
        Job(JobId(3), "LM", 2, 180.9, weight=5.0, tenant="lost", slo_s=20.0),
        Job(JobId(8), "GPT", 8, 0.25),
    ]
    trace = Trace("made up", "none", [Arrival(0.0, jobs[0]), Arrival(0.1, jobs[1])])
    write_trace(trace, tmp_path / "a.trace", table)
    again = read_trace(tmp_path / "a.trace", table)
    assert again.format == "Gavel, 10 columns"
    assert again.arrivals == [
        Arrival(0.0, Job(JobId(0), "LM", 2, 180.0, weight=5.0, tenant="", slo_s=20.0)),
        Arrival(0.1, Job(JobId(1), "GPT", 8, 1.0)),
    ]


def test_a_deadline_needs_a_rate_in_gavels_format(tmp_path: Path, table: Throughputs) -> None:
    trace = Trace("made up", "none", [Arrival(0.0, Job(JobId(3), "ResNet", 2, 5.0, slo_s=1.0))])
    for rates in (None, table):
        with pytest.raises(TraceError, match=r"job 3: slo_s 1\.0 cannot be written"):
            write_trace(trace, tmp_path / "a.trace", rates)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text("precious")
    good = Arrival(0.0, Job(JobId(0), "LM", 1, 5.0))
    bad = Arrival(0.0, Job(JobId(1), "LM", 1, 5.0, slo_s=1.0))
    with pytest.raises(TraceError):
        write_trace(Trace("made up", "none", [good, bad]), path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    trace = Trace("made up", "none", [])
    with pytest.raises(TraceError, match=r"ends in \.csv, \.parquet, \.trace, got '\.xlsx'"):
        write_trace(trace, tmp_path / "a.xlsx")
    with pytest.raises(InputError, match=r"cannot be written \(No such file or directory\)"):
        write_trace(trace, tmp_path / "absent" / "a.csv")
