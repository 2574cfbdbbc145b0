"""What ``fairlead undrain`` says it has done."""

import inspect
from types import SimpleNamespace

import pytest

from fairlead.cli.cluster import undrain


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("up", "node four was not drained: it is in use\n"),
        ("drained", "node four is in use again\n"),
        ("unhealthy", "node four is in use again\n"),
    ],
)
def test_a_node_that_was_in_use_is_not_taken_back(
    state: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    client = SimpleNamespace(
        nodes=lambda: [SimpleNamespace(name="four", state=state)], undrain=asked.append
    )
    inspect.unwrap(undrain)(client, "four")
    assert capsys.readouterr().out == told
    assert asked == ["four"]
