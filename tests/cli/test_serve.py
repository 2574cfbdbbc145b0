"""Options of ``fairlead serve`` on their way to the server."""

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.main import main
from fairlead.cluster.server import kept_kernels, kernel_compiler
from fairlead.cluster.server.options import LiveOptions
from fairlead.cluster.store.store import lock
from fairlead.model import jit


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
    assert "--ignore-witness 'a b': must be 1 to 64 letters" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("background", [True, False])
def test_a_port_that_is_taken_is_told_before_kernels_are_compiled(
    kept: bool,
    background: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def compiles(*_: object) -> None:
        raise AssertionError("compiles before it has looked")

    monkeypatch.setattr(kept_kernels, "are_all_kept", lambda: False)
    if kept:
        monkeypatch.setattr(jit, "needs_compilation", lambda: True)
        monkeypatch.setattr(kernel_compiler, "_compiler", compiles)
    else:  # they are compiled in this process, at each start
        monkeypatch.setattr(jit, "needs_compilation", lambda: False)
        monkeypatch.setattr(jit, "missing_kernels", lambda: [object()])
        monkeypatch.setattr(jit, "prepare", compiles)
    arguments = ["--state", "nowhere", "--agent-port", "0"]
    arguments += ["--compile-in-background"] if background else []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as ended:
            main(["serve", *arguments, "--port", str(port)])
    assert ended.value.code == 2
    told = f"127.0.0.1:{port}: cannot listen there (Address already in use)"
    assert told in capsys.readouterr().err
    assert not Path("nowhere").exists()


def test_devices_that_are_none_are_told_before_a_cluster_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", "--devices", "x", "--state", str(tmp_path / "up")])
    assert ended.value.code == 2
    told = "fairlead: --devices: expected nvml or TYPE=NUMBER as v100=4, got 'x'\n"
    assert capsys.readouterr().err == told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["port", "agent port", "state", "option", "certificate"])
@pytest.mark.parametrize("compiles", [False, True])
def test_nothing_is_said_to_start_that_is_refused(
    what: str,
    compiles: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def compile_nothing(*_: object) -> None:
        raise AssertionError("compiles before it has looked")

    monkeypatch.setattr(kept_kernels, "are_all_kept", lambda: False)
    monkeypatch.setattr(jit, "needs_compilation", lambda: compiles)
    monkeypatch.setattr(kernel_compiler, "_compiler", compile_nothing)
    state = tmp_path / "state"
    given = {"--port": "0", "--agent-port": "0", "--state": str(state)}
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = str(taken.getsockname()[1])
        match what:
            case "port":
                given["--port"], told = port, f"127.0.0.1:{port}: cannot listen there"
            case "agent port":
                given["--agent-port"], told = port, f"127.0.0.1:{port}: cannot listen there"
            case "state":
                state.mkdir()
                stack.callback(os.close, lock(state))
                told = "a server is using this state directory"
            case "option":
                given["--lease"], told = "nan", "--lease: must be from 1 to 3600 seconds, got nan"
            case _:
                given["--tls-cert"], given["--tls-key"] = __file__, __file__
                told = "not a certificate and its key"
        with pytest.raises(SystemExit) as ended:
            main(["serve", *(word for pair in given.items() for word in pair)])
    assert ended.value.code == 2
    said = capfd.readouterr().err
    assert said.startswith("fairlead: ")
    assert told in said
    assert said.count("\n") == 1
