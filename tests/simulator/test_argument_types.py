"""Arguments of the wrong type: one sentence with the argument and its value, from every way in."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.small import TABLE, job

import fairlead
from fairlead.cli.replay import replay
from fairlead.errors import ConfigError, InputError
from fairlead.policies.las import Las

JOBS = [job(n, 700.0 * n, 20_000.0) for n in range(3)]
CLUSTER = fairlead.Cluster.of({"fast": 2, "slow": 2}, 1, {"fast": 3.0, "slow": 1.0})


def simulate(**changed: Any) -> None:
    given: dict[str, Any] = {"trace": JOBS, "cluster": CLUSTER, "policy": "las"}
    fairlead.simulate(**{**given, "throughputs": TABLE, **changed})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("trace", 5, "5"),
        ("trace", None, "None"),
        ("trace", b"jobs", "b'jobs'"),
        ("trace", [{"id": 1}], "{'id': 1}"),
        ("trace", [JOBS[0], JOBS[1].job], "Job("),
        ("trace", iter([3]), "3"),
        (
            "trace",
            [replace(JOBS[0], time_s=cast(Any, "now"))],
            "time_s: expected a number, got 'now'",
        ),
        (
            "trace",
            [replace(JOBS[0], job=replace(JOBS[0].job, weight=cast(Any, "2")))],
            "weight: expected a",
        ),
        ("cluster", 36, "36"),
        ("cluster", {"v100": 4}, "{'v100': 4}"),
        ("policy", 7, "7"),
        ("policy", Las, "Las"),
        ("out", 5, "5"),
        ("expect_rounds", 5, "5"),
        ("resume", "yes", "'yes'"),
        ("stop", 100.0, "100.0"),
        ("stop", lambda job: False, "<function"),
        ("watch", "bar", "'bar'"),
        ("observers", print, "print"),
        ("throughputs", 5, "5"),
        ("profile", 5, "5"),
        ("round_s", "360", "'360'"),
        ("seed", "0", "'0'"),
        ("seed", 1.5, "1.5"),
        ("seed", True, "True"),
        ("preemption_hysteresis", [1], "[1]"),
        ("measured_jobs", 5, "5"),
        ("measured_jobs", (1, 2, 3), "(1, 2, 3)"),
        ("measured_jobs", ("0", "2"), "('0', '2')"),
        ("stop_at_s", "1000", "'1000'"),
        ("ground_truth", 0.1, "0.1"),
        ("solve_s", None, "None"),
        ("assumed_costs", 5, "5"),
        ("estimator", 5, "5"),
        ("user_estimates", "lognormal=0.7", "'lognormal=0.7'"),
        ("ideal", "no", "'no'"),
        ("solve_interval_s", "x", "'x'"),
        ("admission", 5, "int"),
        ("placement", 5, "int"),
    ],
)
def test_simulate_names_the_argument_and_its_value(
    name: str, value: object, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        simulate(**{name: value})
    sentence = str(refused.value)
    assert name.removesuffix("s") in sentence or sentence.startswith("arrival 0: ")
    assert message in sentence
    assert "\n" not in sentence
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("family", 5, "family: expected text, got 5"),
        ("tenant", None, "tenant: expected text, got None"),
        ("adaptation", "gns", "adaptation: of another type than it has to be: 'gns'"),
        ("weight", "x", "weight: expected a number, got 'x'"),
    ],
)
def test_a_job_of_a_trace_made_by_hand_is_looked_at(field: str, value: Any, message: str) -> None:
    odd = replace(JOBS[0], job=replace(JOBS[0].job, **{field: value}))
    for trace in ([odd], fairlead.Trace("mine", "made", [odd])):
        with pytest.raises(InputError, match="arrival 0") as refused:
            simulate(trace=trace)
        assert message in str(refused.value)


def test_what_numpy_calls_a_number_is_one() -> None:
    simulate(seed=np.int64(3), round_s=np.float64(360), solve_s=np.int32(0), measured_jobs=[0, 2])


@pytest.mark.parametrize(
    ("whole", "given"),
    [
        ({"round_s": 360}, {"round_s": 360.0}),
        ({"round_s": np.int64(360)}, {"round_s": 360.0}),
        ({"trace": [fairlead.Arrival(n, JOBS[n].job) for n in range(3)]},
         {"trace": [fairlead.Arrival(float(n), JOBS[n].job) for n in range(3)]}),
    ],
)  # fmt: skip
def test_whole_numbers_of_seconds_make_the_same_journal(
    tmp_path: Path, whole: dict[str, Any], given: dict[str, Any]
) -> None:
    """A replay reads floats: commands with ints differed from it."""
    simulate(out=tmp_path / "whole", **whole)
    simulate(out=tmp_path / "float", **given)
    journals = [(tmp_path / name / "journal").read_bytes() for name in ("whole", "float")]
    assert journals[0] == journals[1]
    replay(tmp_path / "whole")


def test_an_environment_names_them_too() -> None:
    for name, value in (("trace", 5), ("cluster", 36), ("seed", "0"), ("round_s", "x")):
        given = {"trace": JOBS, "cluster": CLUSTER, "throughputs": TABLE, name: value}
        with pytest.raises(ConfigError, match=name) as refused:
            fairlead.Environment(**given)  # type: ignore[arg-type]
        assert repr(value) in str(refused.value)
    with pytest.raises(ConfigError, match="'rounds' is not an option"):
        fairlead.Environment(JOBS, CLUSTER, throughputs=TABLE, rounds=5)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("all", "'all'"),
        (None, "None"),
        ({"a": 1.0}, "{'a': 1.0}"),
        ([[1.0], [1.0, 0.0]], "[[1.0], [1.0, 0.0]]"),
        ([[1j, 0.0]], "1j"),
        (3.0, "3.0"),
    ],
)
def test_an_action_of_another_type_is_named_and_the_episode_goes_on(
    action: Any, message: str
) -> None:
    env = fairlead.Environment(JOBS, CLUSTER, throughputs=TABLE)
    seen, _ = env.reset()
    with pytest.raises(ConfigError, match="action: expected an array of shape") as refused:
        env.step(action)
    assert message in str(refused.value)
    env.step(Las().allocate(seen))
    with pytest.raises(ConfigError, match=r"reset\(\): seed: .*'x'"):
        env.reset(seed="x")  # type: ignore[arg-type]
