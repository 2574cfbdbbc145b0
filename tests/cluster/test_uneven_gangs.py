"""Gangs of programs without the iterator of which a rank ends long before the others."""

import sys
from pathlib import Path

from tests.cluster.cluster import running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

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
        assert not _lines(folder, "1.ended")
        (folder / "ends").write_text("01")
        client.resume(job)
        until(lambda: client.job(job).state == "completed")
        assert [len(_lines(folder, f"{rank}.ended")) for rank in (0, 1)] == [2, 1]
