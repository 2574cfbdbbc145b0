"""Where ranks stand: read from what the interpreter or py-spy writes, and said in a sentence."""

import os
import signal
import subprocess

import pytest

from fairlead.cluster.agent.inspection import _stopped
from fairlead.cluster.agent.stacks import (
    RankStack,
    read_stack,
    same_places,
    together,
    where,
)

REDUCES = """Thread 0x00007fc34951c6c0 (most recent call first):
  File "/v/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007fc34a06ab80 (most recent call first):
  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_reduce
  File "/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/ann/train.py", line 57 in step
  File "/home/ann/train.py", line 80 in <module>
"""
SPIED = """Process 4214: python /home/ann/train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4214 (idle): "MainThread"
    load (/home/ann/train.py:40)
    <module> (/home/ann/train.py:80)
Thread 4216 (idle): "Thread-1 (work)"
    wait (threading.py:327)
"""


def stack(rank: int, text: str) -> RankStack:
    found = read_stack(rank, text)
    assert found is not None
    return found


def test_both_are_read() -> None:
    reduces, loads = stack(1, REDUCES), stack(0, SPIED)
    assert [frame.function for frame in reduces.frames][::3] == ["all_reduce", "<module>"]
    assert where([reduces]) == "rank 1 is in torch.distributed.all_reduce (train.py:57)"
    assert where([loads]) == "rank 0 is in train.py:40 (load)"
    assert reduces.waits
    assert not loads.waits


def test_the_odd_one_comes_first() -> None:
    all_ = [stack(rank, REDUCES) for rank in (0, 1, 3)] + [stack(2, SPIED)]
    assert where(all_) == (
        "rank 2 is in train.py:40 (load); "
        "ranks 0, 1, 3 are in torch.distributed.all_reduce (train.py:57)"
    )
    assert together(all_).startswith("Rank 0:\nThread 0x")
    assert "Rank 3:" in together(all_)


def test_whether_anything_moved() -> None:
    before = {0: stack(0, REDUCES), 1: stack(1, SPIED)}
    assert same_places(before, {0: stack(0, REDUCES), 1: stack(1, SPIED)})
    assert not same_places(before, {0: stack(0, REDUCES)})
    assert not same_places(before, {0: stack(0, SPIED), 1: stack(1, SPIED)})


@pytest.mark.parametrize("text", ["", "Thread 1 (most recent call first):\n", "Error: no process"])
def test_where_there_is_no_stack(text: str) -> None:
    assert read_stack(0, text) is None
    assert where([]) == ""


def test_a_rank_that_a_signal_keeps_from_running_is_told_as_that() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        found = _stopped({3: process.pid, 4: os.getpid()})
    finally:
        process.kill()
        process.wait()
    assert where(list(found.values())) == "rank 3 is stopped (state T, by SIGSTOP or a debugger)"
    assert not found[3].waits
