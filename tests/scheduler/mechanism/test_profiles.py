"""What the default profile mends, each beside what Gavel's does."""

from dataclasses import replace

import pytest
from tests.small import jct, job, run

from fairlead.model.job import RestartCosts
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.simulator.ground_truth import GroundTruth


def test_idle_gaps_are_not_charged() -> None:
    """Gavel charges the idle time before a round to the jobs in it."""
    jobs = [job(0, 0.0, 100.0), job(1, 36_000.0, 100.0)]
    default, gavel = (run(jobs, profile=name) for name in ("default", "gavel"))
    assert default.metrics["cost"] == pytest.approx(2 * 10 / 3600 * 3)
    assert gavel.metrics["cost"] == pytest.approx((10 + 36_000) / 3600 * 3)
    assert gavel.metrics["utilization"] == default.metrics["utilization"] < 0.001
    assert gavel.metrics["gavel_utilization"] == pytest.approx(1.0)


def test_a_job_never_waits_on_an_idle_cluster() -> None:
    """In Gavel's simulator it waits for the next arrival."""
    jobs = [job(0, 0.0, 1670.0), job(1, 1_000.0, 1670.0), job(2, 50_000.0, 10.0)]
    default, gavel = (jct(run(jobs, profile=name)) for name in ("default", "gavel"))
    assert default[1] == pytest.approx(167.0)
    assert gavel[1] == pytest.approx(49_000.0 + 167.0)


def test_devices_are_not_kept_for_jobs_that_may_not_start() -> None:
    """In Gavel's, a job that came after the last solve is chosen, and then not placed."""
    jobs = [job(0, 0.0, 36_000.0), job(1, 100.0, 3_600.0), job(2, 700.0, 3_600.0)]
    default, gavel = (run(jobs, fast=2, profile=name) for name in ("default", "gavel"))
    waited = {name: r.jobs["start_s"][2] for name, r in (("default", default), ("gavel", gavel))}
    assert waited == {"default": 720.0, "gavel": pytest.approx(2160.0, abs=400)}


def test_a_job_with_fewer_steps_left_than_devices_finishes() -> None:
    """Gavel drops it after five rounds without a step."""
    jobs = [job(0, 0.0, 3.0, devices=4)]
    default, gavel = (run(jobs, fast=4, profile=name) for name in ("default", "gavel"))
    assert jct(default)[0] == pytest.approx(3 / 32)
    assert jct(gavel)[0] is None
    assert gavel.jobs["end"][0] == "dropped"


def test_a_slow_job_gets_on_in_short_rounds() -> None:
    """A step that takes longer than a round is lost in Gavel's integers."""
    jobs = [job(0, 0.0, 3.0)]
    slow = run(jobs, fast=1, round_s=10.0, profile="default")
    assert jct(slow)[0] == pytest.approx(0.3)


def test_shares_are_realised_to_a_round() -> None:
    """Three jobs on two devices: after any number of rounds nobody is ahead by more than one."""
    jobs = [job(number, 0.0, 200_000.0) for number in range(3)]
    result = run(jobs, fast=2, stop_at_s=360.0 * 30)
    ran = result.jobs["run_s"].to_list()
    assert max(ran) - min(ran) <= 360.0 + 1e-6


def test_a_start_that_costs_is_made_less_often() -> None:
    jobs = [job(number, 0.0, 50_000.0) for number in range(3)]
    free = run(jobs, fast=2)
    dear = run(jobs, fast=2, ground_truth=GroundTruth(RestartCosts(60.0)))
    assert dear.metrics["restarts"] < free.metrics["restarts"] / 2
    assert dear.metrics["restart_lost_s"] == pytest.approx(60.0 * dear.metrics["restarts"])


def test_a_job_does_not_wait_for_its_first_start() -> None:
    """However much a start costs, a newcomer is served as soon as it is owed more than one that runs."""
    jobs = [job(0, 0.0, 200_000.0), job(1, 0.0, 200_000.0), job(2, 7000.0, 3000.0)]
    result = run(jobs, fast=2, ground_truth=GroundTruth(RestartCosts(300.0)))
    assert result.jobs["start_s"][2] <= 7200.0 + 360.0
    assert result.jobs["restarts"][2] == 0


def test_a_job_that_is_nearly_done_is_left_to_finish() -> None:
    """It would be done before its restart was worth while."""
    jobs = [job(0, 0.0, 30_000.0), job(1, 360.0, 30_000.0)]
    stays = run(jobs, fast=1, ground_truth=GroundTruth(RestartCosts(80.0)))
    assert stays.metrics["restarts"] == 0
    assert run(jobs, fast=1).metrics["restarts"] > 5


def test_a_job_is_not_promised_devices_that_there_are_not() -> None:
    """A job of four devices gets nothing on a type that has two."""
    jobs = [job(0, 0.0, 32_000.0, devices=4), job(1, 0.0, 10_000.0)]
    result = run(jobs, fast=2, slow=4)
    assert jct(result)[0] == pytest.approx(2_000.0)


def test_deadlines_are_kept_in_whole_rounds() -> None:
    """Just enough of the dear type to be in time would be a part of a round too little."""
    jobs = [
        job(number, 100.0 * number, 20_000.0, slo_s=2_500.0 + 300.0 * number) for number in range(3)
    ]
    late = {}
    for early in (0.0, 1.0):
        profile = replace(DEFAULT, deadline_margin_rounds=early)
        result = run(jobs, 3, 3, policy="throughput_per_cost_slo", profile=profile)
        late[early] = result.metrics["slo_violations"]
    assert late[1.0] == 0 < late[0.0]
