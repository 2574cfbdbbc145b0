"""Jobs that are spread over servers, from the table to the report."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.job_types import job_types
from tests.small import jct, job

from fairlead.analysis.simulate import simulate
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.job import RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.recording.metrics import Result

TABLE = Throughputs(
    (SlotType("fast"), SlotType("fast", Locality.SCATTERED)),
    job_types(("net", 1), ("net", 2), ("net", 4)),
    np.array([[10.0, 10.0], [18.0, 9.0], [32.0, 0.0]]),
)
UNAWARE = replace(DEFAULT, scattered=False)
START_S = 720.0  # when the job of many devices can begin


def play(devices: int, steps: float, cost_s: float = 0.0, **more: Any) -> Result:
    """Eight jobs fill two servers of four. When most of them end, those left leave no server whole, or,
    if two devices are wanted, one free on each. Then a job of so many devices begins."""
    end_early = (0, 4) if devices == 2 else (0, 1, 2, 4, 5, 6)
    jobs = [job(n, 0.0, 7200.0 if n in end_early else 720_000.0) for n in range(8)]
    jobs.append(job(8, 100.0, steps, devices))
    ground_truth = GroundTruth(RestartCosts(cost_s))
    cluster = Cluster.of({"fast": 8}, 4)
    return simulate(
        jobs, cluster, "fifo_perf", throughputs=TABLE, ground_truth=ground_truth, **more
    )


def ran_s(result: Result) -> float:
    found = jct(result)[8]
    assert found is not None
    return found + 100 - START_S


def test_a_job_moves_to_make_a_server_whole() -> None:
    for cost_s in (0.0, 60.0):
        result = play(4, 32 * 3600.0, cost_s)
        assert ran_s(result) == pytest.approx(3600)
        assert (result.metrics["moves"], result.metrics["spread_share"]) == (1, 0.0)
        assert result.metrics["restart_lost_s"] == pytest.approx(cost_s)


def test_no_job_moves_for_less_than_its_move_costs() -> None:
    """Half an hour less of two devices against two hours of one."""
    result = play(2, 18 * 1800.0, 7200.0)
    assert result.metrics["moves"] == 0
    assert ran_s(result) == pytest.approx(3600)
    assert play(2, 18 * 1800.0, 1700.0).metrics["moves"] == 1


def test_what_is_spread_is_charged_and_reported() -> None:
    """Here the scheduler knows nothing of it: the job runs at half its rate."""
    result = play(2, 18 * 1800.0, profile=UNAWARE)
    assert ran_s(result) == pytest.approx(3600)
    busy_s = float((result.jobs["run_s"] * result.jobs["scale_factor"]).sum())
    assert result.metrics["spread_share"] == pytest.approx(2 * 3600 / busy_s)


def test_a_job_that_is_put_where_it_cannot_run_fails() -> None:
    result = play(4, 32 * 3600.0, profile=UNAWARE)
    assert result.jobs["end"][8] == "dropped"


def test_moves_and_what_they_lose_are_per_hour_of_run_time() -> None:
    metrics = play(4, 32 * 3600.0, 60.0).metrics
    hours = metrics["moves"] / metrics["moves_per_job_hour"]
    assert metrics["lost_share"] == pytest.approx(60.0 / 3600 / hours)
    assert metrics["restarts_per_job_hour"] == metrics["moves_per_job_hour"]
