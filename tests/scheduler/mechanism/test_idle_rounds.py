"""Policies that are not work-conserving: devices stand idle until a job is owed time again."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.scheduler.mechanism.stateless_planner import StatelessPlanner
from tests.small import TABLE, jct, job, run

import fairlead
from fairlead import Allocation, Cluster, RoundPlan, SimulationError, Snapshot, SolveReport
from fairlead.scheduler.journal import replay


@dataclass
class Part:
    """Every job gets this part of its time, on each type that it can use."""

    part: float
    name: str = "part"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        share = np.where(snapshot.solo_rate > 0, self.part, 0.0)
        return fairlead.allocation(snapshot, share, SolveReport("closed-form"))


def test_time_passes_until_a_job_is_owed_its_next_round() -> None:
    """Two rounds of 360 s at a tenth of the time: the second begins at 3,600 s."""
    assert jct(run([job(0, 0.0, 7_200.0)], policy=Part(0.1))) == {0: 3_960.0}


def test_an_arrival_far_away_changes_nothing_for_who_is_owed_time_before() -> None:
    result = run([job(0, 0.0, 7_200.0), job(1, 1e6, 3_600.0)], policy=Part(0.1))
    assert jct(result) == {0: 3_960.0, 1: 360.0}


def test_equal_shares_are_enough_for_all_jobs() -> None:
    jobs = [job(n, 500.0 * n, 9_000.0, 1 + n % 2) for n in range(10)]
    assert run(jobs, fast=2, slow=2, policy=Part(0.1)).metrics["n_completed"] == 10


def test_a_run_with_idle_rounds_replays(tmp_path: Path) -> None:
    cluster = Cluster.of({"fast": 1}, 1)
    result = fairlead.simulate(
        [job(0, 0.0, 7_200.0)], cluster, Part(0.1), throughputs=TABLE, out=tmp_path / "run"
    )
    assert result.metrics["n_completed"] == 1
    assert replay(tmp_path / "run" / "journal")[1] == 0


@pytest.mark.parametrize("profile", ["default", "gavel"])
def test_jobs_without_a_share_wait_for_ever(profile: str) -> None:
    message = (
        "at 0 s nothing runs, nothing is to come, and job 4 waits for ever: policy and placement "
    )
    message += "give it no devices$"
    with pytest.raises(SimulationError, match=message):
        run([job(4, 0.0, 7_200.0)], policy=Part(0.0), profile=profile)
    with pytest.raises(
        SimulationError, match=r"and 2 jobs wait for ever \(jobs 4, 5\): .* give them no"
    ):
        run([job(4, 0.0, 1.0), job(5, 0.0, 1.0)], policy=Part(0.0), profile=profile)


class EverySecondHour(StatelessPlanner):
    """A planner that leaves the cluster idle in every other hour."""

    name = "every_second_hour"

    def plan(self, snapshot: Snapshot, state: None) -> tuple[RoundPlan, None]:
        hour = int(snapshot.now_s // 3600)
        n = len(snapshot.jobs) if hour % 2 else 0
        return RoundPlan(np.arange(n), np.zeros(n, np.int64), (hour + 1) * 3600.0), None


def test_a_planner_names_the_time_when_it_is_to_be_asked_again() -> None:
    assert jct(run([job(0, 0.0, 7_200.0)], policy=EverySecondHour())) == {0: 4_320.0}
