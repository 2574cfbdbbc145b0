import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import JOB_BYTES
from fairlead.cluster.protocol.read_study import (
    check_study,
    grid_values,
    make_study,
    read_study,
    trial_spec,
)
from fairlead.cluster.protocol.study import ParameterRange, PrunerSpec, StudySpec
from fairlead.errors import InputError
from fairlead.policies.search.stopping import CurveFit

WHOLE = """
metric = "val/loss"
direction = "minimize"
trials = 20
parallel = 4
sampler = "cmaes"
target = 0.1
favour = 2

[pruner]
type = "hyperband"
min_step = 10
max_step = 1000

[parameters.lr]
type = "float"
low = 1e-5
high = 1
log = true

[parameters.layers]
type = "int"
low = 1
high = 8

[parameters.optimiser]
choices = ["adam", "sgd"]

[job]
command = "python train.py --lr {lr} --layers={layers} {other} {optimiser}"
total_steps = 1000
"""


def test_a_whole_study_is_read_and_named_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "digits.toml"
    path.write_text(WHOLE)
    study = read_study(path)
    assert study.name == "digits"
    assert study.parameters["lr"] == ParameterRange("float", 1e-5, 1, log=True)
    assert study.parameters["optimiser"] == ParameterRange("categorical", choices=("adam", "sgd"))
    assert study.pruner == PrunerSpec("hyperband", 10, 1000)
    assert study.job.command[:2] == ("python", "train.py")
    assert (study.seed, study.weight, study.value) == (0, 1.0, "last")


def test_a_trial_has_its_parameters_in_its_command_and_its_number_in_its_name() -> None:
    parameters = ("--lr", "{lr}", "--n={n}", "{other}", "{{lr}}", "{flag}")
    study = StudySpec(
        metric="loss",
        parameters={
            "lr": ParameterRange(low=0.0, high=1.0),
            "n": ParameterRange("int", low=1, high=2),
            "flag": ParameterRange("categorical", choices=(True, False)),
        },
        job=JobSpec(command=parameters, total_steps=1),
        trials=1,
        name="s",
    )
    spec = trial_spec(study, 7, {"lr": 1e-05, "n": 2, "flag": True}, weight=0.25)
    assert spec.command == ("--lr", "1e-05", "--n=2", "{other}", "{1e-05}", "true")
    assert (spec.name, spec.weight) == ("s#7", 0.25)


@pytest.mark.parametrize(
    ("one", "longest"),
    [
        (ParameterRange(low=0.0, high=1.0), 24),
        (ParameterRange("int", low=-50, high=9), 3),
        (ParameterRange("int", low=1, high=1_000), 4),
        (ParameterRange("categorical", choices=(True, 10, "ab")), 4),
        (ParameterRange("categorical", choices=("abc", "\u00e4\u00e4")), 4),
    ],
)
def test_a_study_has_room_for_its_parameters_at_their_longest(
    one: ParameterRange, longest: int
) -> None:
    """All limits of nodes' orders go by what a job may have."""

    def study(times: int) -> StudySpec:
        job = JobSpec(command=("x", "{x}" * times), total_steps=1)
        return StudySpec(metric="loss", parameters={"x": one}, job=job, trials=1)

    check_study(study((JOB_BYTES - 300) // longest))  # the rest: variables of the trial
    with pytest.raises(InputError, match=r"job: command.*: at most 131,072 bytes, got \d+,\d+$"):
        check_study(study(JOB_BYTES // longest))


def test_the_variables_of_a_trial_count() -> None:
    """They are part of its environment."""
    job = JobSpec(command=("x", "a" * 120_000), total_steps=1)
    choices = ParameterRange("categorical", choices=("b" * 200, "c"))
    parameters = {f"p{number}": choices for number in range(100)}
    with pytest.raises(InputError, match=r"env of a trial, .*: at most 131,072 bytes, got 16\d,\d"):
        check_study(StudySpec(metric="loss", parameters=parameters, job=job, trials=1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("trials = 20", "trials = 0", r":4: trials: must be from 1 to 10000, got 0"),
        ("trials = 20", "trials = 2.5", r":4: trials: expected int, got 2.5"),
        ("trials = 20", "", r"trials: is missing"),
        ("trials = 20", "trails = 20", r"trails: unknown field; did you mean trials\?"),
        ('"minimize"', '"down"', r":3: direction: .*'down'"),
        ('"cmaes"', '"best"', r":6: sampler: .*'best'"),
        ("target = 0.1", "target = nan", r":7: target: must be a finite number, got nan"),
        ("target = 0.1", 'target = "low"', r":7: target: expected .*float.*, got 'low'"),
        ('"val/loss"', '"val loss"', r":2: metric: must be the name of a metric.*got 'val loss'"),
        ('"hyperband"', '"halving"', r":11: pruner.type: .*'halving'"),
        ("max_step = 1000", "", r"pruner.max_step: is missing; hyperband needs it"),
        ("max_step = 1000", "max_step = 5", r":13: pruner.max_step: must be from 10 to .*, got 5"),
        ("min_step = 10", "min_step = 0", r":12: pruner.min_step: must be from 1 to .*, got 0"),
        ("high = 1\n", "high = 1e-6\n", r":18: parameters.lr.high: must be above low \(1e-05\), got 1e-06"),
        ("low = 1e-5", "low = 0", r":17: parameters.lr.low: must be above 0 where log = true, got 0.0"),
        ("low = 1e-5", "", r"parameters.lr.low: is missing"),
        ("low = 1e-5", "low = inf", r":17: parameters.lr.low: must be from .*, got inf"),
        ('type = "int"\nlow = 1', 'type = "int"\nlow = 1.5', r"layers.low: must be a whole number, got 1.5"),
        ("log = true", "log = true\nstep = 0.1", r":20: parameters.lr.step: cannot be combined with log"),
        ("log = true", "log = true\npoints = 3", r":20: parameters.lr.points: are of searches with sampler"),
        ("log = true", "logs = true", r":19: parameters.lr.logs: unknown field; did you mean log\?"),
        ('type = "float"\n', "", r"parameters.lr.type: is missing; one of float, int and categorical"),
        ('["adam", "sgd"]', "[]", r"parameters.optimiser.choices: must be from 1 to 1,000, got 0"),
        ('["adam", "sgd"]', '["a", "a"]', r"optimiser.choices: must differ from each other, got 'a'"),
        ('["adam", "sgd"]', '["a"]\nlow = 1', r"optimiser.low: is of parameters of type float"),
        ("[parameters.layers]", "[parameters.LR]", r"parameters: lr and LR differ in their case alone"),
        ("[parameters.layers]", '[parameters."a b"]', r"parameters: a name has up to 64 letters.*'a b'"),
        ("total_steps = 1000", "total_steps = 0", r":31: job: total_steps: must be from 1 to"),
        ("total_steps = 1000", 'total_steps = 1\narray = "1-3"', r":32: job: array: cannot be given"),
        ("total_steps = 1000", 'total_steps = 1\nafter = ["ok:1"]', r":32: job: after: cannot be given"),
        ("total_steps = 1000", 'total_steps = 1\ncheckpoint_dir = "/x"', r"job: checkpoint_dir: cannot be"),
        ("favour = 2", "favour = -1", r":8: favour: must be from 0 to 1000, got -1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_line_field_and_value(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert WHOLE.count(old) == 1
    path = tmp_path / "s.toml"
    path.write_text(WHOLE.replace(old, new))
    with pytest.raises(InputError) as raised:
        read_study(path)
    assert re.match(rf"{re.escape(str(path))}(:\d+)?: ", str(raised.value)), raised.value
    assert re.search(message, str(raised.value)), raised.value
    assert "\n" not in str(raised.value)


CURVE = """[pruner]
type = "curve"
max_step = 100
start = 2.3
min_chance = 0.05
min_points = 4
"""
WITH_CURVE = re.sub(r"\[pruner\](\n.+)+\n", CURVE, WHOLE)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("target = 0.1\n", "", r":10: pruner.type: 'curve' needs a target, the value of val/loss"),
        ("target = 0.1", "target = 2.5", r":7: target: must be better than pruner.start \(2.3\).*got 2.5"),
        ("target = 0.1", "target = -1", r":7: target: .*, and not than pruner.limit \(0\), got -1"),
        ('"minimize"', '"maximize"', r":7: target: must be better than pruner.start \(2.3\)"),
        ("max_step = 100", "", r":10: pruner.max_step: is missing; curve needs it"),
        ("max_step = 100", "max_step = 0", r":12: pruner.max_step: must be from 1 to .*, got 0"),
        ("start = 2.3", "", r":10: pruner.start: is missing; curve needs the val/loss of a model that has"),
        ("start = 2.3", "start = nan", r":13: pruner.start: must be from .*, got nan"),
        ("start = 2.3", "start = 2.3\nlimit = inf", r":14: pruner.limit: must be from .*, got inf"),
        ("min_chance = 0.05", "min_chance = 1.5", r":14: pruner.min_chance: must be from 0 to 1, got 1.5"),
        ("min_points = 4", "min_points = 0", r":15: pruner.min_points: must be from 1 to 500, got 0"),
    ],
)  # fmt: skip
def test_a_fit_of_curves_needs_a_target_and_the_span_of_the_metric(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert WITH_CURVE.count(old) == 1
    path = tmp_path / "s.toml"
    path.write_text(WITH_CURVE)
    study = read_study(path)
    assert study.pruner == PrunerSpec(
        "curve", max_step=100, start=2.3, min_chance=0.05, min_points=4
    )
    assert study.metric_span == (2.3, 0.0)
    path.write_text(WITH_CURVE.replace(old, new))
    with pytest.raises(InputError) as raised:
        read_study(path)
    assert re.match(re.escape(str(path)) + message, str(raised.value)), raised.value
    assert "\n" not in str(raised.value)


def test_a_metric_that_is_maximized_is_between_nought_and_one_at_first() -> None:
    content = {
        "metric": "accuracy",
        "direction": "maximize",
        "trials": 2,
        "target": 0.9,
        "pruner": {"type": "curve", "max_step": 30},
        "parameters": {"x": {"type": "float", "low": 0, "high": 1}},
        "job": {"command": "x", "total_steps": 1},
    }
    study = make_study(content, "study")
    assert study.metric_span == (0.0, 1.0)
    assert (study.pruner.min_chance, study.pruner.min_points) == (
        CurveFit().min_chance,
        CurveFit().min_points,
    )
    with pytest.raises(InputError, match=r"^study: target: must be better .* got 90.0"):
        make_study(content | {"target": 90}, "study")


@pytest.mark.parametrize("content", [None, [], {"metric": 1}, {"parameters": 3}, {"job": 7}])
def test_what_is_no_study_at_all_is_refused(content: Any) -> None:
    with pytest.raises(InputError, match=r"^study: "):
        make_study(content, "study")


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a search is described in a \.toml or a \.json file"):
        read_study(tmp_path / "study.yaml")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_study(tmp_path / "study.toml")


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(WHOLE)
    study = read_study(path)
    other = tmp_path / "s.json"
    other.write_bytes(msgspec.json.encode(study))
    assert read_study(other) == study


@pytest.mark.parametrize(
    ("one", "values"),
    [
        (ParameterRange(low=0.0, high=1.0, step=0.25), [0.0, 0.25, 0.5, 0.75, 1.0]),
        (ParameterRange(low=0.0, high=0.3, step=0.1), [0.0, 0.1, 0.2, 0.3]),
        (ParameterRange(low=1e-3, high=10.0, log=True, points=5), [1e-3, 1e-2, 0.1, 1.0, 10.0]),
        (
            ParameterRange(low=1e-300, high=1e300, log=True, points=4),
            [1e-300, 1e-100, 1e100, 1e300],
        ),
        (ParameterRange("int", low=1, high=7, step=3), [1, 4, 7]),
        (ParameterRange("int", low=1, high=3), [1, 2, 3]),
        (ParameterRange("int", low=1, high=2, points=5), [1, 2]),
        (ParameterRange("categorical", choices=("a", 1, True)), ["a", 1, True]),
    ],
)
def test_the_values_of_a_grid(one: ParameterRange, values: list[Any]) -> None:
    found = grid_values(one)
    assert found == pytest.approx(values) if isinstance(values[0], float) else found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_a_log_grid_stays_within_its_bounds_however_far_these_are_apart() -> None:
    """The quotient of these is larger than a float can be."""
    values = grid_values(ParameterRange(low=5e-324, high=1e300, log=True, points=5))
    assert (values[0], values[-1]) == (5e-324, 1e300)
    assert values == sorted(set(values))


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
@pytest.mark.parametrize("step", [5e-324, 1e-300, 1e-17])
def test_a_step_that_is_too_small_to_be_counted_is_refused(sampler: Any, step: float) -> None:
    """It ended the search, with the name of an exception."""
    study = StudySpec(
        metric="loss", parameters={"x": ParameterRange(low=0.0, high=1.0, step=step)},
        job=JobSpec(command=("x",), total_steps=1), sampler=sampler, trials=1,
    )  # fmt: skip
    with pytest.raises(InputError, match=r"^study: parameters.x.step: must be at least 1.1\d+e-16"):
        check_study(study)


def test_a_grid_that_is_too_large_is_refused() -> None:
    study = StudySpec(
        metric="m",
        parameters={f"p{i}": ParameterRange("int", low=1, high=100) for i in range(3)},
        job=JobSpec(command=("x",), total_steps=1),
        trials=5,
        sampler="grid",
    )
    with pytest.raises(
        InputError, match="parameters: a grid may have at most 10,000 points, got 1,000,000"
    ):
        check_study(study)


def test_the_longest_choice_has_to_fit_the_command() -> None:
    study = StudySpec(
        metric="m",
        parameters={"p": ParameterRange("categorical", choices=("a", "b\0"))},
        job=JobSpec(command=("x", "{p}"), total_steps=1),
        trials=5,
    )
    with pytest.raises(InputError, match="choices: must be printable"):
        check_study(study)
