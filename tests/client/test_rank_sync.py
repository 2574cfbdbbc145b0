"""Several ranks as real processes: on one step, with one checkpoint, or out."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fairlead.client.checkpoint import Checkpoints
from fairlead.client.messages import (
    Loaded,
    Progress,
    RankEnded,
    Save,
    StopRank,
    frame,
)
from fairlead.client.rank_sync import CheckStepPace, Join
from fairlead.client.stub_agent import StubAgent
from tests.free_port import free_port

RANK = Path(__file__).with_name("rank.py")


class Job:
    """The ranks of one start after another, and their agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = StubAgent(folder / "agent.sock", lease_s=2.0)
        self.ranks: list[subprocess.Popen[str]] = []
        self.port = 0

    def start(
        self, ranks: int, save_ranks: str = "zero", steps: int = 0, step_s: float = 0.002
    ) -> None:
        self.host.received.clear()
        self.port = free_port()
        env = self.host.environment(
            checkpoint_dir=str(self.folder / "ck"), rank_sync=f"127.0.0.1:{self.port}"
        )
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(RANK), save_ranks, str(step_s), str(steps)],
                env={**os.environ, **env, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]

    def until(self, step: int) -> None:
        """Until so many steps are done."""
        end = time.monotonic() + 120
        while not any(isinstance(m, Progress) and m.step >= step for m in self.host.received):
            assert time.monotonic() < end, self.host.received
            self.host.poll(0.05)

    def wait(self) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of each rank."""
        end = time.monotonic() + 120
        while any(rank.poll() is None for rank in self.ranks):
            assert time.monotonic() < end, self.host.received
            self.host.poll(0.02)
        done = []
        for rank in self.ranks:
            out, errors = rank.communicate()
            done.append((rank.returncode, out.strip(), errors.strip()))
        while self.host.poll(0.0):
            pass
        return done

    def close(self) -> None:
        self.host.close()
        for rank in self.ranks:
            rank.kill()
            rank.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    job.host.open()
    yield job
    job.close()


def digest(steps: int, rank: int = 0) -> str:
    """Of an uninterrupted job."""
    value = ""
    for step in range(steps):
        value = hashlib.sha256(f"{value}{step}/{rank}".encode()).hexdigest()
    return value


def test_all_ranks_stop_on_one_step_and_go_on_from_there(job: Job) -> None:
    job.start(3)
    job.until(50)
    job.host.send(StopRank("preempted"))
    done = job.wait()
    assert [code for code, _, _ in done] == [0, 0, 0]
    assert len({out for _, out, _ in done}) == 1
    step = int(done[0][1].split()[0])
    assert done[0][1] == f"{step} preempted {digest(step)}"
    end = job.host.received[-1]
    assert isinstance(end, RankEnded)
    assert (end.step, end.saved_step, end.completed) == (step, step, False)

    job.start(1, steps=step + 40)  # on fewer devices than before
    assert job.wait() == [(0, f"{step + 40} completed {digest(step + 40)}", "")]
    assert [one.step for one in job.host.received if isinstance(one, Loaded)] == [step]


def test_sigterm_at_any_rank_stops_all(job: Job) -> None:
    job.start(2)
    job.until(20)
    job.ranks[1].send_signal(signal.SIGTERM)
    done = job.wait()
    assert [code for code, _, _ in done] == [0, 0]
    assert done[0][1] == done[1][1]
    assert "SIGTERM" in done[0][1]


@pytest.mark.parametrize("alone", [0, 1])
def test_a_rank_that_is_told_to_stop_before_all_have_come_ends_at_once(
    job: Job, alone: int
) -> None:
    job.start(2)
    other = job.ranks[1 - alone]
    other.kill()
    while not catches_sigterm(job.ranks[alone].pid):
        job.host.poll(0.02)
    job.ranks[alone].send_signal(signal.SIGTERM)
    code, _, errors = job.wait()[alone]
    assert code == 75, errors
    assert "told to stop before the first step" in errors


def catches_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_every_rank_has_its_part(job: Job) -> None:
    job.start(2, "all")
    job.until(20)
    job.host.send(Save())
    while not any(isinstance(m, Progress) and m.saved_step for m in job.host.received):
        job.host.poll(0.05)
    job.host.send(StopRank("preempted"))
    step = int(job.wait()[0][1].split()[0])
    found = Checkpoints(job.folder / "ck").newest()
    assert found is not None
    assert sorted(found.manifest.parts) == ["rank-0/state", "rank-1/state"]
    job.start(2, "all", steps=step + 20)
    outs = [out for _, out, _ in job.wait()]
    assert outs == [f"{step + 20} completed {digest(step + 20, rank)}" for rank in (0, 1)]

    job.start(1, "all", steps=step + 30)
    [(code, _, errors)] = job.wait()
    assert code == 1
    assert "was saved by 2 ranks" in errors


@pytest.mark.parametrize("dies", [0, 1])
def test_a_dead_rank_ends_the_others(job: Job, dies: int) -> None:
    job.start(2)
    job.until(20)
    job.ranks[dies].kill()
    done = job.wait()
    assert done[dies][0] == -signal.SIGKILL
    assert done[1 - dies][0] == 76
    assert f"rank {dies} is gone" in done[1 - dies][2]


def test_a_stranger_is_not_let_in(job: Job) -> None:
    job.start(2)
    late = job.ranks.pop()
    late.kill()
    late.communicate()
    end = time.monotonic() + 120
    while True:
        assert time.monotonic() < end
        job.host.poll(0.02)
        try:
            stranger = socket.create_connection(("127.0.0.1", job.port), timeout=60)
        except OSError:
            continue
        break
    with stranger:
        stranger.sendall(frame(Join("a guess", 1, 1)))
        while stranger.recv(1):
            raise AssertionError("the stranger was answered")
    assert job.ranks[0].poll() is None


def test_check_steps_come_at_an_even_pace() -> None:
    pace, now, step, strides = CheckStepPace(), 100.0, 0, []
    for _ in range(12):
        following = pace.next(step, now)
        strides.append(following - step)
        now += (following - step) * 0.01
        step = following
    assert strides[0] == 1
    assert all(after <= 2 * before for before, after in pairwise(strides))
    assert 20 <= strides[-1] <= 25
    now += 60.0  # the job got slow
    assert pace.next(step, now) == step + 1
