"""ElasticFlow's traces and rates, and what of other traces is not used."""

import json
from pathlib import Path

import polars as pl
import pytest

from fairlead.analysis.simulate import simulate
from fairlead.errors import ThroughputError, TraceError
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs
from fairlead.simulator.traces.write_trace import write_trace

ITP = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
PHILLY = (
    "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,"
    "duration,iteration\n"
)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_model_batch_size_iterations_and_deadline_are_kept(tmp_path: Path) -> None:
    text = ITP + "b,1500,70,bert,1900,64,8,300\na,1000,500,resnet50,1090,128,1,60\n"
    trace = read_trace(write(tmp_path / "a.csv", text), builtin_throughputs())
    assert trace.format == "ElasticFlow"
    assert trace.notes == ("the rows were not in order of submission: sorted",)
    assert trace.lines == (3, 2)
    assert trace.arrivals == [
        Arrival(
            0.0, Job(JobId(0), "resnet50 (batch size 128)", 1, 500.0, slo_s=90.0, duration_s=60.0)
        ),
        Arrival(
            500.0, Job(JobId(1), "bert (batch size 64)", 8, 70.0, slo_s=400.0, duration_s=300.0)
        ),
    ]


def test_the_other_spelling_names_what_is_not_used(tmp_path: Path) -> None:
    text = PHILLY + "0,0,9,vgg16,500,256,1,8,100,10\n1,5,,vgg16,3,256,1,,100,10\n"
    trace = read_trace(write(tmp_path / "a.csv", text), builtin_throughputs())
    assert [a.job.total_steps for a in trace.arrivals] == [10.0]
    assert [(one.line, one.reason) for one in trace.skipped] == [
        (3, "its deadline is not after its submission")
    ]
    assert trace.notes == (
        "not used: columns 'real_iteration' (1 value), 'real_duration' (1 value)",
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,1,5,bert,9,64,0,5", ":2: num_gpu: must be >= 1, got '0'"),
        ("a,1,0,bert,9,64,1,5", ":2: num_iteration: must be > 0, got '0'"),
        ("a,1,5,,9,64,1,5", ":2: model_name: must not be empty"),
        ("a,1,5,bert,9,6.5,1,5", ":2: batch_size: expected a whole number, got '6.5'"),
        ("a,1,5,bert,,64,1,5", ":2: deadline: expected a number, got ''"),
        ("a,1,5,bert,9,64,1,5\na,1,5,bert,9,64,1,5", ":3: job_id: appears twice, got 'a'"),
    ],
)
def test_rows_that_are_wrong(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path / "a.csv", ITP + row + "\n")
    with pytest.raises(TraceError) as problem:
        read_trace(path, builtin_throughputs())
    assert str(problem.value) == f"{path}{message}"


def test_rates_by_model_make_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "throughputs_A100"
    folder.mkdir()
    write(folder / "bert.csv", "global_batch_size,1,2\n64,5,8\n128,3,\n")
    table = read_throughputs(folder)
    assert [slot.accelerator for slot in table.slots] == ["a100"]
    assert dict(zip(table.job_types, table.rate[:, 0].tolist(), strict=True)) == {
        JobType("bert", 64, 1): 5.0,
        JobType("bert", 64, 2): 8.0,
        JobType("bert", 128, 1): 3.0,
        JobType("bert", 128, 2): 0.0,
    }
    path = write(
        tmp_path / "a.csv", ITP + "a,0,500,bert,9000,64,2,60\nb,5,500,bert,9000,128,2,60\n"
    )
    result = simulate(path, "a100=2", "las", throughputs=folder)
    assert result.metrics["n_completed"] == 1
    assert any(
        "no rate for bert (batch size 128) at scale factor 2" in one for one in result.skipped
    )


def test_rates_that_are_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "throughputs_A100"
    folder.mkdir()
    with pytest.raises(ThroughputError, match="is a folder without CSV files"):
        read_throughputs(folder)
    for text, message in (
        ("batch,1\n", "column 'global_batch_size' is missing"),
        ("global_batch_size,x\n", "devices: expected a whole number, got 'x'"),
        ("global_batch_size,1\n64,nan\n", "rate on 1: expected a finite number"),
        ("global_batch_size,1\n64,1\n64,2\n", "global_batch_size: 64 appears twice"),
    ):
        write(folder / "bert.csv", text)
        with pytest.raises(ThroughputError, match=message):
            read_throughputs(folder)


def test_columns_that_no_reader_uses_are_named(tmp_path: Path) -> None:
    table = builtin_throughputs()
    seven = "A3C\tpython x\t-s\t0\t500\t0\t1\nA3C\t\t-s\t1\t500\t0\t1\n"
    assert read_trace(write(tmp_path / "seven", seven), table).notes == (
        "not used: columns 'command' (1 value), 'num_steps_arg' (2 values), 'needs_data_dir' (1 value)",
    )
    philly = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n"
    assert read_trace(write(tmp_path / "p", philly), table).notes == (
        "not used: column 'gpu_time' (1 value)",
    )
    one = {
        "id": 1,
        "arrival": 0,
        "job_type": "A3C",
        "scale_factor": 1,
        "total_steps": 5,
        "duration": 9,
    }
    jobs = json.dumps([one, one | {"id": 2, "command": "x"}])
    assert read_trace(write(tmp_path / "j", jobs), table).notes == (
        "not used: column 'command' (1 value)",
    )
    own = "job,arrival_s,family,scale_factor,total_steps,weight,colour\n0,0,A3C,1,5,,red\n1,0,A3C,1,5,,\n"
    trace = read_trace(write(tmp_path / "own", own), table)
    assert trace.notes == ("not used: column 'colour' (1 value)",)
    write_trace(trace, tmp_path / "a.parquet")
    frame = pl.read_parquet(tmp_path / "a.parquet").with_columns(size=pl.Series([None, 3]))
    frame.write_parquet(tmp_path / "b.parquet")
    assert read_trace(tmp_path / "a.parquet", table).notes == ()
    assert read_trace(tmp_path / "b.parquet", table).notes == ("not used: column 'size' (1 value)",)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("ms_itp/elasticflow/cluster01.csv.gz", 1595),
        ("ms_itp/elasticflow/cluster05.csv.gz", 3629),
        ("elasticflow/philly_103959.csv", 876),
    ],
)
def test_the_published_files(shared: Path, name: str, jobs: int) -> None:
    table = read_throughputs(shared / "data" / "elasticflow" / "throughputs_A100")
    trace = read_trace(shared / "data" / name, table)
    assert trace.format.startswith("ElasticFlow")
    assert len(trace.arrivals) == jobs
    assert all(a.job.slo_s and a.job.duration_s for a in trace.arrivals)
    models = {a.job.family.partition(" (")[0] for a in trace.arrivals}
    assert models == {"bert", "deepspeech2", "gpt2", "inception3", "resnet50", "vgg16"}
