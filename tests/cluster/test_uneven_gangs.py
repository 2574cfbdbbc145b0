"""Gangs of programs without the iterator of which a rank ends long before the others."""

import sys
from pathlib import Path

import pytest
from tests.cluster.cluster import running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.loaded_checkpoint import RESUMED

TURNS = ("--round", "2", "--restart-cost", "0.01", "--policy", "las_aware")
TWO_NODES = {"node-a": "v100=1", "node-b": "v100=1"}
# The ranks that a file names end at once, the others once it names all.
PROGRAM = """
import os, sys, time
folder, rank = sys.argv[1], os.environ["RANK"]
with open(f"{folder}/{rank}.pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
while rank not in open(f"{folder}/ends").read():
    time.sleep(0.02)
open(f"{folder}/{rank}.ended", "a").write(f"{os.getpid()}\\n")
"""


def _submit(client: Client, folder: Path, ends: str, **more: object) -> int:
    """A gang of two ranks. ends: those that end at once. Returns the job."""
    folder.mkdir()
    (folder / "ends").write_text(ends)
    fields = {"unmanaged": True, "total_steps": 10**6, "scale_factor": 2, "cwd": "/", **more}
    words = (sys.executable, "-c", PROGRAM, str(folder))
    (job,) = client.submit([JobSpec(command=words, **fields)])  # type: ignore[arg-type]
    return job


def _resumed(client: Client, job: int) -> int:
    return sum(row.origin.startswith(RESUMED) for row in client.attempts(job))


def _lines(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().splitlines() if file.exists() else []


def test_a_gang_of_which_a_rank_is_killed_is_not_complete_whatever_the_other_has_done(
    tmp_path: Path,
) -> None:
    with running(tmp_path, ("--round", "60"), TWO_NODES) as cluster, cluster.client() as client:
        folder = tmp_path / "gang"
        job = _submit(client, folder, "0")
        until(lambda: bool(_lines(folder, "0.ended") and _lines(folder, "1.pids")))
        until(lambda: "have ended with exit code 0" in " ".join(client.explain(job).facts))
        client.pause(job)
        until(lambda: client.job(job).state != "running")
        assert client.job(job).state == "paused"
        until(lambda: all(row.end is not None for row in client.attempts(job)))
        assert not _lines(folder, "1.ended")
        (folder / "ends").write_text("01")
        client.resume(job)
        until(lambda: client.job(job).state == "completed")
        assert [len(_lines(folder, f"{rank}.ended")) for rank in (0, 1)] == [2, 1]


@pytest.mark.parametrize(
    ("agents", "first"),
    [
        pytest.param({"node-a": "v100=2"}, "0", id="one node", marks=pytest.mark.long),
        pytest.param(TWO_NODES, "0", id="rank 0 first"),
        pytest.param(TWO_NODES, "1", id="rank 1 first", marks=pytest.mark.long),
    ],
)
def test_a_gang_of_which_a_rank_has_ended_is_parked_and_goes_on(
    tmp_path: Path, agents: dict[str, str], first: str
) -> None:
    other = "1" if first == "0" else "0"
    with running(tmp_path, TURNS, agents) as cluster, cluster.client() as client:
        folders = [tmp_path / "one", tmp_path / "two"]
        jobs = [_submit(client, folder, first, park="stop") for folder in folders]
        until(lambda: all(_resumed(client, job) >= 2 for job in jobs))
        for job, folder in zip(jobs, folders, strict=True):
            assert client.job(job).lost_steps == 0 == client.job(job).failures
            assert client.job(job).state in ("running", "preempted")
            (folder / "ends").write_text("01")
        until(lambda: all(client.job(job).state == "completed" for job in jobs))
        for job, folder in zip(jobs, folders, strict=True):
            for rank in (first, other):
                assert _lines(folder, f"{rank}.pids") == _lines(folder, f"{rank}.ended")
            assert client.job(job).lost_steps == 0 == client.job(job).failures
        until(lambda: not any(node.parked for node in client.nodes()))
