"""Jobs that hang, with real ranks: told with their stacks, and ended by policy."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import running, until
from tests.cluster.server.test_retries import (
    LIMIT_S,
    training,
    two_nodes,
)

from fairlead.cluster.http_client import Client

HANG = (
    "flag = pathlib.Path('{flag}')\n"
    "    if number == 5 and os.environ['RANK'] == '1' and not flag.exists():\n"
    "        flag.touch(); import threading; threading.Event().wait({seconds})"
)


@contextmanager
def one_node(directory: Path, round_s: int) -> Iterator[Client]:
    agents = {"a": "v100=2"}
    options = ("--round", str(round_s))
    with running(directory, options, agents=agents) as cluster, cluster.client() as client:
        yield client


def test_a_hung_rank_is_told_with_its_stack_and_the_job_started_again(tmp_path: Path) -> None:
    step = HANG.format(flag=tmp_path / "hung", seconds="")
    with one_node(tmp_path, 30) as client:
        spec = training(tmp_path, step, scale_factor=2, stall_timeout_s=4.0)
        (job,) = client.submit([spec])
        until(lambda: client.job(job).failures == 1, LIMIT_S, "that the hang is ended")
        (first, *_) = client.attempts(job)
        assert first.why.startswith("failed: no step for ")
        assert "rank 1 is in threading.wait (train.py:7)" in first.why
        assert "rank 0 is in " in first.why
        assert "Rank 1:" in first.traceback
        assert 'train.py", line 7 in step' in first.traceback
        failure = client.job(job).failure
        assert failure is not None
        assert failure.kind == "stalled"
        until(lambda: client.job(job).state == "completed", LIMIT_S)


def test_where_it_is_only_to_be_told_it_goes_on(tmp_path: Path) -> None:
    step = HANG.format(flag=tmp_path / "hung", seconds="15")
    with two_nodes(tmp_path, ("--round", "60")) as client:  # rank 1 is on the other node
        limits = {"stall_timeout_s": 1.5, "on_stall": "report"}
        (job,) = client.submit([training(tmp_path, step, scale_factor=2, **limits)])
        until(lambda: "rank 1 is in" in client.job(job).reason, LIMIT_S)
        assert client.job(job).state == "running"
        assert "Rank 1:" in client.attempts(job)[0].traceback
        until(lambda: client.job(job).state == "completed", LIMIT_S)
        assert client.job(job).failures == 0
        assert client.attempts(job)[0].traceback == ""


def test_of_a_gang_that_is_ended_for_a_hang_all_nodes_tell_where_their_ranks_stand(
    tmp_path: Path,
) -> None:
    step = HANG.format(flag=tmp_path / "hung", seconds="")
    with two_nodes(tmp_path, ("--round", "60")) as client:
        limits = {"stall_timeout_s": 3.0, "grace_s": 2.0}
        (job,) = client.submit([training(tmp_path, step, scale_factor=2, **limits)])
        until(lambda: client.job(job).failures == 1, LIMIT_S, "that the hang is ended")
        (first, *_) = client.attempts(job)
        assert first.why.startswith("failed: no step for ")
        assert "rank 0 is in " in first.why
        assert "rank 1 is in threading.wait (train.py:7)" in first.why
        assert "Rank 0:" in first.traceback
        assert "Rank 1:" in first.traceback
        until(lambda: client.job(job).state == "completed", LIMIT_S)


def test_the_code_after_the_loop_is_not_a_hang_and_a_start_may_be_one(tmp_path: Path) -> None:
    ends, hangs = tmp_path / "ends", tmp_path / "hangs"
    ends.mkdir()
    hangs.mkdir()
    with one_node(tmp_path, 30) as client:
        slow = training(ends, "pass", stall_timeout_s=4.0)
        script = ends / "train.py"
        script.write_text(script.read_text() + "\ntime.sleep(6)\n")
        never = training(hangs, "pass", start_timeout_s=8.0, max_retries=0)
        script = hangs / "train.py"
        script.write_text("import time\ndef load_data():\n    time.sleep(600)\nload_data()\n")
        done, stuck = client.submit([slow, never])
        until(lambda: client.job(stuck).state == "dropped", LIMIT_S)
        assert "no first step for" in client.job(stuck).reason
        if (Path(sys.executable).parent / "py-spy").exists():  # it never spoke
            assert "rank 0 is in train.py:3 (load_data)" in client.job(stuck).reason
        until(lambda: client.job(done).state == "completed", LIMIT_S)
        assert client.job(done).failures == 0


HANGS_IN_SAVE = """
import pathlib, threading, fairlead
def load(path): pass
def save(path):
    path.write_text("x")
    threading.Event().wait()
with fairlead.Lease(load=load, save=save, total_steps=10**6, checkpoint_s=1000.0) as lease:
    while lease.next():
        threading.Event().wait(0.05)
"""


def test_a_job_that_hangs_in_save_as_it_is_stopped_is_told_with_its_place(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANGS_IN_SAVE)
    with one_node(tmp_path, 30) as client:
        spec = training(tmp_path, "pass", grace_s=6.0)
        script.write_text(HANGS_IN_SAVE)
        (job,) = client.submit([spec])
        until(lambda: client.job(job).steps > 2, LIMIT_S)
        client.pause(job)
        place = "rank 0 is in threading.wait (train.py:6)"
        until(lambda: place in client.job(job).reason, LIMIT_S, "that it is told while it hangs")
        assert "told to stop (paused) (it saves); " in client.job(job).reason
        until(lambda: client.attempts(job)[0].ended_s is not None, LIMIT_S)
        (attempt,) = client.attempts(job)
        assert attempt.why == (
            f"paused; killed: did not end within 6 s of being told to stop (paused); {place}"
        )
        assert "Rank 0:" in attempt.traceback
        assert 'train.py", line 6 in save' in attempt.traceback
        assert client.job(job).failures == 0, "it was told to stop"
        told = client.explain(job).why_here
        assert f"{place}." in told
