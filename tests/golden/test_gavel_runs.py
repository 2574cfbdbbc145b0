"""Whole runs of Gavel's released simulator, played again from their recorded allocations."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.analysis.simulate import simulate
from fairlead.errors import CheckError
from fairlead.simulator.recording.metrics import Result

pytestmark = pytest.mark.shared
GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "gavel"


@dataclass(frozen=True)
class Reference:
    """One reference run: its configuration and results, and the files beside it."""

    path: Path
    result: dict[str, Any]

    @property
    def log(self) -> Path:
        return self.path.with_suffix(".log.json.gz")

    def play(self, shared: Path, policy: str, profile: str = "gavel", **more: Any) -> Result:
        """Run the same jobs on the same cluster."""
        config, data = self.result["config"], shared / "data" / "gavel"
        table = Path(config.get("throughputs_file", "simulation_throughputs.json")).name
        trace, window = self.path.with_suffix(".jobs.json.gz"), None
        if config["mode"] == "trace":
            trace = data / config["trace"]
        elif config["lam"] > 0:
            window = (config["window"][0], config["window"][1])
        types = ("v100", "p100", "k80")
        counts = dict(zip(types, config["cluster_spec"].split(":"), strict=True))
        return simulate(
            trace,
            ",".join(f"{name}={count}" for name, count in counts.items()),
            policy,
            throughputs=data / table,
            profile=profile,
            round_s=float(config.get("interval", 360)),
            seed=config.get("seed", 0),
            measured_jobs=window,
            **more,
        )


def load(path: Path) -> Reference:
    return Reference(path, json.loads(path.read_text()))


def references(policies: set[str] | None, logged: bool) -> list[Any]:
    """Reference runs without an error: of these policies (None: all), with recorded allocations or not.
    The first of each policy and kind runs by default, the others are long."""
    found = []
    kinds: set[tuple[str, str]] = set()
    for path in sorted(GOLDEN.glob("*/*.json")):
        if not path.with_suffix(".log.json.gz").exists():
            continue
        result = json.loads(path.read_text())
        if result.get("error") or (logged and result["config"].get("keep_alloc") is False):
            continue
        if policies is None or result["config"]["policy"] in policies:
            kind = path.parent.name, result["policy_name"]
            marks = [pytest.mark.long] if kind in kinds else []
            kinds.add(kind)
            found.append(pytest.param(Reference(path, result), id=path.stem, marks=marks))
    return found or [pytest.param(None, id="no-reference-data")]


def same(mine: float | None, theirs: float | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return abs(mine - theirs) <= 1e-9 * max(1.0, abs(theirs))


def compare_jobs(result: Result, expected: dict[str, Any]) -> None:
    jct = dict(result.jobs.select("job", "jct_s").iter_rows())
    wrong = {
        job: (jct.get(int(job)), theirs)
        for job, theirs in expected["jct"].items()
        if not same(jct.get(int(job)), theirs)
    }
    assert not wrong
    assert same(result.metrics["makespan_s"], expected["makespan"])
    assert same(result.metrics["gavel_utilization"], expected["utilization"])
    assert same(result.metrics["cost"], expected["total_cost"])


@pytest.mark.parametrize("reference", references(None, logged=True))
def test_recorded_allocations_give_the_same_rounds_and_jobs(
    reference: Reference, shared: Path
) -> None:
    """Times, groups, types, device ids, JCTs, makespan, utilization, cost; packed runs included."""
    result = reference.play(shared, f"recorded:{reference.log}", expect_rounds=reference.log)
    compare_jobs(result, reference.result)
    theirs = reference.result["rho"]["per_job"]
    mine = dict(result.jobs.select("job", "rho_isolated").iter_rows())
    if not reference.result["policy_name"].endswith("Packing"):
        assert all(same(mine[int(j)], rho) for j, rho in theirs.items() if mine[int(j)])


@pytest.mark.parametrize("reference", references({"fifo_perf", "isolated"}, logged=False))
def test_policies_with_one_answer_give_the_same_run(reference: Reference, shared: Path) -> None:
    logged = reference.result["config"].get("keep_alloc") is not False
    expect = reference.log if logged else None
    policy = reference.result["config"]["policy"]
    result = reference.play(shared, policy, expect_rounds=expect)
    compare_jobs(result, reference.result)
    assert result.metrics["n_rounds"] == reference.result["n_rounds"]
    assert result.metrics["n_solves"] == reference.result["n_solves"]


# A least-attained-service optimum is not unique, so runs are equal only in the mean, and few jobs make a
# poor mean. Left out: 20 jobs that all fit in one round (average JCT 3.9 % lower here); two runs with
# deadlines and weights of which 100 jobs are measured (aware: 3.8 % lower; agnostic: makespan 1.9 %); an
# agnostic one near saturation (1.6 % lower); and a mechanism that no option gives.
NOT_IN_THE_MEAN = (
    "small_test__max_min_fairness_perf__8-16-24",
    "multiprio_slo_gps4__max_min_fairness__12-12-12__lam6000__s0",
    "multiprio_slo_gps4__max_min_fairness_perf__12-12-12__lam6000__s0",
    "single__max_min_fairness__12-12-12__lam1800__s0",
    "single_globalq__max_min_fairness_perf__12-12-12__lam3600__s0",
)
LAS = {"max_min_fairness", "max_min_fairness_perf"}


@pytest.mark.parametrize("reference", references(LAS, logged=False))
def test_las_runs_are_close(reference: Reference, shared: Path) -> None:
    if reference.path.stem in NOT_IN_THE_MEAN:
        pytest.skip("not comparable in the mean: see NOT_IN_THE_MEAN")
    result = reference.play(shared, reference.result["config"]["policy"])
    ratio = result.metrics["avg_jct_s"] / reference.result["avg_jct"]
    assert ratio == pytest.approx(1.0, abs=0.015)
    longer = result.metrics["makespan_s"] / reference.result["makespan"]
    assert longer == pytest.approx(1.0, abs=0.015)
    assert result.metrics["solve_gap"] < 1e-6


SUMS = {
    "max_sum_throughput_perf",
    "max_sum_throughput_normalized_by_cost_perf",
    "max_sum_throughput_normalized_by_cost_perf_SLOs",
}


@pytest.mark.parametrize("reference", references(SUMS, logged=False))
def test_runs_for_most_throughput_and_least_cost_are_close(
    reference: Reference, shared: Path
) -> None:
    result = reference.play(shared, reference.result["config"]["policy"])
    for mine, theirs in (
        ("avg_jct_s", "avg_jct"),
        ("makespan_s", "makespan"),
        ("cost", "total_cost"),
    ):
        assert result.metrics[mine] / reference.result[theirs] == pytest.approx(1.0, abs=0.01)


def test_the_default_profile_meets_deadlines_for_less(shared: Path) -> None:
    """Gavel's release misses 12 of 270 on the same jobs; here nobody is late, for two thirds of the money."""
    stem = "single_slo__max_sum_throughput_normalized_by_cost_perf_SLOs__12-12-12__lam6000__s0"
    reference = load(GOLDEN / f"continuous/{stem}.json")
    result = reference.play(shared, "throughput_per_cost_slo", "default")
    with gzip.open(reference.path.with_suffix(".jobs.json.gz"), "rt") as file:
        allowed = {job["id"]: job["SLO"] * job["duration"] for job in json.load(file)}
    jct = result.jobs.select("job", "jct_s").drop_nulls()
    assert len(jct) > 250
    assert not [job for job, jct_s in jct.iter_rows() if jct_s > allowed[job]]
    assert result.metrics["cost"] < 0.67 * reference.result["total_cost"]


@pytest.mark.parametrize(
    "stem",
    [
        "static/minimize_makespan__max_min_fairness_perf__8-16-24",
        pytest.param(
            "continuous/single__max_min_fairness_perf__12-12-12__lam2400__s0",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "continuous/single__max_min_fairness_perf__12-12-12__lam2400__s1",
            marks=pytest.mark.long,
        ),
        "continuous/multi__max_min_fairness_perf__12-12-12__lam6000__s0",
    ],
)
def test_the_default_profile_is_better(stem: str, shared: Path) -> None:
    """Lower average JCT than Gavel's mechanism, for the aware least attained service."""
    reference = load(GOLDEN / f"{stem}.json")
    default, gavel = [
        reference.play(shared, "max_min_fairness_perf", profile).metrics["avg_jct_s"]
        for profile in ("default", "gavel")
    ]
    assert default < gavel


def test_expected_rounds_name_the_first_difference(shared: Path, tmp_path: Path) -> None:
    stem = GOLDEN / "static" / "small_test__fifo_perf__8-16-24"
    log = json.loads(gzip.decompress(stem.with_suffix(".log.json.gz").read_bytes()))
    log["rounds"][0][1][0][2] = [47]
    changed = tmp_path / "changed.log.json"
    changed.write_text(json.dumps(log))
    reference = load(stem.with_suffix(".json"))
    with pytest.raises(
        CheckError, match=r"round 0 at 0.0 s: job group \d+ on \w+ \[.*\], expected on \w+ \[47\]"
    ):
        reference.play(shared, "fifo_perf", expect_rounds=changed)
