"""The examples that need no PyTorch."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "live"
NUMPY = ["numpy_job.py", "--steps", "60", "--step-ms", "v100=1,k80=5", "--log-every", "10"]


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / command[0]), *command[1:]],
        env={**os.environ, "FAIRLEAD_CHECKPOINT_DIR": str(folder), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def until_it_says(command: list[str], folder: Path, words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / command[0]), *command[1:]],
        env={**os.environ, "FAIRLEAD_CHECKPOINT_DIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return process
    raise AssertionError(f"it ended without {words!r}")


def test_the_numpy_job_proves_that_each_step_was_done_once(tmp_path: Path) -> None:
    whole = run(NUMPY, tmp_path / "whole")
    assert whole.stdout.splitlines()[-1].startswith("done: 60 steps, digest ")

    slow = [*NUMPY[:4], "20", *NUMPY[5:]]
    with until_it_says(slow, tmp_path / "parts", "step 10 ") as first:
        first.terminate()
        assert first.wait(120) == 0
    crashed = run([*NUMPY, "--crash-at", "40"], tmp_path / "parts")
    assert crashed.returncode == 1
    killed = run([*NUMPY, "--crash-at", "40", "--crash-hard"], tmp_path / "parts")
    assert killed.returncode == -signal.SIGABRT
    last = run(NUMPY, tmp_path / "parts")
    assert last.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]


def test_the_numpy_job_is_as_fast_as_its_accelerator(tmp_path: Path) -> None:
    slow = [*NUMPY[:4], "v100=1,k80=50", "--steps", "20"]
    began = time.monotonic()
    assert run(slow, tmp_path / "k80", FAIRLEAD_ACCELERATOR="k80").returncode == 0
    assert time.monotonic() - began >= 20 * 0.05


def test_the_unmanaged_job_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    command = ["unmanaged_job.py", "--seconds"]
    with until_it_says([*command, "600"], tmp_path, "goes on at 0.00 s") as first:
        time.sleep(0.2)
        first.terminate()
        assert first.wait(120) == 128 + signal.SIGTERM
    done_s = json.loads((tmp_path / "unmanaged.json").read_text())["done_s"]
    assert 0 < done_s < 600
    again = run([*command, str(done_s + 0.3)], tmp_path)
    assert again.returncode == 0
    assert f"goes on at {done_s:.2f} s" in again.stdout
    assert json.loads((tmp_path / "unmanaged.json").read_text())["done_s"] >= done_s + 0.3


@pytest.mark.parametrize("name", ["numpy_job.py", "unmanaged_job.py"])
def test_help(name: str, tmp_path: Path) -> None:
    message = run([name, "--help"], tmp_path)
    assert message.returncode == 0
    assert "usage" in message.stdout
