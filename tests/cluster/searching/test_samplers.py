import math
from collections import Counter

import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import Parameter, ParameterRange, SamplerName, StudySpec
from fairlead.cluster.searching import samplers
from fairlead.cluster.searching.samplers import (
    PastTrial,
    SamplerTask,
    check_sampler,
    n_trials,
    suggest,
)
from fairlead.cluster.server.sampler_process import SamplerError, SamplerProcess, SuggestionError
from fairlead.errors import InputError

SPACE = {
    "lr": ParameterRange(low=1e-5, high=1.0, log=True),
    "drop": ParameterRange(low=0.0, high=0.5, step=0.1),
    "layers": ParameterRange("int", low=1, high=9, step=2),
    "width": ParameterRange("int", low=1, high=1024, log=True),
    "kind": ParameterRange("categorical", choices=("a", "b", 1, True)),
}


def study(sampler: SamplerName, trials: int = 50, **more: ParameterRange) -> StudySpec:
    return StudySpec(
        metric="loss",
        parameters=more or SPACE,
        job=JobSpec(command=("x",), total_steps=1),
        trials=trials,
        sampler=sampler,
    )


def loss(parameters: dict[str, Parameter]) -> float:
    """The least is at lr = 0.01, layers = 5."""
    return abs(math.log10(float(parameters["lr"])) + 2) + abs(float(parameters["layers"]) - 5) / 4


def searched(wanted: StudySpec, trials: int) -> list[PastTrial]:
    """Trials one after the other; some are pruned, some fail."""
    past: list[PastTrial] = []
    for number in range(trials):
        found = suggest(SamplerTask(wanted, past))
        value = loss(found.parameters)
        kind = ("pruned", "failed", "stopped")[number // 7 % 3] if number % 7 == 6 else "completed"
        points = {1: value + 1, 2: value} if kind == "pruned" else {}
        completed = value if kind == "completed" else None
        past.append(PastTrial(found.parameters, kind, completed, points, found.notes))  # type: ignore[arg-type]
    return past


def check_within(parameters: dict[str, Parameter]) -> None:
    assert list(parameters) == list(SPACE)
    assert {name: type(value) for name, value in parameters.items() if name != "kind"} == {
        "lr": float,
        "drop": float,
        "layers": int,
        "width": int,
    }
    assert 1e-5 <= float(parameters["lr"]) <= 1.0
    assert any(parameters["drop"] == pytest.approx(i / 10) for i in range(6))
    assert parameters["layers"] in (1, 3, 5, 7, 9)
    assert 1 <= int(parameters["width"]) <= 1024
    assert (type(parameters["kind"]), parameters["kind"]) in [
        (str, "a"),
        (str, "b"),
        (int, 1),
        (bool, True),
    ]


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_suggestions_are_in_range_and_the_same_after_a_restart(sampler: SamplerName) -> None:
    if sampler != "random":
        pytest.importorskip("optuna")
        pytest.importorskip("cmaes")
    wanted = study(sampler)
    past = searched(wanted, 25)
    for number, trial in enumerate(past):
        check_within(trial.parameters)
        if number % 8 == 3:
            again = suggest(SamplerTask(wanted, past[:number]))
            assert (again.parameters, again.notes) == (trial.parameters, trial.notes)
    assert len({str(trial.parameters) for trial in past}) > 20


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_samplers_that_learn_do_better_than_chance(sampler: SamplerName) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("cmaes")
    learnt, chance = searched(study(sampler), 60), searched(study("random"), 60)

    def late(past: list[PastTrial]) -> float:
        values = [trial.value for trial in past[40:] if trial.value is not None]
        return sum(values) / len(values)

    assert late(learnt) < 0.8 * late(chance)


def test_trials_that_run_are_no_obstacle() -> None:
    pytest.importorskip("optuna")
    wanted = study("tpe")
    past = searched(wanted, 12)
    running = [PastTrial(trial.parameters, "running", None) for trial in past[-3:]]
    check_within(suggest(SamplerTask(wanted, [*past, *running])).parameters)


def test_random_values_are_spread_as_asked() -> None:
    past = [
        suggest(SamplerTask(study("random"), [PastTrial({}, "failed", None)] * n))
        for n in range(400)
    ]
    small = sum(float(one.parameters["lr"]) < 10**-2.5 for one in past)
    assert 150 < small < 250, "by the logarithm"
    assert len(Counter(one.parameters["layers"] for one in past)) == 5
    assert {type(one.parameters["kind"]) for one in past} == {str, int, bool}


def test_a_grid_has_each_point_once() -> None:
    wanted = study(
        "grid",
        a=ParameterRange("int", low=1, high=3),
        b=ParameterRange("categorical", choices=("x", "y")),
    )
    assert n_trials(wanted) == 6
    points = [
        suggest(SamplerTask(wanted, [PastTrial({}, "failed", None)] * n)).parameters
        for n in range(6)
    ]
    assert points == [{"a": a, "b": b} for a in (1, 2, 3) for b in ("x", "y")]
    assert n_trials(study("grid", 4, a=ParameterRange("int", low=1, high=9))) == 4


def test_a_sampler_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "find_spec", lambda _: None)
    with pytest.raises(
        InputError, match=r"sampler: 'tpe' needs the package optuna, which the server"
    ):
        check_sampler(study("tpe"))
    check_sampler(study("random"))
    check_sampler(study("grid"))


def test_a_process_of_its_own_suggests_the_same_and_outlasts_its_end() -> None:
    pytest.importorskip("optuna")
    wanted = study("tpe")
    past = searched(wanted, 12)
    process = SamplerProcess()
    try:
        expected = suggest(SamplerTask(wanted, past))
        assert process.suggest(SamplerTask(wanted, past)) == expected
        assert process._process is not None
        process._process.kill()
        with pytest.raises(SamplerError, match="the sampler's process has ended"):
            process.suggest(SamplerTask(wanted, past))
        assert process.suggest(SamplerTask(wanted, past)) == expected
        broken = [PastTrial({"lr": "none of these"}, "completed", 1.0)]
        with pytest.raises(SuggestionError, match=r"^tpe: "):
            process.suggest(SamplerTask(wanted, broken))
    finally:
        process.close()
