"""A whole cluster on this machine, and the demonstration that runs on it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.call_command import call
from tests.cluster.cluster import descendants, until

from fairlead.cli.demo_screen import Screen, report
from fairlead.cli.main import main
from fairlead.cli.up import PREFORK
from fairlead.cluster.demo.jobs import (
    NODES,
    RANKING,
    VISION,
)
from fairlead.cluster.demo.run import play
from fairlead.cluster.local import READY_S, LocalCluster
from fairlead.errors import ConfigError, FairleadError
from fairlead.model import jit
from fairlead.model.jit import COMPILING

UP = (sys.executable, "-m", "fairlead", "up")
SERVE = ("--port", "0", "--agent-port", "0", "--round", "1", "--heartbeat", "0.3", "--lease", "4")


def _nodes() -> dict[str, tuple[str, ...]]:
    return {
        name: ("--devices", devices, "--simulated-devices", "--prefork", PREFORK)
        for name, devices in NODES.items()
    }


def test_a_short_demonstration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = LocalCluster(tmp_path, _nodes(), SERVE)
    plan = ((0.0, VISION, 1.5), (0.0, RANKING, 1.5), (0.5, VISION, 0.5))
    try:
        cluster.start()
        with cluster.client() as client, Screen() as screen:
            summary = play(client, tmp_path / "checkpoints", screen.watch, cluster.broken, plan)
    finally:
        cluster.stop()
    assert [job.state for job in summary.jobs] == ["completed"] * 3
    assert all(job.steps == job.total_steps and job.lost_steps == 0 for job in summary.jobs)
    assert sum(summary.promised.values()) == pytest.approx(1.0)
    report(summary)
    message = capsys.readouterr().out
    assert "3 jobs in" in message
    assert "ranking-1" in message
    assert descendants(tmp_path) == []


def test_a_server_schedules_before_its_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh installation; interpreted kernels decide what compiled ones do."""
    kept = tmp_path / "kept"
    told: list[str] = []
    serve = (*SERVE, "--policy", "fifo", "--compile-in-background")
    cluster = LocalCluster(tmp_path, _nodes(), serve, report=told.append)
    with monkeypatch.context() as installation:
        installation.setenv("NUMBA_CACHE_DIR", str(kept))
        installation.delenv(jit._NOTICE_SHOWN, raising=False)
        try:
            cluster.start()
            (compiler,) = _compilers(cluster.processes["server"].pid)
            os.kill(compiler, signal.SIGSTOP)  # it shall not be done before the jobs are
            compiled = len(list(kept.rglob("*.nbi")))
            with cluster.client() as client:
                plan = ((0.0, VISION, 0.5), (0.0, RANKING, 0.5))
                summary = play(client, tmp_path / "c", lambda *_: None, cluster.broken, plan)
        finally:
            cluster.stop()
    (line,) = told
    found = re.fullmatch(r"compiling (\d+) kernels in the background (.*) \.\.\.", line)
    assert found
    assert found[2] == COMPILING
    assert compiled < int(found[1])
    assert [job.state for job in summary.jobs] == ["completed"] * 2
    assert call("replay", str(cluster.state)) == 0
    assert "all commands are the same" in capsys.readouterr().out
    assert descendants(tmp_path) == []


def _compilers(server: int) -> list[int]:
    """Process ids of those that compile for a server."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    lines = {int(one): Path(f"/proc/{one}/cmdline").read_bytes() for one in children}
    return [one for one, line in lines.items() if b"kernel_compiler" in line]


def test_a_server_that_compiles_says_so_to_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh installation was silent for a minute."""
    monkeypatch.setattr(LocalCluster, "_run", _compiling)
    told: list[str] = []
    cluster = LocalCluster(tmp_path, {}, report=told.append)
    with pytest.raises(FairleadError, match="server did not start"):
        cluster.start()
    assert told == [f"compiling 3 kernels {COMPILING} ..."]


def _compiling(
    cluster: LocalCluster, name: str, arguments: Sequence[str], fds: tuple[int, ...] = ()
) -> "subprocess.Popen[bytes]":
    """In the place of a server: says twice that it compiles, and ends once it has been heard."""
    line = f"fairlead: compiling 3 kernels {COMPILING} ..."
    code = f"import time; print({line!r}, {line!r}, sep='\\n', flush=True); time.sleep(3)"
    with (cluster.directory / f"{name}.log").open("wb") as log:
        call = (sys.executable, "-c", code)
        process = subprocess.Popen(call, stdout=log, stderr=log, pass_fds=fds)
    cluster.processes[name] = process
    return process


def test_what_does_not_start_says_why(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, {}, ("--round", "0.01"))
    with pytest.raises(ConfigError, match=r"server did not start: --round: must be"):
        cluster.start()
    cluster.stop()


def test_a_process_that_ends_is_noticed(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, {}, SERVE)
    try:
        cluster.start()
        assert cluster.broken() == ""
        cluster.processes["server"].kill()
        until(lambda: cluster.broken() == "server")
    finally:
        cluster.stop()


def test_a_demonstration_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    with _up(tmp_path, "--demo") as process:
        _read_until(process, "round ")
        assert any(tmp_path.iterdir())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert descendants(tmp_path) == []


def test_up_without_demo_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with _up(tmp_path, "--devices", "v100=1", "--state", str(state), "--port", "0") as process:
        message = _read_until(process, "Ctrl-C")
        url = next(line for line in message if line.startswith("page and API"))
        assert url.startswith("page and API: http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 130
    assert (state / "server" / "admin.token").exists()
    assert descendants(tmp_path) == []


def test_a_killed_up_takes_its_cluster_along(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"))
    with _up(tmp_path, "--devices", "v100=1", *state, "--port", "0") as process:
        _read_until(process, "Ctrl-C")
        process.kill()
        process.communicate(timeout=300)
    until(lambda: descendants(tmp_path) == [], what="the end of server and agent")


def test_the_demonstration_needs_a_new_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server").mkdir()
    with pytest.raises(SystemExit) as end:
        main(("up", "--demo", "--state", str(tmp_path)))
    assert end.value.code == 2
    assert "there is a cluster already" in capsys.readouterr().err


def _up(tmp: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*UP, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp)},
    )


def _read_until(process: "subprocess.Popen[str]", word: str) -> list[str]:
    """Lines up to the one that begins so. The server may have to compile kernels before."""
    message: list[str] = []
    end = time.monotonic() + READY_S
    assert process.stdout is not None
    for line in process.stdout:
        message.append(line)
        if line.startswith(word) or time.monotonic() > end:
            break
    assert any(line.startswith(word) for line in message), message
    return message
