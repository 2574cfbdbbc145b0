from typing import Any

import msgspec
import pytest

from fairlead.cluster.front.api.bodies import NewUser
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.conversion_errors import describe_error
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import StudySpec


def complaint(content: Any, type_: Any) -> str:
    """What is said of content that does not fit."""
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.convert(content, type_)
    return describe_error(wrong.value, content, type_)


def test_the_value_is_quoted_from_deep_inside() -> None:
    content: dict[str, Any] = {"a": [{"b": 1}, {"c": 1, "b": "x" * 100}]}
    message = complaint(content, dict[str, list[dict[str, int]]])
    assert message.startswith("a[1].b: expected int, got 'xxx")
    assert len(message) < 100
    message = complaint({"command": ["a"], "total_steps": "x" * 100}, JobSpec)
    assert message.startswith("total_steps: expected int, got 'xxx")
    assert len(message) < 100


def test_the_table_that_is_wrong_is_named_among_others() -> None:
    good = {"type": "float", "low": 0, "high": 1}
    study = {"metric": "m", "trials": 1, "job": {"command": ["x"], "total_steps": 1}}

    def of(wrong: Any) -> str:
        return complaint(study | {"parameters": {"a": good, "b": wrong, "c": good}}, StudySpec)

    assert of(7) == "parameters.b: expected object, got 7"
    assert of({"low": "x"}) == "parameters.b.low: expected float, got 'x'"
    assert of({"type": "flaot"}).startswith("parameters.b.type: must be 'categorical', 'float' or")
    assert of({"lwo": 1}) == "parameters.b.lwo: unknown field; did you mean low?"
    assert of({"choices": [1, {}]}).startswith("parameters.b.choices[1]: expected")


def test_a_similar_field_is_named_only_where_the_object_may_have_it() -> None:
    assert complaint({"name": "anna"}, NewUser) == "name: unknown field"
    message = complaint({"user": "anna", "tenat": "t"}, NewUser)
    assert message == "tenat: unknown field; did you mean tenant?"


def test_half_of_a_surrogate_pair_is_malformed_json() -> None:
    with pytest.raises(msgspec.DecodeError) as wrong:
        msgspec.json.decode(b'{"name": "\\ud800"}', type=JobSpec)
    assert "half of a surrogate pair" in describe_error(wrong.value, None, JobSpec)


def test_the_values_of_a_choice_are_named_wherever_the_job_is() -> None:
    good = {"command": ["a"], "total_steps": 9}
    message = complaint({"add_jobs": [good, good | {"prefork": "yes"}]}, WhatIf)
    assert message == "add_jobs[1].prefork: must be true, false or 'auto', got 'yes'"


def test_the_failing_one_of_many_is_found_with_few_conversions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    converted = []
    convert = msgspec.convert

    def counting(*given: Any, **named: Any) -> Any:
        converted.append(1)
        return convert(*given, **named)

    content = {"env": {f"A{i}": "x" for i in range(10_000)} | {"bad": 1, "B": "x"}}
    with pytest.raises(msgspec.ValidationError) as found:
        msgspec.convert(content, dict[str, dict[str, str]])
    monkeypatch.setattr(msgspec, "convert", counting)
    said = describe_error(found.value, content, dict[str, dict[str, str]])
    assert said == "env.bad: expected str, got 1"
    assert len(converted) < 60
