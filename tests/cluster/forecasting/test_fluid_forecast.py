"""Forecasts without rounds: near the exact ones, in a fraction of their time."""

import time
from dataclasses import replace

import numpy as np
import pytest
from tests.cluster.forecasting.test_forecast import (
    jobs,
    middle,
    setup,
)
from tests.small import job as arrival

from fairlead.cluster.forecasting.fluid_forecast import FluidJobs, finish_times
from fairlead.cluster.forecasting.forecast import ForecastQuery, forecast
from fairlead.model.cluster import Cluster


def fluid(left: list[float], scale: list[int] | None = None, running: int = 0) -> FluidJobs:
    """Jobs of rate 1 on one type."""
    n = len(left)
    return FluidJobs(
        job=np.arange(n),
        left=np.array(left),
        rate=np.ones((n, 1)),
        scale=np.array(scale or [1] * n),
        weight=np.ones(n),
        share=np.zeros((n, 1)),
        running_on=np.where(np.arange(n) < running, 0, -1),
        arrive_s=np.zeros(n),
        kept_s=np.zeros(n),
    )


def test_jobs_that_share_a_device_take_turns() -> None:
    times = finish_times(fluid([10.0, 20.0]), np.array([1.0]), "las_aware", 1e6)
    assert times.tolist() == pytest.approx([20.0, 30.0], rel=1e-6)
    alone = finish_times(fluid([10.0, 20.0]), np.array([2.0]), "las_aware", 1e6)
    assert alone.tolist() == pytest.approx([10.0, 20.0], rel=1e-6)


def test_no_type_has_more_than_its_devices() -> None:
    """Two jobs that can run on one device alone share it, however many others there are."""
    three = replace(fluid([10.0, 20.0, 20.0]), rate=np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
    for share in (np.zeros((3, 2)), np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]])):
        ends = finish_times(replace(three, share=share), np.array([1.0, 8.0]), "las_aware", 1e6)
        assert ends.tolist() == pytest.approx([20.0, 30.0, 20.0], rel=0.02)


def test_jobs_in_order_follow_each_other() -> None:
    times = finish_times(fluid([10.0, 20.0, 5.0]), np.array([1.0]), "fifo", 1e6)
    assert times.tolist() == [10.0, 30.0, 35.0]
    shortest = finish_times(fluid([10.0, 20.0, 5.0]), np.array([1.0]), "srtf", 1e6)
    assert shortest.tolist() == [15.0, 35.0, 5.0]
    wide = finish_times(fluid([10.0, 20.0, 5.0], [1, 2, 1]), np.array([2.0]), "fifo", 1e6)
    assert wide.tolist() == [10.0, 30.0, 35.0]


@pytest.mark.parametrize("policy", ["las_aware", "srtf"])
def test_who_runs_and_ends_within_the_round_is_not_disturbed(policy: str) -> None:
    """Of a job of a minute that ran, an end after eleven minutes was told, because others waited."""
    crowd = fluid([60.0, 400.0, *[50.0] * 8], running=2)
    times = finish_times(crowd, np.array([2.0]), policy, 1e6, 100.0)
    assert times[0] == 60.0
    assert times[1] > 400.0 or policy == "srtf"
    assert finish_times(crowd, np.array([2.0]), "las_aware", 1e6, 59.0)[0] > 60.0


def test_what_cannot_run_or_lies_beyond_the_horizon_has_no_end() -> None:
    three = fluid([10.0, 20.0, 5.0], [1, 3, 1])
    for policy in ("las_aware", "fifo"):
        no_rate = finish_times(three, np.array([0.0]), policy, 1e6)
        assert np.isinf(no_rate).all()
    assert finish_times(fluid([10.0, 99.0]), np.array([2.0]), "las", 50.0).tolist() == [
        10.0,
        np.inf,
    ]


@pytest.mark.parametrize("policy", ["las_aware", "fifo_aware", "srtf", "finish_time_aware"])
def test_a_coarse_forecast_is_near_the_exact_one(policy: str) -> None:
    state, ends = middle(setup(policy), jobs(40), 20)
    (coarse,) = forecast(setup(policy), state, ForecastQuery(cpu_s=0.0))
    assert coarse.coarse
    assert coarse.exact_s == 0.0
    assert set(coarse.finish_s) == set(ends)
    truth = {job: end_s - state.time_s for job, end_s in ends.items()}
    errors = [abs(coarse.finish_s[job] - truth[job]) / truth[job] for job in ends]
    assert np.median(errors) < 0.25
    assert coarse.makespan_s == pytest.approx(max(truth.values()), rel=0.25)


def test_what_was_simulated_in_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is CPU time: here every look at its clock costs a second of it."""
    state, ends = middle(setup(), jobs(40), 20)
    (exact,) = forecast(setup(), state)
    spent = iter(range(10_000))
    monkeypatch.setattr(time, "process_time", lambda: float(next(spent)))
    (cut,) = forecast(setup(), state, ForecastQuery(cpu_s=60.0))
    assert 0 < cut.exact_s < exact.makespan_s
    assert set(cut.finish_s) == set(ends)
    early = [job for job, end_s in exact.finish_s.items() if end_s < cut.exact_s]
    assert early
    for job in early:
        assert cut.finish_s[job] == pytest.approx(exact.finish_s[job])


@pytest.mark.parametrize("policy", ["las", "las_aware", "finish_time_aware"])
@pytest.mark.parametrize(("steps", "error"), [(1_000.0, 0.05), (10_000.0, 0.05), (100_000.0, 0.3)])
def test_jobs_that_keep_their_devices_are_not_forecast_to_take_turns(
    policy: str, steps: float, error: float
) -> None:
    """A start counts for 800 s. Of a job of 100 or 1,000 s on one of two devices, an end after four times the
    time was told; only jobs of 10,000 s take turns."""
    asked = setup(policy, Cluster.of({"fast": 2}, 2))
    state, _ = middle(asked, [arrival(i, 0.0, steps) for i in range(8)], 1)
    (exact,) = forecast(asked, state)
    (coarse,) = forecast(asked, state, ForecastQuery(cpu_s=0.0))
    assert set(coarse.finish_s) == set(exact.finish_s) == set(range(8))
    errors = [abs(coarse.finish_s[i] / exact.finish_s[i] - 1) for i in range(8)]
    assert np.median(errors) < error
    assert coarse.mean_left_s == pytest.approx(exact.mean_left_s, rel=error)


def test_ten_thousand_jobs_take_no_time() -> None:
    rng = np.random.default_rng(0)
    many = fluid(rng.uniform(1e3, 1e5, 20_000).tolist(), running=8_000)
    began = time.process_time()
    for policy in ("las_aware", "fifo"):
        assert np.isfinite(finish_times(many, np.array([8_000.0]), policy, 1e9)).all()
    assert time.process_time() - began < 30.0  # CPU time, not the clock: 0.6 s on two slow cores
