"""The profile ``shockwave`` and its baselines against runs of Shockwave's released simulator.

gandiva_fair and allox have one answer: the policies themselves give the same run. The other baselines are
linear programs with many optima (least attained service where devices are left over, total throughput and
makespan always, finish-time fairness), and the reference's are those at which its solver happened to stop.
There the world is driven with the recorded rounds, and the policies are compared in the mean.
"""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairlead.analysis.simulate import simulate
from fairlead.model.commands import StartRound
from fairlead.scheduler.journal import decode, records
from fairlead.scheduler.mechanism.settings import SHOCKWAVE
from fairlead.simulator.recording.metrics import Result

pytestmark = pytest.mark.shared
BASELINES = (
    "allox",
    "finish_time_fairness",
    "gandiva_fair",
    "max_min_fairness",
    "max_sum_throughput_perf",
    "min_total_duration",
)
ONE_ANSWER = ("allox", "gandiva_fair")


@dataclass(frozen=True)
class Runs:
    """Reference runs: where they are, and of what."""

    folder: str
    prefix: str
    trace: str
    rates: str
    devices: int
    profile: Any = SHOCKWAVE

    def file(self, shared: Path, policy: str) -> Path:
        return shared / f"golden/shockwave/{self.folder}/{self.prefix}{policy}_simulation.json"

    def play(self, shared: Path, policy: str, **more: Any) -> Result:
        data = shared / "data/shockwave"
        (trace,) = (data / "traces").glob(f"{self.trace}*")
        return simulate(
            trace,
            f"v100={self.devices}",
            policy,
            throughputs=data / f"{self.rates}_throughputs.json",
            profile=self.profile,
            **more,
        )


OURS_32 = Runs("ours32", "n32__", "120_", "tacc", 32)
OURS_64 = Runs("ours64", "n64__", "220_", "wisr", 64)
AT_ONCE_32 = Runs(
    "mint0_32", "n32_mint0__", "120_", "tacc", 32, replace(SHOCKWAVE, solve_interval_s=0.0)
)


def rounds_of(folder: Path) -> list[dict[str, list[int]]]:
    """{job: device ids} of each round that a run journalled."""
    found = []
    for start in map(decode, records(folder / "journal")):
        if isinstance(start, StartRound):
            ends = start.offsets[1:-1]
            devices = [part.tolist() for part in _split(start.devices, ends)]
            jobs = map(str, start.job_groups[:, 0].tolist())
            found.append(dict(zip(jobs, devices, strict=True)) if len(start.job_groups) else {})
    return found


def _split(devices: Any, ends: Any) -> list[Any]:
    edges = [0, *ends.tolist(), len(devices)]
    return [devices[a:b] for a, b in pairwise(edges)]


def compare(result: Result, folder: Path, expected: dict[str, Any]) -> None:
    """Every JCT and rho, every round's jobs and their devices, and the metrics."""
    mine = {row["job"]: row for row in result.jobs.iter_rows(named=True)}
    for job in expected["jobs"]:
        row = mine[job["id"]]
        assert row["jct_s"] == pytest.approx(job["jct"], rel=1e-12)
        assert round(row["rho_static"], 5) == job["rho"]
        assert round(row["rho_themis"], 5) == job["rho_themis"]
    rounds = rounds_of(folder)
    assert rounds.pop() == {}  # the release ends without looking for jobs once more
    assert rounds == expected["per_round_schedule"]
    metrics, static = result.metrics, result.metrics["rho"]["static"]
    assert metrics["makespan_s"] == pytest.approx(expected["makespan"], rel=1e-12)
    assert metrics["avg_jct_s"] == pytest.approx(expected["avg_jct"], rel=1e-12)
    assert round(static["max"], 5) == expected["worst_rho"]
    assert static["unfair_1"] == pytest.approx(expected["unfair_gt1"])
    assert static["unfair_1_05"] == pytest.approx(expected["unfair_gt105"])
    assert static["unfair_1_1"] == pytest.approx(expected["unfair_gt11"])
    assert round(metrics["rho"]["themis"]["max"], 5) == expected["worst_rho_themis"]
    assert metrics["gavel_utilization"] == pytest.approx(expected["cluster_util"], abs=1e-5)
    assert metrics["envy"]["max"] == pytest.approx(expected["envy_max"], rel=1e-12)


@pytest.mark.parametrize("policy", BASELINES)
@pytest.mark.parametrize("runs", [OURS_32, OURS_64, AT_ONCE_32], ids=lambda runs: runs.folder)
def test_recorded_rounds_give_the_same_run(
    runs: Runs, policy: str, shared: Path, tmp_path: Path
) -> None:
    file = runs.file(shared, policy)
    result = runs.play(shared, f"recorded:{file}", out=tmp_path)
    compare(result, tmp_path, json.loads(file.read_text()))


@pytest.mark.parametrize("policy", ONE_ANSWER)
@pytest.mark.parametrize("runs", [OURS_32, OURS_64, AT_ONCE_32], ids=lambda runs: runs.folder)
def test_policies_with_one_answer_give_the_same_run(
    runs: Runs, policy: str, shared: Path, tmp_path: Path
) -> None:
    result = runs.play(shared, policy, out=tmp_path)
    compare(result, tmp_path, json.loads(runs.file(shared, policy).read_text()))


def test_the_authors_own_runs_are_the_same_too(shared: Path, tmp_path: Path) -> None:
    """Shockwave's planner included: recorded rounds need no policy."""
    file = shared / "golden/shockwave/shockwave_runs/n32_highs__shockwave_simulation.json"
    result = OURS_32.play(shared, f"recorded:{file}", out=tmp_path)
    compare(result, tmp_path, json.loads(file.read_text()))


def test_least_attained_service_is_the_same_while_its_answer_is_unique(
    shared: Path, tmp_path: Path
) -> None:
    """On 32 devices up to round 167, when 17 jobs are left and some of them could have more or less."""
    expected = json.loads(OURS_32.file(shared, "max_min_fairness").read_text())
    result = OURS_32.play(shared, "las", out=tmp_path)
    mine = [set(jobs) for jobs in rounds_of(tmp_path)]
    theirs = [set(jobs) for jobs in expected["per_round_schedule"]]
    assert mine[:167] == theirs[:167]
    assert result.metrics["makespan_s"] == pytest.approx(expected["makespan"], rel=1e-12)
    assert result.metrics["avg_jct_s"] == pytest.approx(expected["avg_jct"], rel=1e-9)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("las", "max_min_fairness"),
        ("mst", "max_sum_throughput_perf"),
        ("ossp", "min_total_duration"),
        ("themis", "finish_time_fairness"),
    ],
)
@pytest.mark.parametrize("runs", [OURS_32, OURS_64], ids=lambda runs: runs.folder)
def test_policies_with_many_answers_are_close(
    runs: Runs, policy: str, name: str, shared: Path
) -> None:
    expected = json.loads(runs.file(shared, name).read_text())
    metrics = runs.play(shared, policy).metrics
    assert metrics["makespan_s"] == pytest.approx(expected["makespan"], rel=0.012)
    assert metrics["avg_jct_s"] == pytest.approx(expected["avg_jct"], rel=0.02)
    unfair = metrics["rho"]["static"]["unfair_1_05"]
    assert unfair == pytest.approx(expected["unfair_gt105"], abs=0.03)
