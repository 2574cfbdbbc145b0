"""The simulated world: what costs time, what fails, and what the books then say."""

import json
from pathlib import Path

import polars as pl
import pytest
from tests.small import jct, job, run

from fairlead.errors import ConfigError, SimulationError
from fairlead.model.job import RestartCosts
from fairlead.simulator.ground_truth import GroundTruth


def test_a_job_alone_takes_its_steps_over_its_rate() -> None:
    result = run([job(0, 5.0, 12_345.0)])
    assert jct(result)[0] == pytest.approx(1_234.5)
    assert result.metrics["makespan_s"] == pytest.approx(1_239.5)
    assert result.metrics["utilization"] == pytest.approx(1.0)
    assert result.metrics["cost"] == pytest.approx(1_234.5 / 3600 * 3)


def test_the_first_start_is_free_and_each_later_one_costs() -> None:
    jobs = [job(0, 0.0, 108_000.0), job(1, 0.0, 108_000.0)]
    result = run(jobs, ground_truth=GroundTruth(RestartCosts(30.0)))
    again = result.metrics["restarts"]
    assert again > 0
    assert result.metrics["restart_lost_s"] == pytest.approx(30.0 * again)
    assert result.metrics["makespan_s"] == pytest.approx(2 * 10_800 + 30.0 * again)


def test_a_start_longer_than_a_round_goes_on_in_the_next() -> None:
    """A node fails and comes back; the restart takes several rounds of 10 s."""
    jobs = [job(0, 0.0, 40_000.0)]
    ground_truth = GroundTruth(RestartCosts(35.0), mtbf_s=2_000.0, mttr_s=50.0, seed=1)
    result = run(jobs, ground_truth=ground_truth, round_s=10.0)
    assert result.metrics["n_completed"] == 1
    assert result.metrics["restarts"] > 0
    assert result.metrics["restart_lost_s"] <= 35.0 * result.metrics["restarts"] + 1e-6


def test_a_failing_node_costs_time_but_no_job() -> None:
    jobs = [job(number, 0.0, 50_000.0) for number in range(4)]
    calm = run(jobs, fast=4)
    rough = run(jobs, fast=4, ground_truth=GroundTruth(mtbf_s=3_000.0, mttr_s=1_000.0, seed=2))
    assert rough.metrics["n_completed"] == 4
    assert rough.metrics["makespan_s"] > calm.metrics["makespan_s"]
    capacity = rough.rounds["capacity_fast"]
    assert capacity.min() < 4  # type: ignore[operator]
    assert rough.metrics["utilization"] <= 1 + 1e-9


def test_some_jobs_end_early() -> None:
    jobs = [job(number, 0.0, 1_000.0) for number in range(60)]
    result = run(jobs, fast=8, ground_truth=GroundTruth(early_termination=0.5, seed=4))
    ended = dict(result.jobs["end"].value_counts().iter_rows())
    assert ended["killed"] + ended["completed"] == 60
    assert 15 < ended["killed"] < 45
    killed = result.jobs.filter(pl.col("end") == "killed")
    assert (killed["steps_done"] < killed["total_steps"]).all()
    assert killed["jct_s"].is_null().all()


def test_noise_changes_times_and_its_seed_settles_them() -> None:
    jobs = [job(0, 0.0, 100_000.0)]
    times = [
        run(jobs, ground_truth=GroundTruth(rate_noise=0.3, seed=seed)).metrics["makespan_s"]
        for seed in (1, 1, 2)
    ]
    assert times[0] == times[1] != times[2]
    assert times[0] == pytest.approx(10_000.0, rel=0.3)


def test_bias_is_for_good() -> None:
    result = run([job(0, 0.0, 100_000.0)], ground_truth=GroundTruth(rate_bias=0.5, seed=3))
    per_round = result.rounds["seconds"]
    assert result.metrics["makespan_s"] != pytest.approx(10_000.0)
    assert per_round[:-2].to_list() == pytest.approx([360.0] * (len(per_round) - 2))


def test_until_stops_the_clock() -> None:
    result = run([job(0, 0.0, 1e9)], stop_at_s=10_000.0)
    assert result.metrics["makespan_s"] == 10_000.0
    assert result.jobs["steps_done"][0] == pytest.approx(100_000.0)
    assert result.jobs["end"][0] == "unfinished"


def test_a_slow_solver_does_not_stop_rounds() -> None:
    jobs = [job(number, 100.0 * number, 20_000.0) for number in range(6)]
    result = run(jobs, fast=2, solve_s=500.0)
    assert result.metrics["n_completed"] == 6


def test_jobs_that_can_never_run_are_named() -> None:
    with pytest.raises(ConfigError, match="no job of the trace can run on this cluster"):
        run([job(0, 0.0, 10.0, devices=4)], fast=1)


def test_jobs_that_wait_for_ever_are_an_error(tmp_path: Path) -> None:
    """The allocation gives nothing, and first in first out fills no device that is left over."""
    (tmp_path / "x.json").write_text(json.dumps({"policy_name": "FIFO_Perf", "config": {}}))
    log = tmp_path / "x.log.json"
    log.write_text(json.dumps({"allocs": [[0.0, {}, ["0"]]], "rounds": []}))
    with pytest.raises(SimulationError, match="job 0 waits for ever"):
        run([job(0, 0.0, 10.0)], policy=f"recorded:{log}")


def test_the_books_add_up() -> None:
    """Device-seconds by rounds, jobs and placement intervals; money by jobs; steps by jobs."""
    jobs = [job(n, 40.0 * n, 3_000.0 * (n % 5 + 1), devices=(1, 2, 4)[n % 3]) for n in range(30)]
    ground_truth = GroundTruth(
        RestartCosts(10.0), rate_noise=0.1, mtbf_s=20_000.0, early_termination=0.1, seed=5
    )
    result = run(jobs, fast=6, slow=8, per_server=2, ground_truth=ground_truth)
    table, rounds, intervals = result.jobs, result.rounds, result.placement_intervals
    by_rounds = float(rounds.select(pl.sum("busy_fast") + pl.sum("busy_slow")).item())
    by_jobs = float((table["run_s"] * table["scale_factor"]).sum())
    length_s = pl.col("end_s") - pl.col("start_s")
    by_intervals = float(intervals.select((length_s * pl.col("devices").list.len()).sum()).item())
    assert by_rounds == pytest.approx(by_jobs)
    assert (
        by_intervals >= by_jobs - 1e-6
    )  # a placement interval lasts on while its job waits for a round to end
    whole = rounds["capacity_fast"] * rounds["seconds"]
    assert (rounds["busy_fast"] <= whole + 1e-6).all()
    assert result.metrics["cost"] == pytest.approx(table["cost"].sum())
    done = table.filter(pl.col("end") == "completed")
    assert done["steps_done"].to_list() == pytest.approx(done["total_steps"].to_list())
    assert (done["jct_s"] >= done["run_s"] - 1e-6).all()
    assert result.metrics["preemptions"] == rounds["preempted"].sum()
