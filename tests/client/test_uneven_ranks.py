"""Ranks of which some have fewer batches than others: those that have no more wait until all have come to
their end, and each goes on at its own place."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client.messages import Progress, RankEnded, StopRank
from fairlead.client.rank_sync import RankStatus
from fairlead.client.stub_agent import StubAgent
from fairlead.client.uneven_ranks import WaitNotice, are_uneven, difference, training_step
from tests.free_port import free_port

# FOLDER WAY BATCHES WAITS CHECK_S: this rank's batches of a pass; the batch in which it waits for a file
SCRIPT = """
import sys, time
from pathlib import Path
import fairlead
import fairlead.client.rank_sync

here, way, batches, waits = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
fairlead.client.rank_sync.CHECK_S = float(sys.argv[5])

def write(line):
    with (here / f"log-{it.rank}").open("a") as file:
        file.write(line + "\\n")

def train(x):
    write(f"{it.epoch}/{x}")
    while f"{it.epoch}/{x}" == waits and not (here / "go").exists():
        time.sleep(0.01)

data = list(range(batches)) if "list" in way else lambda epoch, size: iter(range(batches))
functions = {"load": lambda _: None, "save": Path.touch}
if "epochs" in way:
    it = fairlead.Iterator(data, epochs=3, **functions)
    for epoch in it.epochs():
        for x in it:
            train(x)
        write(f"after {epoch}")
else:
    it = fairlead.Iterator(data, **functions)
    for x in it:
        train(x)
print("end", it.step, it.finished)
"""


class UnevenJob:
    """The starts of a job of several ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = StubAgent(folder / "agent.sock", lease_s=2.0)
        self._ranks: list[subprocess.Popen[str]] = []

    def start(self, way: str, batches: tuple[int, ...], waits: str = "", total: int = 0) -> None:
        """batches: of each rank, in a pass; waits: the batch in which rank 1 waits for a file; then
        the ranks speak at every step."""
        self.host.received.clear()
        more: dict[str, str | int] = {"total_steps": total} if total else {}
        env = self.host.environment(
            checkpoint_dir=str(self.folder / "ck"), rank_sync=f"127.0.0.1:{free_port()}", **more
        )
        words = sys.executable, "-c", SCRIPT, str(self.folder), way
        self._ranks = [
            subprocess.Popen(
                [*words, str(count), waits * (rank == 1), "0" if waits else "0.25"],
                env={**os.environ, **env, "RANK": str(rank), "WORLD_SIZE": str(len(batches))},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, count in enumerate(batches)
        ]

    def log(self, rank: int) -> list[str]:
        file = self.folder / f"log-{rank}"
        return file.read_text().splitlines() if file.exists() else []

    def ended(self) -> list[tuple[int, str, str]]:
        """Wait for the ranks. Returns exit code, output and errors of each."""
        end = time.monotonic() + 120
        while any(rank.poll() is None for rank in self._ranks):
            assert time.monotonic() < end, self.host.received
            self.host.poll(0.02)
        while self.host.poll(0.0):
            pass
        done = [(rank, *rank.communicate()) for rank in self._ranks]
        return [(rank.returncode, out.strip(), errors) for rank, out, errors in done]

    def until_logged(self, rank: int, line: str) -> None:
        end = time.monotonic() + 120
        while line not in self.log(rank):
            assert time.monotonic() < end, (self.log(rank), self.host.received)
            self.host.poll(0.02)

    def close(self) -> None:
        self.host.close()
        for rank in self._ranks:
            rank.kill()
            rank.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[UnevenJob]:
    job = UnevenJob(tmp_path)
    job.host.open()
    yield job
    job.close()


def whole(batches: int) -> list[str]:
    """What a rank logs of its three passes."""
    return [
        line
        for epoch in range(3)
        for line in (*(f"{epoch}/{x}" for x in range(batches)), f"after {epoch}")
    ]


@pytest.mark.parametrize("batches", [(10, 9), (9, 10), (9, 10, 8)])
@pytest.mark.parametrize(("way", "total"), [("epochs", 0), ("epochs list", 30)])
def test_ranks_with_fewer_batches_wait_at_their_end_and_all_passes_are_done(
    job: UnevenJob, batches: tuple[int, ...], way: str, total: int
) -> None:
    job.start(way, batches, total=total)
    done = job.ended()
    assert [(code, out) for code, out, _ in done] == [(0, f"end {3 * n} True") for n in batches]
    assert [job.log(rank) for rank in range(len(batches))] == [whole(n) for n in batches]
    (end,) = (one for one in job.host.received if isinstance(one, RankEnded))
    assert (end.step, end.saved_step, end.completed) == (3 * batches[0], 3 * batches[0], True)


@pytest.mark.parametrize("batches", [(10, 9), (9, 10)])
def test_a_single_pass_of_ranks_with_fewer_batches_comes_to_its_end(
    job: UnevenJob, batches: tuple[int, int]
) -> None:
    job.start("pass list", batches)
    assert [(code, out) for code, out, _ in job.ended()] == [(0, f"end {n} True") for n in batches]


def test_who_waits_for_ranks_with_more_data_says_so_and_keeps_the_lease(job: UnevenJob) -> None:
    job.start("epochs", (9, 10), waits="2/9")
    job.until_logged(1, "2/9")
    while len([one for one in job.host.received if isinstance(one, Progress) and one.renew]) < 2:
        job.host.poll(0.1)
    (job.folder / "go").touch()
    done = job.ended()
    assert [code for code, _, _ in done] == [0, 0]
    assert (
        "the data of 1 of 2 ranks have ended, at step 27, and others are at step 28" in done[0][2]
    )


@pytest.mark.parametrize("batches", [(10, 9), (9, 10)])
@pytest.mark.parametrize("at", ["0/8", "1/5", "2/8"])
def test_ranks_that_are_stopped_go_on_at_their_own_places(
    job: UnevenJob, batches: tuple[int, int], at: str
) -> None:
    job.start("epochs", batches, waits=at)
    job.until_logged(1, at)
    job.host.send(StopRank("preempted"))
    while job.host.poll(0.1):
        pass
    (job.folder / "go").touch()
    assert [code for code, _, _ in job.ended()] == [0, 0]
    job.start("epochs", batches)
    assert [code for code, _, _ in job.ended()] == [0, 0]
    assert [job.log(rank) for rank in range(2)] == [whole(n) for n in batches]


def test_ranks_that_expect_different_totals_are_refused_with_what_helps(job: UnevenJob) -> None:
    job.start("epochs list", (10, 9))
    done = job.ended()
    assert [code for code, _, _ in done] == [76, 76]
    assert "ranks differ in total_steps at step 0: 30, 27" in done[0][2]
    assert "drop_last=True" in done[0][2]


def test_ranks_at_their_end_are_not_compared_with_those_that_train() -> None:
    training, ended = RankStatus(29, 8, 0), RankStatus(27, 8, 0, finished=True)
    assert difference([ended, training]) == difference([training, ended]) == ""
    assert difference([ended, ended]) == ""
    assert difference([ended, training, RankStatus(30, 8, 0)]) == (
        "ranks differ in step at step 29: 29, 30"
    )
    assert are_uneven([ended, training])
    assert not are_uneven([ended, ended])
    assert (training_step([ended, training]), training_step([ended, ended])) == (29, 27)
    notice = WaitNotice()
    assert notice.sentence([ended, ended]) == notice.sentence([training, training]) == ""
    assert "1 of 2 ranks have ended, at step 27" in notice.sentence([ended, training])
    assert notice.sentence([ended, training]) == ""
