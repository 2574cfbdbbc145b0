"""Options of ``fairlead serve`` on their way to the server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.main import main
from fairlead.cluster.server.options import LiveOptions


def serve(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[LiveOptions]:
    """The options with which a server would have run."""
    seen: list[LiveOptions] = []

    async def run(_: Path, options: LiveOptions, *__: Any) -> None:
        seen.append(options)

    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    monkeypatch.setattr("fairlead.cluster.server.server.serve", run)
    monkeypatch.setattr("fairlead.cluster.server.kernel_compiler.compile_in_child", nothing)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--state", "nowhere", *arguments])
    assert bool(seen) == (ended.value.code == 0)
    return seen


def test_witnesses_that_are_not_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    (options,) = serve(monkeypatch, "--ignore-witness", "a-1", "--ignore-witness", "b")
    assert options.ignored_witnesses == {"a-1", "b"}
    (options,) = serve(monkeypatch)
    assert options.ignored_witnesses == frozenset()


def test_a_witness_that_is_no_name_of_a_node_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(monkeypatch, "--ignore-witness", "a b") == []
    assert "ignore-witness 'a b': must be 1 to 64 letters" in capsys.readouterr().err
