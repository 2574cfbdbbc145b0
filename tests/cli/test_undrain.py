"""What ``fairlead undrain`` says it has done."""

import inspect
from types import SimpleNamespace

import pytest

from fairlead.cli.cluster import drain, undrain
from fairlead.cluster.front.facade import NotFoundError


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
    inspect.unwrap(undrain)(client, ["four"])
    assert capsys.readouterr().out == told
    assert asked == ["four"]


def test_several_nodes_are_drained_and_taken_back_and_who_is_refused_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def act(node: str) -> list[str]:
        asked.append(node)
        if node == "no":
            raise NotFoundError("node no: there is none")
        return [f"job 1: its 5 steps on {node} are lost"] if node == "two" else []

    nodes = [SimpleNamespace(name=name, state="drained") for name in ("two", "three")]
    client = SimpleNamespace(
        nodes=lambda: nodes, drain=act, undrain=lambda node: act(node) and None
    )
    with pytest.raises(NotFoundError):
        inspect.unwrap(drain)(client, ["two", "no", "three"])
    said = capsys.readouterr()
    assert said.out == "node two drains\nnode three drains\n"
    assert "its 5 steps on two are lost" in said.err
    inspect.unwrap(undrain)(client, ["two", "three"])
    assert capsys.readouterr().out == "node two is in use again\nnode three is in use again\n"
    assert sorted(asked) == ["no", "three", "three", "two", "two"]
