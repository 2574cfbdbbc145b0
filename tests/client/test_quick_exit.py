"""A process that is told to stop leaves quickly, and loses nothing that its script counts on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.client.messages import (
    Progress,
    RankEnded,
    StopRank,
)
from tests.client.training import agent

SCRIPT = """
import atexit, sys, threading, time
from pathlib import Path
from fairlead import Lease
here, how = Path(sys.argv[1]), sys.argv[2]
class Slow:
    def __del__(self):
        (here / "torn down").touch()
slow = Slow()
left_open = open(here / "left open", "w")
left_open.write("a line that is not flushed")
atexit.register(lambda: (here / "atexit").touch())
threading.Timer(0.2, (here / "thread").touch).start()
print("said", end="")
lease = Lease(load=lambda p: None, save=lambda p: p.write_text("x") and None, total_steps=10**9, exit=how)
try:
    with lease:
        while lease.next():
            time.sleep(0.001)
finally:
    (here / "finally").touch()
    if "raise" in sys.argv:
        raise ValueError("in a finally block")
"""


def stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str, leads: bool = True
) -> "tuple[int, str]":
    """Exit code and output."""
    with agent(folder, monkeypatch) as served:
        monkeypatch.setenv("FAIRLEAD_CHECKPOINT_DIR", str(folder / "checkpoints"))
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ},
            start_new_session=leads,
            text=True,
        )
        served.wait_for(Progress, within_s=60.0)
        served.host.send(StopRank("preempted"))
        served.wait_for(RankEnded, within_s=60.0)
        out, _ = process.communicate(timeout=60.0)
        return process.returncode, out


@pytest.mark.parametrize(("how", "torn_down"), [("quick", False), ("clean", True)])
def test_nothing_is_lost_but_the_tearing_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, torn_down: bool
) -> None:
    assert stopped(tmp_path, monkeypatch, how) == (0, "said")
    for name in ("atexit", "thread", "finally"):
        assert (tmp_path / name).exists(), name
    assert (tmp_path / "left open").read_text() == "a line that is not flushed"
    assert (tmp_path / "torn down").exists() == torn_down


def test_an_exception_on_the_way_out_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stopped(tmp_path, monkeypatch, "quick", "raise") == (1, "said")


def test_below_a_launcher_the_end_is_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stopped(tmp_path, monkeypatch, "quick", leads=False) == (0, "said")
    assert (tmp_path / "torn down").exists()
