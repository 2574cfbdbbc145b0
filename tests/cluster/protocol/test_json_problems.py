"""What is wrong with well-formed JSON is found in time and memory in proportion to it."""

import json
import tracemalloc
from typing import Any

import pytest

from fairlead.cluster.protocol.json_problems import json_problem


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"x" * 30_000: [0] * 30_000}, id="a long name of many"),
        pytest.param({"x" * 30_000: dict.fromkeys(map(str, range(5_000)), 0)}, id="of a table"),
        pytest.param({"x" * 30_000: [[[0] * 100] * 10] * 30}, id="deeper"),
    ],
)
def test_places_that_are_all_right_are_not_put_into_words(content: Any) -> None:
    data = json.dumps(content).encode()
    tracemalloc.start()
    try:
        assert json_problem(data) == ""
        assert tracemalloc.get_traced_memory()[1] < 100 * len(data)
    finally:
        tracemalloc.stop()


def test_the_first_value_of_no_use_is_named_however_deep_it_is() -> None:
    data = b'{"a": ' + b"[" * 900 + b"0, 1e999" + b"]" * 900 + b', "b": NaN}'
    said = json_problem(data)
    assert said.startswith("a[0][0][0]")
    assert said.endswith("...: number out of range, got 1e999")
    assert len(said) < 300


def test_a_long_name_is_cut() -> None:
    said = json_problem(b'{"' + b"x" * 100_000 + b'": [NaN]}')
    assert said == "x" * 197 + "...: JSON has no such number, got NaN"
