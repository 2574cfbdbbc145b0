"""``fairlead.compare``: policies of the user's own with several seeds, by the numbers of the command."""

import dataclasses
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.call_command import call
from tests.small import TABLE, job

import fairlead
from fairlead.errors import ConfigError, FairleadError, PartialResultWarning, SolveError

CLUSTER = fairlead.Cluster.of({"fast": 1, "slow": 1}, 1, {"fast": 3.0, "slow": 1.0})


def jobs_of(seed: int) -> list[fairlead.Arrival]:
    rng = np.random.default_rng(seed)
    steps = rng.uniform(5_000, 40_000, 6)
    return [job(n, 500.0 * n, float(steps[n])) for n in range(6)]


class Equal:
    """A policy of the user's own."""

    name, heterogeneity_aware, space_sharing, work_conserving = "equal", True, False, True

    def allocate(self, snapshot: fairlead.Snapshot) -> fairlead.Allocation:
        share = np.full_like(snapshot.solo_rate, 1 / len(snapshot.jobs) / len(snapshot.slots))
        return fairlead.allocation(snapshot, share, fairlead.SolveReport("closed-form"))


class Broken(Equal):
    name = "broken"

    def allocate(self, snapshot: fairlead.Snapshot) -> fairlead.Allocation:
        raise KeyError("weights")


def compared(policies: Any = ("las", Equal), **changed: Any) -> fairlead.PolicyComparison:
    given: dict[str, Any] = {"trace": jobs_of, "cluster": CLUSTER, "seeds": range(3)}
    return fairlead.compare(policies, **{**given, "throughputs": TABLE, **changed})


def test_names_objects_classes_and_functions_are_compared() -> None:
    class Other(Equal):
        name = "other"

    class Third(Equal):
        name = "third"

    found = compared(["las", Equal(), Other, lambda: Third()])
    assert list(found.results) == ["las", "equal", "other", "third"]
    assert found.seeds == (0, 1, 2)
    for seed, of_las in zip(found.seeds, found.results["las"], strict=True):
        alone = fairlead.simulate(jobs_of(seed), CLUSTER, "las", throughputs=TABLE, seed=seed)
        assert of_las.jobs.equals(alone.jobs)


def test_a_dictionary_gives_labels() -> None:
    found = compared({"mine": Equal, "theirs": "las", "again": Equal()})
    assert found.table()["policy"].to_list() == ["mine", "theirs", "again"]


def test_the_table_has_means_intervals_and_paired_differences() -> None:
    found = compared()
    las, equal = (
        np.array([one.metrics["avg_jct_s"] for one in found.results[name]])
        for name in ("las", "equal")
    )
    first, second = found.table().to_dicts()
    quantile = 4.302652729911275  # of Student's t with two degrees of freedom, at 0.975

    def half(values: np.ndarray[Any, Any]) -> float:
        return quantile * float(values.std(ddof=1)) / math.sqrt(3)

    assert first["policy"] == "las"
    assert first["seeds"] == 3
    assert first["mean"] == pytest.approx(las.mean())
    assert first["low"] == pytest.approx(las.mean() - half(las))
    assert first["high"] == pytest.approx(las.mean() + half(las))
    assert [first[key] for key in first if key.startswith("difference")] == [None] * 3
    off = equal - las
    assert second["difference"] == pytest.approx(off.mean())
    assert second["difference_low"] == pytest.approx(off.mean() - half(off))
    assert second["difference_high"] == pytest.approx(off.mean() + half(off))
    other = found.table("rho.isolated.max", relative_to="equal")
    assert other["difference"].is_null().to_list() == [False, True]


def test_one_seed_has_no_interval() -> None:
    row = compared(seeds=[7]).table().row(1, named=True)
    assert row["low"] is None
    assert row["difference_high"] is None
    assert row["mean"] is not None
    assert row["difference"] is not None


def test_the_numbers_are_those_of_the_command(tmp_path: Path) -> None:
    spec, cluster = "gavel,interarrival=0,jobs=5", "v100=1,k80=1"
    rates = fairlead.read_throughputs("builtin")
    here = fairlead.parse_cluster(cluster)
    found = fairlead.compare(
        ["las", "las_aware"],
        lambda seed: list(fairlead.generate(spec, rates.columns(here.slots), here, seed)[0]),
        here,
        seeds=(0, 1),
        ground_truth=fairlead.GroundTruth(rate_noise=0.2),
    )
    command = f"sweep --policies las las_aware --seeds 0 1 --jobs 5 --cluster {cluster}"
    out = tmp_path / "sweep"
    assert call(*command.split(), "--rate-noise", "0.2", "--out", out) == 0
    cells = json.loads((out / "sweep.json").read_text())["cells"]
    of_command = [cell["outcome"]["metrics"]["avg_jct_s"] for cell in cells]
    ours = [one.metrics["avg_jct_s"] for runs in found.results.values() for one in runs]
    assert ours == of_command


def test_random_things_follow_from_the_seed_on_a_trace_that_is_the_same_for_all() -> None:
    found = compared(
        ["las"], trace=jobs_of(0), ground_truth=fairlead.GroundTruth(rate_noise=0.3), seeds=(0, 1)
    )
    one, two = found.results["las"]
    assert one.metrics["avg_jct_s"] != two.metrics["avg_jct_s"]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
@pytest.mark.parametrize("relative_to", [None, "las"])
def test_a_figure_is_written(suffix: str, relative_to: str | None, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"jct.{suffix}"
    assert compared(seeds=(0, 1)).figure(path, relative_to=relative_to) == path
    assert path.stat().st_size > 1000
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_run_whose_queue_grows_without_bound_has_no_mean() -> None:
    table = fairlead.read_throughputs("builtin")
    cluster = fairlead.parse_cluster("k80=1")

    def endless(seed: int) -> Any:
        spec = "gavel,interarrival=10"
        return fairlead.generate(spec, table.columns(cluster.slots), cluster, seed)[0]

    with pytest.warns(PartialResultWarning, match="fifo, seed 0: the queue grows without bound"):
        found = fairlead.compare(["fifo"], endless, cluster, seeds=[0], measured_jobs=(900, 1000))
    assert not found.results["fifo"][0].complete
    row = found.table().row(0, named=True)
    assert row["seeds"] == 0
    assert row["mean"] is None
    with pytest.raises(ConfigError, match=r"figure\(\): avg_jct_s: .* not known"):
        found.figure("never.png")


def test_jobs_that_are_left_out_are_warned_of_once_for_all_seeds() -> None:
    wide = [*jobs_of(0), job(99, 1e4, 100.0, devices=4)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        compared(trace=wide)
    (warning,) = seen
    assert "needs more devices than there are" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policies": "las"}, "policies: expected a list of policies"),
        ({"policies": []}, "policies: expected at least one"),
        ({"policies": ["las", "las"]}, "policies: two of them are called 'las'"),
        ({"policies": ["lass"]}, "did you mean 'las'"),
        ({"policies": [5]}, "policy: expected a name, a policy"),
        ({"policies": {3: "las"}}, "policies: expected labels that are text, got 3"),
        ({"seeds": 5}, "seeds: expected whole numbers such as range(5), got 5"),
        ({"seeds": "012"}, "seeds: expected whole numbers such as range(5), got '012'"),
        ({"seeds": []}, "seeds: expected at least one"),
        ({"seeds": [1, 1]}, "seeds: 1 is given twice"),
        ({"seeds": [-1]}, "-1"),
        ({"seed": 3}, "compare(): seed: give seeds"),
        ({"trace": iter(jobs_of(0))}, "trace: an iterator yields its arrivals once"),
        ({"trace": lambda seed: None}, "trace(0): expected a path"),
        ({"trace": 5}, "trace: expected a path"),
        ({"round": 5}, "compare(): 'round' is not an option; did you mean 'round_s'?"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compared(**{"policies": ["las"], **changed})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_policy_that_raises_has_the_error_of_simulate() -> None:
    with pytest.raises(SolveError) as alone:
        fairlead.simulate(jobs_of(0), CLUSTER, Broken(), throughputs=TABLE)
    for policy in (Broken, Broken()):
        with pytest.raises(SolveError) as here:
            compared(["las", policy])
        assert str(here.value) == str(alone.value)


def test_a_class_that_cannot_be_made_or_is_no_policy_is_one_sentence() -> None:
    class Needs(Equal):
        def __init__(self, weight: float) -> None:
            self.weight = weight

    class Nothing:
        name = "nothing"

    for policy, message in ((Needs, "policy Needs: .*TypeError"), (Nothing, "policy Nothing: .*")):
        with pytest.raises(FairleadError, match=message) as refused:
            compared([policy])
        assert "\n" not in str(refused.value)


def test_metrics_references_and_files_that_there_are_not_are_named(tmp_path: Path) -> None:
    found = compared(seeds=[0])
    cases = (
        (lambda: found.table("avg_jct"), "metric 'avg_jct': .* did you mean 'avg_jct_s'"),
        (lambda: found.table(relative_to="fifo"), "relative_to: .*'fifo'.*las, equal"),
        (lambda: found.figure(tmp_path / "x.gif"), "x.gif: .*png, .svg or .pdf"),
        (lambda: found.figure(tmp_path / "x.png", relative_to="fifo"), "relative_to: .*'fifo'"),
        (lambda: found.figure("/dev/null/x.png"), "/dev/null"),
    )
    for ask, message in cases:
        with pytest.raises(ConfigError, match=message):
            ask()
    assert not list(tmp_path.iterdir())


def test_it_is_a_record_whose_fields_are_explained() -> None:
    text = fairlead.PolicyComparison.__doc__ or ""
    assert all(f"{one.name}:" in text for one in dataclasses.fields(fairlead.PolicyComparison))
    assert repr(compared(seeds=[0, 1])) == "PolicyComparison(las, equal; seeds 0, 1)"
