"""Signals end an agent, a server or a cluster in order, however many come; so does a terminal that is closed,
unless that signal is ignored. An output that nobody reads ends none."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.cluster import descendants

SCRIPT = """
import asyncio, os, signal
from fairlead.cluster.end_signals import EndSignals

async def run():
    received = asyncio.Event()
    with EndSignals(received.set):
        os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(10):
            await asyncio.sleep(0)
        print(received.is_set())

asyncio.run(run())
"""
AGENT = ("agent", "--server", "127.0.0.1:1", "--devices", "v100=1", "--simulated-devices")
PORTS = ("--port", "0", "--agent-port", "0")
# What is started, what it says when it is ready, and its exit code
COMMANDS = {
    "agent": ((*AGENT, "--state", "state"), "unavailable", 0),
    "serve": (("serve", "--state", "state", *PORTS), "agents: ", 0),
    "up": (("up", "--state", "state", "--port", "0", "--devices", "v100=1"), "Ctrl-C", 130),
}


@pytest.mark.parametrize(("ignored", "leaves"), [(False, "True"), (True, "False")])
def test_a_hangup_ends_in_order_unless_it_is_ignored(ignored: bool, leaves: str) -> None:
    def prepare() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)

    done = subprocess.run(
        (sys.executable, "-c", SCRIPT), preexec_fn=prepare, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, leaves), done.stderr


@pytest.mark.parametrize(
    ("name", "signals"),
    [
        ("agent", (signal.SIGINT,)),
        ("agent", (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
        pytest.param("serve", (signal.SIGINT,), marks=pytest.mark.long),
        ("serve", (signal.SIGHUP, signal.SIGTERM)),
        pytest.param("up", (signal.SIGINT,), marks=pytest.mark.long),
        ("up", (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)),
    ],
    ids=str,
)
def test_signals_until_the_end(
    tmp_path: Path, name: str, signals: tuple[signal.Signals, ...]
) -> None:
    """They ended the process by the signal, once it had taken its handlers away."""
    command, word, code = COMMANDS[name]
    with _started(tmp_path, command) as process:
        assert process.stdout is not None
        message = list(itertools.takewhile(lambda line: word not in line, process.stdout))
        for number in itertools.cycle(signals):
            if process.poll() is not None:
                break
            process.send_signal(number)
            time.sleep(0.002)  # else they leave it no time
        rest, _ = process.communicate()
    assert process.returncode == code, (message, rest)
    assert "Traceback" not in rest
    assert descendants(tmp_path) == []


@pytest.mark.parametrize("name", ["agent", "serve", "up"])
def test_an_output_that_nobody_reads_ends_nothing(tmp_path: Path, name: str) -> None:
    """As of ``fairlead serve | head -1``: it ended, with exit code 0."""
    command, _, code = COMMANDS[name]
    reader, writer = os.pipe()
    os.close(reader)
    with _started(tmp_path, command, writer) as process:
        os.close(writer)
        made = tmp_path / "state" / ("server/admin.token" if name == "up" else "admin.token")
        made = tmp_path / "state" / "agent.sock" if name == "agent" else made
        while not made.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate()
    assert process.returncode == code, told
    assert "Broken" not in told
    assert descendants(tmp_path) == []


def _started(
    folder: Path, command: tuple[str, ...], output: int | None = None
) -> "subprocess.Popen[str]":
    """With its own standard output, or else with both as one."""
    return subprocess.Popen(
        (sys.executable, "-m", "fairlead", *command, "--inside-job"),
        cwd=folder,
        stdout=subprocess.PIPE if output is None else output,
        stderr=subprocess.STDOUT if output is None else subprocess.PIPE,
        text=True,
        env={**os.environ, "FAIRLEAD_RUN_DIR": str(folder / "run"), "TMPDIR": str(folder)},
    )
