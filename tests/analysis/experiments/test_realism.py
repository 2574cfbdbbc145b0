"""Real traces on today's accelerators: what is made of a trace, and what is told of the runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.analysis.experiments.made_up import (
    MadeUpContext,
    complete,
    rows_of,
)

from fairlead.analysis.experiments.findings import Findings
from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.experiments.published import real_traces as realism
from fairlead.errors import ConfigError
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.job_type import JobType
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import read_throughputs

CLUSTER = parse_cluster(realism.PHILLY.cluster, realism.PER_SERVER)
RATES = realism.todays(read_throughputs("builtin"), CLUSTER)


def plain(number: int, time_s: float, devices: int = 1, tenant: str = "a") -> Arrival:
    return Arrival(time_s, Job(JobId(number), "", devices, 1.0, tenant=tenant, duration_s=600.0))


def test_families_run_on_two_of_the_types_at_least() -> None:
    assert ((RATES.rate > 0).sum(axis=1) >= 2).all()
    assert {1, 2, 4, 8, 16, 32} <= {one.scale_factor for one in RATES.job_types}
    assert "A3C" not in RATES.families


def test_jobs_of_a_sweep_are_of_one_family_and_take_their_duration_on_the_mean_device() -> None:
    jobs = [plain(n, 30.0 * n) for n in range(8)]
    jobs += [plain(8 + n, 30.0 * n, tenant=f"t{n}") for n in range(40)]
    made = realism.with_families(jobs, RATES, CLUSTER.capacity)
    assert len({one.job.family for one in made[:8]}) == 1
    assert len({one.job.family for one in made[8:]}) > 5
    for one in made:
        row = RATES.row(JobType.parse(one.job.family, 1))
        assert row is not None
        rate, runs = RATES.rate[row], RATES.rate[row] > 0
        mean = (rate * CLUSTER.capacity).sum() / CLUSTER.capacity[runs].sum()
        assert one.job.total_steps == pytest.approx(600.0 * mean)


def test_without_the_traces_small_scale_generates_and_paper_scale_says_what_is_missing(
    tmp_path: Path,
) -> None:
    context = MadeUpContext(complete, folder=tmp_path)
    given, message = realism.prepared(context, realism.PHILLY)
    assert "generated" in message[0]
    jobs = read_trace(given.trace or "", RATES)
    assert len(jobs.arrivals) == 3_000
    assert given.prepare("las_aware", "default").jobs.n == 3_000  # all can run
    with pytest.raises(ConfigError, match="philly_jobs"):
        realism.prepared(replace(context, scale="paper"), realism.PHILLY)


def test_the_tables_say_who_wins(tmp_path: Path) -> None:
    """Runs of a few of the jobs; one does not end."""

    def of(point: Point) -> PointResult:
        if point.policy == "makespan_aware":
            return PointResult(point, Status.TIMED_OUT, {}, "it took too long")
        short = replace(point.input, stop_at_s=40_000.0)
        result = short.prepare(point.policy, point.profile).execute(keep_intervals=False)
        file = tmp_path / f"{point.policy}.parquet"
        result.jobs.write_parquet(file)
        assert result.placement_intervals.is_empty()
        return PointResult(point, Status.COMPLETE, result.metrics, seconds=2.0, jobs=str(file))

    context = MadeUpContext(of, folder=tmp_path)
    found: Findings = realism.realism(context)
    rows = rows_of(found, "Philly: policies")
    assert [point.policy for point in context.asked] == list(realism.POLICIES)
    assert rows["makespan"].ours is None
    assert rows["makespan"].remark == "it took too long"
    jct = {w: rows[f"{w}: average JCT"].ours for w in ("LAS", "FIFO")}
    jobs = pl.read_parquet(tmp_path / "fifo.parquet").filter(pl.col("end") == "completed")
    assert jct["FIFO"] == pytest.approx(float(jobs["jct_s"].to_numpy().mean()) / 3600)
    sizes = rows_of(found, "Philly: average JCT by size")
    single = jobs.filter(pl.col("scale_factor") == 1)["jct_s"].to_numpy()
    assert sizes["FIFO: 1 device"].ours == pytest.approx(float(single.mean()) / 3600)
    gains = [row.ours for what, row in rows.items() if what.startswith("average JCT,")]
    assert len(gains) == len(realism.POLICIES) - 2
    assert min(gain for gain in gains if gain is not None) >= 1.0
    chart = found.charts[0]
    assert all(np.diff(one.x).min() >= 0 and one.y[-1] == 1.0 for one in chart.series)
    assert isinstance(context.asked[0].input, SimulationInput)


@pytest.mark.shared
def test_the_traces_are_read_whole(shared: Path) -> None:
    class There(MadeUpContext):
        def shared(self, name: str) -> Path:
            return shared / "data" / name

    context = There(complete)
    jobs, _ = realism._read(context, realism.ITP, RATES)
    assert len(jobs) > 39_000
    assert jobs[0].time_s == 0.0
    assert [one.job.id for one in jobs] == list(range(len(jobs)))
    assert {one.job.tenant for one in jobs} >= {"cluster01", "cluster10"}
