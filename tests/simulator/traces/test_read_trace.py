"""Every format, written by hand, and every way in which a file can be wrong."""

import gzip
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job_types import job_types

from fairlead.errors import TraceError
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.read_trace import FORMATS, read_trace
from fairlead.simulator.traces.source import MAX_LINE
from fairlead.simulator.traces.trace import (
    Skipped,
    skipped_summary,
    usable,
)

SEVEN = "LM\tpython x\t-s\t1\t500\t{arrival}\t{scale}\n"
TEN = "LM\tcmd\tdir\t-s\t1\t{steps}\t{scale}\t{weight}\t{slo}\t{arrival}\n"
TWELVE = "LM\tcmd\tdir\t-s\t1\t600\t2\tstatic\t1\t{slo}\t{duration}\t{arrival}\n"
OWN = "job,arrival_s,family,scale_factor,total_steps\n"
JOB = {
    "id": 4,
    "arrival": 0,
    "job_type": "LM",
    "scale_factor": 2,
    "total_steps": 12.5,
    "duration": 40.0,
    "priority": 5.0,
    "SLO": 2.0,
    "command": "cmd",
}


@pytest.fixture(scope="session")
def table() -> Throughputs:
    """Three families on two accelerator types; the fastest rates are 10, 18, 30, 7, 0 and 1."""
    return Throughputs(
        slots=(SlotType("h100"), SlotType("k80"), SlotType("k80", Locality.SCATTERED)),
        job_types=job_types(
            ("LM", 1), ("LM", 2), ("LM", 4), ("ResNet", 1), ("ResNet", 2), ("GPT", 8)
        ),
        rate=np.array(
            [
                [10.0, 2.0, 2.0],
                [18.0, 3.0, 99.0],
                [30.0, 5.0, 1.0],
                [7.0, 0.0, 0.0],
                [0.0, 0.0, 0.0],
                [1.0, 0.0, 0.0],
            ]
        ),
        origin="small table",
    )


def write(folder: Path, text: str | bytes, name: str = "a.trace") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def ten(**fields: object) -> str:
    usual = {"steps": 500, "scale": 1, "weight": 1, "slo": -1, "arrival": 0}
    return TEN.format(**(usual | fields))


def test_seven_columns(tmp_path: Path, table: Throughputs) -> None:
    path = write(tmp_path, SEVEN.format(arrival=0, scale=1) + SEVEN.format(arrival=9.5, scale=4))
    trace = read_trace(path, table)
    assert trace.format == "Gavel, 7 columns"
    assert trace.arrivals == [
        Arrival(0.0, Job(JobId(0), "LM", 1, 500.0)),
        Arrival(9.5, Job(JobId(1), "LM", 4, 500.0)),
    ]
    assert trace.lines == (1, 2)


def test_ten_columns_have_weights_and_deadlines(tmp_path: Path, table: Throughputs) -> None:
    path = write(tmp_path, ten(weight=5) + ten(steps=180, scale=2, slo="1.500000", arrival=7))
    trace = read_trace(path, table)
    assert trace.format == "Gavel, 10 columns"
    # 180 steps take 10 s at 18 steps/s, the fastest consolidated rate; the deadline is 1.5 of that.
    assert trace.arrivals == [
        Arrival(0.0, Job(JobId(0), "LM", 1, 500.0, weight=5.0)),
        Arrival(7.0, Job(JobId(1), "LM", 2, 180.0, slo_s=15.0)),
    ]


def test_twelve_columns_state_the_duration(tmp_path: Path, table: Throughputs) -> None:
    path = write(tmp_path, TWELVE.format(slo=-1, duration=100, arrival=0) * 2)
    other = write(tmp_path, TWELVE.format(slo=2, duration=100, arrival=0), "b")
    assert [a.job.duration_s for a in read_trace(path, table).arrivals] == [100.0, 100.0]
    assert read_trace(other, table).arrivals[0].job.slo_s == 200.0


def test_generated_jobs_keep_ids_and_fractions_of_steps(tmp_path: Path, table: Throughputs) -> None:
    path = write(tmp_path, json.dumps([JOB, JOB | {"id": 7, "arrival": 2.5, "SLO": None}]))
    trace = read_trace(path, table)
    assert trace.arrivals == [
        Arrival(
            0.0, Job(JobId(4), "LM", 2, 12.5, weight=5.0, tenant="", slo_s=80.0, duration_s=40.0)
        ),
        Arrival(
            2.5, Job(JobId(7), "LM", 2, 12.5, weight=5.0, tenant="", slo_s=None, duration_s=40.0)
        ),
    ]


def test_blank_lines_keep_the_ids_of_the_lines_behind_them(
    tmp_path: Path, table: Throughputs
) -> None:
    trace = read_trace(write(tmp_path, ten() + "\n" + ten(arrival=3)), table)
    assert [a.job.id for a in trace.arrivals] == [0, 2]


def test_gzip_windows_line_ends_and_a_byte_order_mark(tmp_path: Path, table: Throughputs) -> None:
    text = (OWN + "0,0,LM,1,5\n1,4,LM,1,5\n").replace("\n", "\r\n")
    plain = read_trace(write(tmp_path, b"\xef\xbb\xbf" + text.encode()), table)
    packed = read_trace(write(tmp_path, gzip.compress(text.encode()), "b"), table)
    assert plain.format == packed.format == "Fairlead CSV"
    assert plain.arrivals == packed.arrivals
    assert [a.time_s for a in plain.arrivals] == [0.0, 4.0]


def test_our_csv_takes_columns_in_any_order_with_comments(
    tmp_path: Path, table: Throughputs
) -> None:
    text = (
        "# made by hand\n"
        "tenant,total_steps,scale_factor,family,arrival_s,job,slo_s,extra,duration_s,weight\n"
        '"a, b",5.5,2,LM,1e2,3,,x,7,\n'
    )
    trace = read_trace(write(tmp_path, text), table)
    job = Job(JobId(3), "LM", 2, 5.5, tenant="a, b", duration_s=7.0)
    assert trace.arrivals == [Arrival(100.0, job)]
    assert trace.lines == (3,)


def test_itp_jobs_get_families_by_the_seeded_rule(tmp_path: Path, table: Throughputs) -> None:
    text = "job_id,submission_time,duration,num_gpu\n" + "".join(
        f"x{i},{1000 + i},60,1\n" for i in range(400)
    )
    path = write(tmp_path, text)
    trace = read_trace(path, table, seed=3)
    families = [a.job.family for a in trace.arrivals]
    assert families.count("LM") == pytest.approx(200, abs=50)  # LM or ResNet at scale factor 1
    assert {a.job.total_steps for a in trace.arrivals} == {600.0, 420.0}  # duration x fastest rate
    assert read_trace(path, table, seed=3) == trace
    assert [a.job.family for a in read_trace(path, table, seed=4).arrivals] != families
    chances = np.random.default_rng(3).random(400)
    assert families == ["LM" if chance < 0.5 else "ResNet" for chance in chances]


def test_wall_clock_traces_start_at_0_in_order(tmp_path: Path, table: Throughputs) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,3,198.0,b\n"
        "2017-10-09 07:01:45,30,1,30,a\n"
        "2017-10-09 07:02:45,0,1,0,a\n"
        "2017-10-09 07:02:45,9,0,0,a\n"
    )
    path = write(tmp_path, text)
    trace = read_trace(path, table)
    assert [(a.time_s, a.job.id, a.job.tenant) for a in trace.arrivals] == [
        (0.0, 0, "a"),
        (10.0, 1, "b"),
    ]
    assert [a.job.scale_factor for a in trace.arrivals] == [1, 2]
    assert trace.devices == (1, 3)
    assert trace.lines == (3, 2)
    assert trace.notes == (
        "the rows were not in order of submission: sorted",
        "not used: column 'gpu_time' (4 values)",
        "1 jobs ask for a number of devices that the throughput table lacks: rounded down to its "
        "next scale factor",
    )
    assert skipped_summary(trace) == [
        "1 row skipped: its duration is 0 s (line 4)",
        "1 row skipped: it asks for 0 devices (line 5)",
    ]
    assert [a.time_s for a in read_trace(path, table, vc="b").arrivals] == [0.0]


def test_too_few_devices_for_the_table_are_skipped(tmp_path: Path, table: Throughputs) -> None:
    big_only = Throughputs(
        table.slots,
        job_types(
            ("GPT", 8),
        ),
        table.rate[5:],
    )
    path = write(tmp_path, "job_id,submission_time,duration,num_gpu\na,0,5,8\nb,0,5,4\n")
    trace = read_trace(path, big_only)
    assert len(trace.arrivals) == 1
    assert skipped_summary(trace) == [
        "1 row skipped: the throughput table has no scale factor of 4 or less (line 3)"
    ]


def own(row: str) -> str:
    return OWN + row + "\n"


ITP = "job_id,submission_time,duration,num_gpu\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
BAD = {
    "empty": ("", ": is empty"),
    "blank": ("\n \n# only a comment\n", ": is empty"),
    "header only": (OWN, ": the trace has no jobs"),
    "prose": ("once upon a time", ":1: not a trace: the first line is "),
    "binary": (b"\x7fELF\x02\x01\xff\xfe" * 9, ":1: not a trace: binary data that starts with"),
    "nuls": (b"\0" * 999, ":1: not a trace: the first line is "),
    "utf-16": (OWN.encode("utf-16"), ":1: not a trace: binary data"),
    "latin-1": (own("0,0,caf\xe9,1,5").encode("latin-1"), ":2: not UTF-8 text: byte 0xe9 at col"),
    "cut-off gzip": (
        gzip.compress(own("0,0,LM,1,5").encode())[:-12],
        ": the gzip data is damaged or cut off (",
    ),
    "damaged gzip": (b"\x1f\x8b\x08junk, no gzip data", ": the gzip data is damaged or cut off ("),
    "column missing": (
        "job,arrival_s,scale_factor,total_steps\n0,0,1,5\n",
        ":1: column 'family' is missing; a trace in the format Fairlead CSV needs job,arrival_s,family,",
    ),
    "durations only": (
        "duration_s,num_gpus\n860662.0,1\n",
        ":1: not a trace: the first line is 'duration_s,num_gpus'; known are Fairlead CSV (job,",
    ),
    "of no format": (
        "job_id,arrival\n0,0\n",
        ":1: not a trace: the first line is 'job_id,arrival'; known are Fairlead CSV (job,arrival_s,",
    ),
    "eight columns": ("a\tb\tc\td\te\tf\tg\th", ":1: expected 7, 10 or 12 tab-separated columns, "),
    "ragged tabs": (ten() + "LM\tcmd\n", ":2: expected 10 tab-separated columns, got 2"),
    "ragged csv": (own("0,0,LM,1"), ":2: expected 5 columns, got 4"),
    "open quote": (
        own('0,0,"LM,1,5\n1,0,LM,1,5\n2,0,LM,1,5'),
        ':2: not valid CSV: a quote (") that begins in this row is never closed',
    ),
    "open quote, closed below": (
        own('0,0,"LM,1,5\n\n1,0,"LM",1,5'),
        ':2: not valid CSV: a quote (") that begins in this row is open until line 4: ',
    ),
    "quote over two lines": (own('0,0,"L\nM",1,5'), ":2: family: 'L\\nM' is not in"),
    "misspelt column": (
        OWN.replace("arrival_s", "arival_s") + "0,0,LM,1,5\n",
        ":1: column 'arrival_s' is missing (did you mean it by 'arival_s'?); a trace in the format",
    ),
    "misspelt columns": (
        "job,arival_s,famly,scalefactor,total_steps\n0,0,LM,1,5\n",
        ":1: column 'arrival_s' is missing (did you mean it by 'arival_s'?); a trace in the format",
    ),
    "unknown family": (
        ten().replace("LM", "Foo"),
        ":1: job_type: 'Foo' is not in the throughput table (small table)",
    ),
    "unknown family, csv": (own("0,0,Foo,1,5"), ":2: family: 'Foo' is not in the throughput table"),
    "misspelt family": (own("0,0,ResNt,1,5"), "(small table); did you mean 'ResNet'?"),
    "no id": (own(",0,LM,1,5"), ":2: job: must not be empty"),
    "no family": (own("0,0,,1,5"), ":2: family: must not be empty"),
    "negative steps": (ten(steps=-5), ":1: total_steps: must be > 0, got '-5'"),
    "zero steps": (own("0,0,LM,1,0"), ":2: total_steps: must be > 0, got '0'"),
    "zero scale factor": (ten(scale=0), ":1: scale_factor: must be >= 1, got '0'"),
    "half a device": (own("0,0,LM,1.5,5"), ":2: scale_factor: expected a whole number, got '1.5'"),
    "no number": (ten(steps="many"), ":1: total_steps: expected a number, got 'many'"),
    "underscore": (ten(steps="1_000"), ":1: total_steps: expected a number, got '1_000'"),
    "nan": (ten(arrival="nan"), ":1: arrival_time: expected a finite number, got 'nan'"),
    "infinite": (ten(steps="inf"), ":1: total_steps: expected a finite number, got 'inf'"),
    "overflow": (ten(scale="1e999"), ":1: scale_factor: expected a finite number, got '1e999'"),
    "negative weight": (ten(weight=-1), ":1: priority_weight: must be > 0, got '-1'"),
    "nan slo": (ten(slo="nan"), ":1: SLO: expected a finite number, got 'nan'"),
    "back in time": (
        ten(arrival=9) + ten(arrival=8.5),
        ":2: arrival_time: must not decrease from row to row, got 8.5 after 9.0",
    ),
    "before the start": (ten(arrival=-1), ":1: arrival_time: must be >= 0, got '-1'"),
    "negative duration": (
        TWELVE.format(slo=-1, duration=-3, arrival=0),
        ":1: duration: must be >= 0, got '-3'",
    ),
    "ids twice": (
        own("3,0,LM,1,5\n3,0,LM,1,5"),
        ":3: job: must increase from row to row, got 3 af",
    ),
    "long value": (
        own("0,0,LM,1," + "9x" * 999),
        ":2: total_steps: expected a number, got '9x9x9x",
    ),
    "itp devices": (ITP + "a,0,5,-1\n", ":2: num_gpu: must be >= 0, got '-1'"),
    "itp time": (ITP + "a,soon,5,1\n", ":2: submission_time: expected a number, got 'soon'"),
    "philly time": (
        PHILLY + "2017-13-09 07:01:55,5,1,5,a\n",
        ":2: timestamp: expected a date and time, got '2017-13-09 07:01:55'",
    ),
    "json cut off": (json.dumps([JOB])[:-9], ": not valid JSON: "),
    "json line": ("[\n{]", ":2: not valid JSON: "),
    "json type": (json.dumps([JOB | {"id": "x"}]), ": Expected `int`, got `str` - at `$[0].id`"),
    "json field": (json.dumps([{"id": 3}]), ": Object missing required field `arrival`"),
    "json empty": ("[]", ": the trace has no jobs"),
    "json steps": (json.dumps([JOB | {"total_steps": -1}]), ":1: total_steps: must be > 0, got -1"),
    "json order": (json.dumps([JOB, JOB]), ":2: id: must increase from row to row, got 4 after 4"),
    "json depth": ("[" * 100_000, ": Expected `object`, got `array`"),
    "parquet cut off": (b"PAR1 and then nothing PAR1", ": not a readable Parquet file: "),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence(
    tmp_path: Path, table: Throughputs, content: str | bytes, message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        read_trace(path, table)
    text = str(caught.value)
    assert message in text
    assert text.startswith(str(path))
    assert "\n" not in text
    assert len(text) - len(str(path)) < (800 if "Philly (timestamp" in text else 300)


@pytest.mark.parametrize("content", ["nothing", "some,columns"])
def test_formats_that_do_not_fit_into_a_sentence_are_counted(
    tmp_path: Path, table: Throughputs, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """However many formats there come to be, and however long their names are."""
    long = [replace(FORMATS[0], name="long name " * 20, columns="a,b,c", fits=lambda _: False)] * 9
    monkeypatch.setattr("fairlead.simulator.traces.read_trace.FORMATS", (*FORMATS, *long))
    path = write(tmp_path, content)
    with pytest.raises(TraceError, match=r"known are Fairlead CSV.*; \d+ more$") as caught:
        read_trace(path, table)
    assert len(str(caught.value)) - len(str(path)) < (800 if "," in content else 300)


@given(
    text=st.sampled_from(
        [
            OWN + "0,0,LM,1,5\n1,4,LM,1,5\n",
            ITP + "a,0,5,8\nb,0,5,4\n",
            PHILLY + "2017-10-09 07:01:55,5,1,5,a\n",
            ten() + ten(slo=1.5, arrival=3),
            json.dumps([JOB]),
        ]
    ),
    at=st.integers(0, 99),
    cut=st.integers(0, 9),
    junk=st.binary(max_size=6) | st.sampled_from([b"-", b"nan", b'"', b"\t", b"\n", b"9" * 400]),
)
def test_damage_anywhere_is_an_error_or_a_trace(
    tmp_path_factory: pytest.TempPathFactory,
    table: Throughputs,
    text: str,
    at: int,
    cut: int,
    junk: bytes,
) -> None:
    data = text.encode()
    path = tmp_path_factory.mktemp("damage") / "a"
    path.write_bytes(data[:at] + junk + data[at + cut :])
    steps, message = [1.0], ""
    try:
        steps = [arrival.job.total_steps for arrival in read_trace(path, table).arrivals]
    except TraceError as problem:
        message = str(problem)
    assert all(one > 0 for one in steps)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "message"),
    [("absent", "absent: no such file"), (".", ": is a directory, expected a file")],
)
def test_no_file_to_read(tmp_path: Path, table: Throughputs, name: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(tmp_path / name, table)


def test_virtual_clusters_exist_only_in_philly(tmp_path: Path, table: Throughputs) -> None:
    with pytest.raises(TraceError, match="traces have no virtual clusters, got vc='x'"):
        read_trace(write(tmp_path, ten()), table, vc="x")
    philly = write(tmp_path, PHILLY + "2017-10-09 07:01:55,5,1,5,a\n")
    with pytest.raises(TraceError, match="no row of the virtual cluster 'x'"):
        read_trace(philly, table, vc="x")


@pytest.mark.parametrize("column", ["family", "total_steps"])
def test_parquet_with_a_column_missing_or_empty(
    tmp_path: Path, table: Throughputs, column: str
) -> None:
    row = {"job": 0, "arrival_s": 0.0, "family": "LM", "scale_factor": 1, "total_steps": 5.0}
    path = tmp_path / "a.parquet"
    pl.DataFrame([row]).drop(column).write_parquet(path)
    with pytest.raises(TraceError, match=f"column '{column}' is missing"):
        read_trace(path, table)
    pl.DataFrame([row | {column: None}]).write_parquet(path)
    with pytest.raises(TraceError, match=rf":1: {column}: .*(None|must not be empty)"):
        read_trace(path, table)


@pytest.mark.parametrize("before", ["", "LM\tcmd\tdir\t-s\t1\t", OWN, "[", "# "])
def test_a_huge_line_is_never_loaded(tmp_path: Path, table: Throughputs, before: str) -> None:
    """A sparse file of 4 GB without a line end: reading it whole would take minutes and the memory."""
    path = tmp_path / "huge"
    with path.open("wb") as handle:
        handle.write(before.encode())
        handle.truncate(1 << 32)
    tracemalloc.start()
    with pytest.raises(
        TraceError,
        match="the JSON document is longer than"
        if before == "["
        else ":[12]: the line is longer than",
    ):
        read_trace(path, table)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A JSON document has to be held as a whole, up to its own limit.
    assert peak < (300 * MAX_LINE if before == "[" else 8 * MAX_LINE)


def test_usable_names_what_it_drops(tmp_path: Path, table: Throughputs) -> None:
    rows = ["0,0,LM,2,5", "1,0,ResNet,2,5", "2,0,LM,4,5", "3,0,ResNet,1,5", "4,0,LM,3,5"]
    trace = read_trace(write(tmp_path, own("\n".join(rows))), table)
    assert [a.job.id for a in usable(trace, table).arrivals] == [0, 2, 3]
    here = usable(trace, table, Cluster.of({"k80": 3}))
    assert [(a.job.id, line) for a, line in zip(here.arrivals, here.lines, strict=True)] == [(0, 2)]
    assert here.skipped[0] == Skipped(3, "no rate for ResNet at scale factor 2 on k80", JobId(1))
    assert skipped_summary(here) == [
        "1 row skipped: no rate for ResNet at scale factor 2 on k80 (line 3)",
        "1 row skipped: LM at scale factor 4 needs more devices than there are (3 k80) (line 4)",
        "1 row skipped: no rate for ResNet at scale factor 1 on k80 (line 5)",
        "1 row skipped: no rate for LM at scale factor 3 on k80 (line 6)",
    ]


def test_the_summary_counts_and_names(tmp_path: Path, table: Throughputs) -> None:
    trace = read_trace(write(tmp_path, ten(scale=3) * 7 + ten()), table)
    assert skipped_summary(usable(trace, table)) == [
        "7 rows skipped: no rate for LM at scale factor 3 (lines 1, 2, 3, 4, 5, ...)"
    ]
