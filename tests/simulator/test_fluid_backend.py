"""The ideal without rounds: what it is worth by hand, and that short rounds come near to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.small import TABLE, jct, job, run
from typer.testing import CliRunner

from fairlead.analysis.simulate import simulate
from fairlead.cli.application import app
from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.job import RestartCosts
from fairlead.scheduler.journal import replay
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.simulation_input import SimulationInput


def test_a_job_alone_takes_its_steps_over_its_rate() -> None:
    result = run([job(0, 5.0, 12_345.0)], ideal=True)
    assert jct(result)[0] == pytest.approx(1_234.5)
    assert result.metrics["makespan_s"] == pytest.approx(1_239.5)
    assert result.metrics["utilization"] == pytest.approx(1.0)
    assert result.metrics["cost"] == pytest.approx(1_234.5 / 3600 * 3)
    assert result.metrics["rho"]["isolated"]["mean"] == pytest.approx(1.0)
    assert result.placement_intervals.is_empty()


def test_jobs_on_one_device_share_its_time() -> None:
    """Processor sharing, by hand: two for 50 s, then three until the short one ends, then two."""
    jobs = [job(0, 0.0, 1_000.0), job(1, 0.0, 1_000.0), job(2, 50.0, 400.0)]
    result = run(jobs, ideal=True)
    assert jct(result) == pytest.approx({0: 240.0, 1: 240.0, 2: 120.0})
    assert result.rounds["time_s"].to_list() == pytest.approx([0.0, 50.0, 170.0, 240.0])
    assert result.rounds["active"].to_list() == [2, 3, 2, 0]
    assert result.jobs["run_s"].to_list() == pytest.approx([100.0, 100.0, 40.0])
    assert result.jobs["served_fraction"].to_list() == pytest.approx([100 / 240, 100 / 240, 1 / 3])
    themis = [240.0 / (100.0 * (2 * 50 + 3 * 120 + 2 * 70) / 240), 120.0 / (40.0 * 3)]
    assert result.jobs["rho_themis"].to_list() == pytest.approx([themis[0], themis[0], themis[1]])
    assert result.metrics["preemptions"] == result.metrics["restarts"] == 0


def test_weights_are_shares_of_the_time() -> None:
    jobs = [job(0, 0.0, 900.0, weight=3.0), job(1, 0.0, 900.0)]
    assert jct(run(jobs, ideal=True)) == pytest.approx({0: 120.0, 1: 180.0})


@pytest.mark.parametrize("policy", ["las_aware", "finish_time_aware", "las_packed"])
def test_rounds_come_near_to_it_the_shorter_they_are(policy: str) -> None:
    rng = np.random.default_rng(5)
    jobs = [job(n, 400.0 * n, float(rng.uniform(4_000, 40_000))) for n in range(24)]
    ideal = run(jobs, fast=2, slow=2, ideal=True, policy=policy)
    apart = []
    for round_s in (360.0, 10.0):
        rounds = run(jobs, fast=2, slow=2, round_s=round_s, policy=policy)
        apart.append(abs(rounds.metrics["avg_jct_s"] / ideal.metrics["avg_jct_s"] - 1))
    assert apart[1] < 0.005
    assert apart[1] < apart[0]


def test_pairs_run_at_their_rates_beside_each_other() -> None:
    table = replace(TABLE, colocated_rate=np.full((3, 3, 2), 8.0))
    cluster = Cluster.of({"fast": 1}, 1, {"fast": 3.0})
    jobs = [job(0, 0.0, 800.0), job(1, 0.0, 1_600.0)]
    result = simulate(jobs, cluster, "las_packed", throughputs=table, ideal=True)
    assert jct(result) == pytest.approx({0: 100.0, 1: 100.0 + 800 / 10})
    assert result.metrics["utilization"] == pytest.approx(1.0)
    assert result.jobs["run_s"].to_list() == pytest.approx([100.0, 180.0])


def test_devices_that_fail_are_missed_at_once() -> None:
    """Each of two jobs has a device; while one is away they share the other."""
    jobs = [job(0, 0.0, 50_000.0), job(1, 0.0, 50_000.0)]
    result = run(
        jobs, fast=2, ideal=True, ground_truth=GroundTruth(mtbf_s=3_000.0, mttr_s=1_000.0, seed=2)
    )
    rounds = result.rounds
    assert rounds["capacity_fast"].min() < 2  # type: ignore[operator]
    assert (rounds["busy_fast"] - rounds["seconds"] * rounds["capacity_fast"]).abs().max() < 1e-6  # type: ignore[operator]
    assert rounds["busy_fast"].sum() == pytest.approx(10_000.0)


def test_time_that_is_cut_off_counts_up_to_there() -> None:
    result = run([job(0, 0.0, 1_000.0), job(1, 0.0, 100.0)], ideal=True, stop_at_s=50.0)
    assert result.metrics["makespan_s"] == pytest.approx(50.0)
    assert result.jobs["steps_done"].to_list() == pytest.approx([400.0, 100.0])
    assert result.metrics["n_unfinished"] == 1


def test_a_window_ends_the_run() -> None:
    result = run([job(n, 100.0 * n, 500.0) for n in range(20)], ideal=True, measured_jobs=(2, 5))
    assert result.metrics["n_measured"] == 3
    assert result.metrics["n_jobs"] < 20


def test_its_journal_is_replayed(tmp_path: Path) -> None:
    jobs = [job(n, 30.0 * n, 300.0 + 50 * n) for n in range(6)]
    run(jobs, fast=2, ideal=True, out=tmp_path)
    compared, left = replay(tmp_path / "journal")
    assert compared > 20
    assert left == 0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"round_s": 60.0}, "a length of rounds"),
        ({"ground_truth": GroundTruth(RestartCosts(30.0))}, "restart costs"),
        ({"ground_truth": GroundTruth(rate_noise=0.1)}, "noise or bias of rates"),
        ({"ground_truth": GroundTruth(early_termination=0.1)}, "early ends"),
        ({"solve_s": 5.0}, "a time for solves"),
        ({"policy": "fifo"}, "plans rounds itself"),
        ({"profile": "shockwave"}, "world of Shockwave's release"),
    ],
)
def test_what_is_about_rounds_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        run([job(0, 0.0, 10.0)], ideal=True, **options)


def test_jobs_that_change_their_batch_size_are_refused() -> None:
    given = SimulationInput(generate="shockwave,jobs=30,modes=0:0:1", ideal=True)
    with pytest.raises(ConfigError, match=r"job \d+: it changes its batch size"):
        given.prepare("las_aware", "default").execute()


def test_from_the_command_line(tmp_path: Path) -> None:
    given = ["simulate", "--policy", "las_aware", "--generate", "gavel,jobs=20", "--ideal"]
    done = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert pl.read_parquet(tmp_path / "run" / "placement_intervals.parquet").is_empty()
    assert "<html" in (tmp_path / "run" / "report.html").read_text()
