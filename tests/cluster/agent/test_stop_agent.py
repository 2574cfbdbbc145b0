"""`fairlead agent --stop`: it ends whoever has the state directory, and nobody else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.cli.main import main
from fairlead.cluster.agent.state_directory import lock_state
from fairlead.cluster.agent.stop_agent import stop_agent

HOLDER = """
import pathlib, signal, sys, time
from fairlead.cluster.agent.state_directory import lock_state
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(7)))
lock = lock_state(pathlib.Path(sys.argv[1]))
print("has it", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def holder(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that has the state directory, and takes a while to end."""
    command = (sys.executable, "-c", HOLDER, str(tmp_path / "state"))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"has it\n"
            yield process
        finally:
            process.kill()


def test_it_returns_when_the_agent_has_ended(
    holder: "subprocess.Popen[bytes]", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "state", copy)
    assert not stop_agent(copy), "the agent of the original is left alone"
    assert holder.poll() is None
    stop = ["agent", "--stop", "--node", "one", "--state", str(tmp_path / "state")]
    with pytest.raises(SystemExit) as ended:
        main(stop)
    assert ended.value.code == 0
    assert holder.poll() == 7, "it had ended before the call returned"
    with pytest.raises(SystemExit) as ended:
        main(stop)
    assert ended.value.code == 0
    assert capsys.readouterr().out == (
        f"node one: its agent has ended\nnode one: no agent runs in {tmp_path / 'state'}\n"
    )


def test_no_agent_has_ever_run_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "nothing"
    assert not stop_agent(state)
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--stop", "--node", "typo", "--state", str(state)])
    assert ended.value.code == 2
    assert f"node 'typo': no agent has ever run in {state}" in capsys.readouterr().err
    assert not state.exists()


def test_the_agent_has_ended_and_its_pid_is_another_process(tmp_path: Path) -> None:
    os.close(lock_state(tmp_path / "state"))  # the owner is this process; the lock is free
    assert not stop_agent(tmp_path / "state")
