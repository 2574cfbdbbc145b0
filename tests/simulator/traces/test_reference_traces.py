"""The released traces of Gavel and Shockwave, whole."""

import gzip
import json
import time
from pathlib import Path

import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import builtin_throughputs, read_throughputs
from fairlead.simulator.traces.trace import skipped_summary, usable

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def gavel(shared: Path) -> Throughputs:
    return read_throughputs(shared / "data/gavel/simulation_throughputs.json")


def test_every_physical_cluster_trace(shared: Path, gavel: Throughputs) -> None:
    for path in sorted((shared / "data/gavel/traces/physical_cluster").glob("*.trace")):
        trace = read_trace(path, gavel)
        lines = path.read_text().splitlines()
        assert trace.format == "Gavel, 10 columns"
        assert [a.job.id for a in trace.arrivals] == list(range(len(lines)))
        for arrival, line in zip(trace.arrivals, lines, strict=True):
            cells = line.split("\t")
            assert (arrival.job.family, arrival.time_s) == (cells[0], float(cells[9]))
            assert arrival.job.total_steps == int(cells[5])
            assert arrival.job.slo_s is None


def test_every_philly_trace_of_gavel(shared: Path, gavel: Throughputs) -> None:
    """Some rows have no rate (CycleGAN on 4 devices): they are named, not lost."""
    cluster = Cluster.of({"v100": 36, "p100": 36, "k80": 36})
    for path in sorted((shared / "data/gavel/traces/msr").glob("*/*.trace")):
        lines = path.read_text().count("\n")
        trace = read_trace(path, gavel)
        assert (trace.format, len(trace.arrivals)) == ("Gavel, 7 columns", lines)
        kept = usable(trace, gavel, cluster)
        assert len(kept.arrivals) + len(kept.skipped) == lines
        assert all(a.job.id == line - 1 for a, line in zip(kept.arrivals, kept.lines, strict=True))


def test_the_rows_of_one_philly_trace_that_have_no_rate(shared: Path, gavel: Throughputs) -> None:
    trace = read_trace(shared / "data/gavel/traces/msr/seed=0/103959.trace", gavel)
    summary = skipped_summary(usable(trace, gavel))
    assert sum(int(line.split()[0]) for line in summary) == 125
    assert (
        "12 rows skipped: no rate for CycleGAN at scale factor 4 (lines 101, 131, 144, 169, 465, ...)"
        in summary
    )


def test_every_shockwave_trace(shared: Path) -> None:
    table = read_throughputs(shared / "data/shockwave/tacc_throughputs.json")
    for path in sorted((shared / "data/shockwave/traces").glob("*.trace")):
        trace = read_trace(path, table)
        assert trace.format == "Shockwave, 12 columns"
        assert len(trace.arrivals) == int(path.name.split("_")[0])
        assert all(a.job.duration_s and a.job.duration_s >= 600 for a in trace.arrivals)
        assert not usable(trace, table).skipped


def test_generated_jobs(shared: Path, gavel: Throughputs) -> None:
    path = shared / "golden/gavel/continuous"
    path /= "multiprio_slo_gps4__fifo_perf__12-12-12__lam6000__s0.jobs.json.gz"
    trace = read_trace(path, gavel)
    rows = json.loads(gzip.decompress(path.read_bytes()))
    assert trace.format == "Gavel, generated jobs"
    for arrival, row in zip(trace.arrivals, rows, strict=True):
        job = arrival.job
        assert (job.id, arrival.time_s) == (row["id"], row["arrival"])
        assert (job.family, job.scale_factor) == (row["job_type"], row["scale_factor"])
        assert (job.total_steps, job.weight) == (row["total_steps"], row["priority"])
        assert job.slo_s == row["SLO"] * row["duration"]


def test_every_itp_trace(shared: Path) -> None:
    for path in sorted((shared / "data/ms_itp").glob("*/*.csv.gz")):
        rows = gzip.decompress(path.read_bytes()).decode().count("\n") - 1
        trace = read_trace(path, builtin_throughputs())
        name = "ElasticFlow" if path.parent.name == "elasticflow" else "ITP"
        assert (trace.format, len(trace.arrivals)) == (name, rows)
        assert trace.arrivals[0].time_s == 0.0
        assert max(arrival.job.scale_factor for arrival in trace.arrivals) >= 8


def test_a_hundred_thousand_lines_read_in_about_a_second(
    shared: Path, gavel: Throughputs, tmp_path: Path
) -> None:
    source = shared / "data/gavel/traces/physical_cluster/artifact_evaluation.trace"
    line = source.read_text().splitlines()[0] + "\n"
    path = tmp_path / "long.trace"
    path.write_text(line * 100_000)
    start = time.process_time()
    assert len(read_trace(path, gavel).arrivals) == 100_000
    assert time.process_time() - start < 15.0  # 0.4 s on an idle core
