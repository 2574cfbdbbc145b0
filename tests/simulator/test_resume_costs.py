"""Starts that cost less on the servers where a job ran last, and rounds as short as switching allows."""

from pathlib import Path

import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.analysis.simulate import simulate
from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.journal import setup_of
from fairlead.scheduler.mechanism.round_length import shortest_round_s
from fairlead.simulator.ground_truth import GroundTruth

RATES = Throughputs((SlotType("x"),), job_types(("net", 1), ("big", 1)), np.array([[1.0], [1.0]]))
ONE = Cluster.of({"x": 4}, 4)


def jobs(count: int, steps: float = 3600.0) -> list[Arrival]:
    return [Arrival(0.0, Job(JobId(i), "net", 1, steps)) for i in range(count)]


def lost_s(
    cluster: Cluster, resume: RestartCosts | None, policy: str = "gandiva", n: int = 6
) -> float:
    """Seconds that starts have cost."""
    made = simulate(
        jobs(n),
        cluster,
        policy,
        throughputs=RATES,
        round_s=60.0,
        preemption_hysteresis=0.0,
        ground_truth=GroundTruth(restart_costs=RestartCosts(30.0), resume_costs=resume),
    )
    return float(made.metrics["restart_lost_s"])


def test_turns_on_one_server_cost_what_resuming_costs() -> None:
    restarts = lost_s(ONE, None)
    assert restarts > 0
    assert lost_s(ONE, RestartCosts(30.0)) == restarts
    resumed = lost_s(ONE, RestartCosts(0.3))
    assert 0 < resumed < 0.02 * restarts
    assert lost_s(ONE, RestartCosts(0.3, {"net": 0.0})) == 0.0


def test_a_start_on_another_server_costs_a_restart() -> None:
    """On servers of one device, five jobs that take turns on two under LAS change servers."""
    apart = Cluster.of({"x": 2})
    cheap = lost_s(apart, RestartCosts(0.0), "las", 5)
    assert 0 < cheap <= lost_s(apart, None, "las", 5)


def test_nothing_is_left_to_resume_from_on_a_node_that_failed() -> None:
    truth = GroundTruth(
        restart_costs=RestartCosts(30.0),
        resume_costs=RestartCosts(0.0),
        mtbf_s=1500.0,
        mttr_s=60.0,
        seed=3,
    )
    made = simulate(jobs(6), ONE, "gandiva", throughputs=RATES, round_s=60.0, ground_truth=truth)
    assert made.metrics["restart_lost_s"] >= 30.0


def test_the_setup_of_the_journal_has_them(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    truth = GroundTruth(resume_costs=RestartCosts(2.0, {"net": 1.0}))
    simulate(jobs(2), ONE, "las", throughputs=RATES, ground_truth=truth, out=out)
    assert setup_of(out / "journal").resume_costs == RestartCosts(2.0, {"net": 1.0})


def test_a_family_that_is_not_there_is_named() -> None:
    truth = GroundTruth(resume_costs=RestartCosts(0.0, {"nett": 1.0}))
    with pytest.raises(ConfigError, match="'nett' is not in the throughput table"):
        simulate(jobs(2), ONE, "las", throughputs=RATES, ground_truth=truth)


@pytest.mark.parametrize(
    ("switch_s", "round_s"), [(0.0, 10.0), (0.1, 10.0), (0.2, 10.0), (0.21, 11.0), (5.0, 250.0)]
)
def test_the_shortest_round_loses_at_most_two_percent(switch_s: float, round_s: float) -> None:
    assert shortest_round_s(switch_s) == round_s


def test_the_round_follows_the_costs_of_the_jobs() -> None:
    def chosen(truth: GroundTruth) -> float:
        made = simulate(
            jobs(6), ONE, "gandiva", throughputs=RATES, round_s="auto", ground_truth=truth
        )
        return float(made.config["round_s"])

    assert chosen(GroundTruth()) == 10.0
    assert chosen(GroundTruth(RestartCosts(3.0))) == 150.0
    assert chosen(GroundTruth(RestartCosts(3.0), resume_costs=RestartCosts(0.5))) == 25.0
    assert chosen(GroundTruth(RestartCosts(3.0, {"net": 1.0, "big": 9.0}))) == 50.0


def test_switching_in_rounds_of_this_length_loses_at_most_two_percent() -> None:
    truth = GroundTruth(restart_costs=RestartCosts(2.0))
    made = simulate(
        jobs(6, 20_000.0), ONE, "gandiva", throughputs=RATES, round_s="auto", ground_truth=truth
    )
    assert 0 < made.metrics["restart_lost_s"] <= 0.02 * 6 * 20_000
