"""A job is complete when its processes have ended with 0 after their last step, and not before."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import (
    Running,
    descendants,
    running,
    until,
)

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

SCRIPT = Path(__file__).with_name("evaluating.py")
LIMIT_S = 180.0


class Job:
    """One that evaluates after its loop until it may end."""

    def __init__(self, client: Client, here: Path, **changes: object) -> None:
        here.mkdir()
        self.client, self.here = client, here
        given = {
            "command": (sys.executable, str(SCRIPT), str(here)),
            "total_steps": 3,
            "cwd": "/",
            "finish_grace_s": 0.3,
        }
        (self.id,) = client.submit([JobSpec(**(given | changes))])  # type: ignore[arg-type]

    def until_state(self, *states: str) -> None:
        until(lambda: self.client.job(self.id).state in states, LIMIT_S, " or ".join(states))

    def until_evaluates(self, attempt: int, rank: int = 0) -> None:
        file = self.here / f"evaluates-{attempt}-{rank}"
        until(file.exists, LIMIT_S, file.name)
        self.until_state("finishing")

    def go(self, rank: int = 0) -> None:
        (self.here / f"go-{rank}").touch()

    def steps(self) -> list[str]:
        """Done, in order, by all starts of rank 0."""
        return (self.here / "steps").read_text().split()

    def until_complete(self, starts: int, failures: int = 0, lost: float = 0.0) -> None:
        self.until_state("completed")
        job = self.client.job(self.id)
        assert (self.here / "final-0.txt").exists()
        assert self.steps() == ["1", "2", "3"]
        assert (job.starts, job.failures, job.lost_steps) == (starts, failures, lost)
        assert (job.steps, job.saved_step) == (3, 3)
        assert self.client.attempts(self.id)[-1].why == "completed"


@pytest.fixture
def admin(cluster: Running) -> Iterator[Client]:
    with cluster.client() as client:
        until(lambda: [n.state for n in client.nodes()] == ["up", "up"], LIMIT_S)
        yield client
        for job in client.jobs(state="open"):
            client.cancel(job.id)
        until(lambda: not any(held for n in client.nodes() for held in n.jobs), LIMIT_S)


def test_a_job_that_is_paused_after_its_loop_finishes_later(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job")
    job.until_evaluates(1)
    shown = admin.job(job.id)
    assert (shown.steps, shown.state, len(shown.devices)) == (3, "finishing", 1)
    until(lambda: admin.status().jobs.get("finishing") == 1, LIMIT_S)
    told = admin.explain(job.id)
    assert re.search(r"code behind its training loop runs on .*, for [0-9.]+ m?s\.", told.why_here)
    assert (told.forecasts, told.finish_s) == (0, None)  # it has no steps by which to tell
    admin.pause(job.id)
    until(lambda: admin.job(job.id).node == "" and not descendants(job.here), LIMIT_S)
    assert admin.job(job.id).state == "paused"
    assert not (job.here / "final-0.txt").exists()
    admin.resume(job.id)
    job.until_evaluates(2)
    job.go()
    job.until_complete(starts=2)


def test_what_ends_well_within_its_grace_is_complete(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job", finish_grace_s=LIMIT_S)
    job.until_evaluates(1)
    admin.pause(job.id)
    until(lambda: admin.job(job.id).state == "paused")
    job.go()
    job.until_complete(starts=1)


def test_a_node_that_is_drained_hands_the_rest_to_another(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job")
    job.until_evaluates(1)
    node = admin.job(job.id).node
    admin.drain(node)
    job.until_evaluates(2)
    assert admin.job(job.id).node not in ("", node)
    admin.undrain(node)
    job.go()
    job.until_complete(starts=2)


def test_rounds_leave_a_finishing_job_where_it_is(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job")
    job.until_evaluates(1)
    round_then = admin.status().round
    until(lambda: admin.status().round > round_then + 2, LIMIT_S, "three rounds")
    assert (admin.job(job.id).state, admin.job(job.id).starts) == ("finishing", 1)
    job.go()
    job.until_complete(starts=1)


def test_a_failure_after_the_loop_is_one_and_is_tried_again(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job")
    job.until_evaluates(1)
    (job.here / "fail").touch()
    job.go()
    until((job.here / "final-0.txt").exists, LIMIT_S)
    job.until_complete(starts=2, failures=1)
    assert admin.attempts(job.id)[0].why.startswith("failed: ")


def test_a_rank_that_is_killed_after_the_loop(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job")
    job.until_evaluates(1)
    pid = int((job.here / "evaluates-1-0").read_text())
    os.kill(pid, signal.SIGKILL)
    job.until_evaluates(2)
    job.go()
    job.until_complete(starts=2, failures=1)


def test_all_ranks_have_to_end(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job", scale_factor=2, finish_grace_s=LIMIT_S, grace_s=0.2)
    job.until_evaluates(1)
    job.until_evaluates(1, rank=1)
    job.go()
    until((job.here / "final-0.txt").exists, LIMIT_S)
    round_then = admin.status().round
    until(lambda: admin.status().round > round_then + 1, LIMIT_S)
    assert admin.job(job.id).state == "finishing"
    job.go(rank=1)
    job.until_complete(starts=1)
    assert (job.here / "final-1.txt").exists()


def test_a_job_that_is_cancelled_after_its_loop(admin: Client, tmp_path: Path) -> None:
    job = Job(admin, tmp_path / "job")
    job.until_evaluates(1)
    admin.cancel(job.id)
    job.until_state("cancelled")
    until(lambda: not descendants(job.here), LIMIT_S)
    assert not (job.here / "final-0.txt").exists()


def test_the_end_of_a_preempted_script_is_not_that_of_its_job(
    admin: Client, tmp_path: Path
) -> None:
    job = Job(admin, tmp_path / "job", total_steps=1_000_000, env={"ON_STOP": "return"})
    until(lambda: admin.job(job.id).steps > 3, LIMIT_S)
    admin.pause(job.id)
    until(lambda: admin.job(job.id).node == "", LIMIT_S)
    assert admin.job(job.id).state == "paused"
    until(lambda: admin.attempts(job.id)[0].why == "paused", LIMIT_S)
    assert (job.here / "returned").read_text() == "finished: False"


def test_servers_and_agents_may_die_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    # A lease that outlives the start of a server on a busy machine.
    with running(tmp_path / "cluster", ("--lease", "60"), {"a": "v100=1"}) as cluster:
        with cluster.client() as client:
            until(lambda: [n.state for n in client.nodes()] == ["up"], LIMIT_S)
            job = Job(client, tmp_path / "job", finish_grace_s=0.3)
            job.until_evaluates(1)
        cluster.kill()
        cluster.start()
        with cluster.client() as client:
            job.client = client
            until(lambda: [n.state for n in client.nodes()] == ["up"], LIMIT_S)
            assert (client.job(job.id).state, client.job(job.id).starts) == ("finishing", 1)
            cluster.kill("a")
            cluster.add_agent("a", "v100=1")
            job.until_evaluates(2)
            job.go()
            job.until_complete(starts=2)
