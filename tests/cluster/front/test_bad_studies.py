"""Studies in which one thing is wrong, of every kind: each is refused in a sentence, and nothing begins."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.call_command import call
from tests.cluster.served import Served

GOOD: dict[str, Any] = {
    "metric": "loss",
    "trials": 4,
    "sampler": "random",
    "parameters": {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "width": {"type": "int", "low": 1, "high": 8},
        "optimiser": {"type": "categorical", "choices": ["adam", "sgd"]},
    },
    "job": {"command": ["python", "train.py"], "total_steps": 10},
}
NAN, INF = float("nan"), float("inf")
WRONG: tuple[Any, ...] = (
    *("some words", ""),
    *(7, -7, 0, 2.5, 1e301, NAN, INF),
    *(True, ["x", {"y": 1}], [], {"k": 1}, None),
)
# Fields, and which of the values they may have: 7 of an integer is also one of a float.
FIELDS: dict[str, tuple[Any, ...]] = {
    "metric": (),
    "trials": (7,),
    "direction": (),
    "name": ("some words", ""),
    "parallel": (7,),
    "sampler": (),
    "seed": (7, 0),
    "target": (7, -7, 0, 2.5, 1e301, None),
    "value": (),
    "weight": (7, 2.5),
    "favour": (7, 0),
    "favour_factor": (7, 2.5),
    "pruner": (),
    "pruner.type": (),
    "pruner.min_step": (),
    "pruner.max_step": (None,),
    "pruner.reduction": (),
    "pruner.startup_trials": (),
    "pruner.min_chance": (),
    "pruner.min_points": (),
    "pruner.start": (None,),
    "pruner.limit": (None,),
    "parameters": (),
    "parameters.lr": (),
    "parameters.lr.type": (),
    "parameters.lr.low": (),
    "parameters.lr.high": (7, 2.5),
    "parameters.lr.log": (True,),
    "parameters.lr.step": (None,),
    "parameters.lr.points": (None,),
    "parameters.lr.choices": ([],),
    "parameters.width.low": (7, -7, 0),
    "parameters.width.high": (7,),
    "parameters.width.step": (7, None),
    "parameters.width.log": (True,),
    "parameters.optimiser.low": (None,),
    "parameters.optimiser.choices": (),
    "job": (),
    "job.command": ("some words",),
    "job.total_steps": (7,),
    "job.weight": (7, 2.5),
    "job.env": (),
    "job.rates": ({"k": 1},),
    "job.array": ("",),
    "job.after": ([],),
    "job.checkpoint_dir": ("",),
    "unknown": (),
    "pruner.unknown": (),
    "parameters.width.unknown": (),
    "job.unknown": (),
}
MISSING = ("metric", "trials", "parameters", "job", "job.command", "job.total_steps")
MISSING_IN_FILES = (*MISSING, "parameters.lr.type", "parameters.lr.low", "parameters.width.high")
# What is wrong together: the changes, the field that is named, and what else the sentence has
TOGETHER: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"parameters.width.low": 9}, "parameters.width.high", "must be above low (9), got 8"),
    ({"parameters.lr.low": 0}, "parameters.lr.low", "must be above 0 where log = true, got 0"),
    ({"sampler": "grid"}, "parameters.lr.points", "is missing"),
    (
        {"sampler": "grid", "parameters.lr.points": 2_000},
        "parameters.lr.points",
        "must be from 2 to 1000, got 2000",
    ),
    (
        {"sampler": "grid", "parameters.lr.log": False, "parameters.lr.step": 1e-9},
        "parameters.lr",
        "by steps of 1e-09",
    ),
    (
        {"sampler": "grid", "parameters.lr.points": 1_000},
        "parameters",
        "at most 10,000 points, got 16,000",
    ),
    ({"parameters.LR": {"type": "int", "low": 1, "high": 2}}, "parameters", "lr and LR"),
    ({"parameters.a b": {"type": "int", "low": 1, "high": 2}}, "parameters", "'a b'"),
    ({"parameters.optimiser.choices": ["a", "b", "b"]}, "optimiser.choices", "got 'b'"),
    ({"parameters.optimiser.choices": ["a", NAN]}, "optimiser.choices", "got n"),
    ({"parameters.width.low": 1.5}, "parameters.width.low", "must be a whole number, got 1.5"),
    ({"pruner.type": "hyperband"}, "pruner.max_step", "is missing; hyperband needs it"),
    ({"pruner.type": "curve", "pruner.max_step": 9}, "pruner.type", "needs a target"),
    ({"pruner.type": "asha", "pruner.min_step": 0}, "pruner.min_step", "got 0"),
    ({"pruner.type": "median", "pruner.reduction": 4}, "pruner.reduction", "this is 'median', got 4"),
    ({"job.python": "/p", "job.conda": "c"}, "job", "python and conda are both given"),
    ({"job.env": {"RANK": "1"}}, "job: env", "RANK is set by Fairlead itself"),
)  # fmt: skip


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The good study with these values at these fields."""
    study = copy.deepcopy(GOOD)
    for field, value in changes.items():
        *tables, name = field.split(".")
        table = study
        for key in tables:
            table = table.setdefault(key, {})
        table[name] = value
    return study


def without(field: str) -> dict[str, Any]:
    study = copy.deepcopy(GOOD)
    *tables, name = field.split(".")
    table = study
    for key in tables:
        table = table[key]
    del table[name]
    return study


def as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {as_toml(one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def write(folder: Path, study: dict[str, Any]) -> Path:
    """The file of a study: TOML, or JSON where TOML has no such value."""
    if "null" in json.dumps(study):
        path = folder / "study.json"
        path.write_text(json.dumps(study))
    else:
        path = folder / "study.toml"
        path.write_text("".join(f"{key} = {as_toml(value)}\n" for key, value in study.items()))
    return path


def is_wrong(field: str, value: Any) -> bool:
    fine = FIELDS[field]
    return not any(type(value) is type(one) and value == one for one in fine)


def one_thing_wrong() -> Iterator[tuple[str, dict[str, Any], str, str]]:
    """A name of the case, the study, the field that is to be named, and a text of the sentence: the value,
    "" where another word says it."""
    for field in FIELDS:
        for value in WRONG:
            if is_wrong(field, value):
                yield f"{field} = {value!r}", changed({field: value}), field, quoted(value)
    for field in MISSING:
        yield f"{field} is missing", without(field), field, "is missing"
    for changes, field, text in TOGETHER:
        yield str(changes), changed(changes), field, text


def quoted(value: Any) -> str:
    """How a sentence shows a value, as far as all types of fields agree on it: 7 may be 7.0."""
    return "null" if value is None else repr(value)


def check(case: str, sentence: str, field: str, text: str) -> str:
    """What is wrong with a sentence, "" = nothing. One on a part of the value names that."""
    name = field.split(".")[-1].split(": ")[-1]
    if "\n" in sentence or len(sentence) > 400:
        return f"{case}: not one sentence: {sentence}"
    if not re.search(rf"(^|[ .:]){re.escape(name)}\b", sentence):
        return f"{case}: the field is not named: {sentence}"
    words = ("unknown field", "must not be empty", "is missing", "got 0")
    if text in sentence or any(word in sentence for word in words) or "[1]" in sentence:
        return ""
    if re.search(rf"{re.escape(name)}\.\w+: ", sentence):  # within the value
        return ""
    return f"{case}: the value is not told: {sentence}"


@pytest.fixture
def untouched(front: Served) -> Iterator[None]:
    """Nothing is stored while the test runs."""
    with front.client() as admin:
        before = len(admin.searches()), len(admin.jobs(""))
        yield
        assert (len(admin.searches()), len(admin.jobs(""))) == before


@pytest.mark.usefixtures("untouched")
def test_a_bad_file_is_refused_in_one_sentence_with_exit_code_2(
    front: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAIRLEAD_SERVER", front.url)
    monkeypatch.setenv("FAIRLEAD_TOKEN", front.admin)
    missing = ((f"{f} is missing", without(f), f, "is missing") for f in MISSING_IN_FILES)
    faults, count = [], 0
    for case, study, field, text in (*one_thing_wrong(), *missing):
        path = write(tmp_path, study)
        code = call("search", path)
        captured = capsys.readouterr()
        sentence = captured.err.removesuffix("\n")
        count += 1
        if code != 2 or captured.out or not sentence.startswith(f"fairlead: {path}:"):
            faults.append(f"{case}: exit code {code}: {captured.out}{sentence}")
        elif fault := check(case, sentence.partition(f"{path}:")[2], field, text):
            faults.append(fault)
    assert faults == []
    assert count > 500


@pytest.mark.usefixtures("untouched")
def test_a_bad_body_is_refused_in_one_sentence_with_status_400(front: Served) -> None:
    faults = []
    with httpx.Client(
        base_url=front.url,
        headers={"Authorization": f"Bearer {front.admin}", "Content-Type": "application/json"},
        verify=False,
        timeout=60.0,
    ) as api:
        for case, study, field, text in one_thing_wrong():
            body = json.dumps(study)
            if "NaN" in body or "Infinity" in body or case == "job.command = 'some words'":
                continue  # no JSON
            answer = api.post("/v1/searches", content=body)
            sentence = answer.json().get("error", "") if answer.status_code == 400 else answer.text
            if answer.status_code != 400 or not sentence.startswith("body: "):
                faults.append(f"{case}: {answer.status_code}: {sentence}")
            elif fault := check(case, sentence, field, text):
                faults.append(fault)
    assert faults == []


def test_a_body_may_be_written_as_a_file_is(front: Served) -> None:
    study = changed({"parameters.optimiser": {"choices": ["adam", "sgd"]}})
    study = {**study, "job": {**study["job"], "command": "python train.py"}}
    with httpx.Client(
        base_url=front.url,
        headers={"Authorization": f"Bearer {front.admin}"},
        verify=False,
        timeout=60.0,
    ) as api:
        answer = api.post("/v1/searches", json=study)
        assert answer.status_code == 201, answer.text
        assert api.post(f"/v1/searches/{answer.json()['id']}/stop").status_code < 300
