"""Jobs that end while the server is away, on an agent that is killed before it is back."""

import sys
from pathlib import Path

import pytest
from tests.cluster.cluster import running, until

from fairlead.cluster.protocol.job_spec import JobSpec

SCRIPT = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with open(folder / "journal", "a") as journal:
    journal.write("start ")
while not (folder / "go").exists():
    time.sleep(0.01)
with open(folder / "journal", "a") as journal:
    journal.write("end ")
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("code", "state"), [(0, "completed"), pytest.param(3, "dropped", marks=pytest.mark.long)]
)
def test_a_job_that_has_ended_does_not_run_again(tmp_path: Path, code: int, state: str) -> None:
    journal, end = tmp_path / "journal", tmp_path / "agent-node-a" / "ends" / "0-1.json"
    with running(tmp_path, ("--lease", "60"), {"node-a": "v100=1"}) as cluster:
        with cluster.client() as client:
            command = (sys.executable, "-c", SCRIPT, str(tmp_path), str(code))
            spec = JobSpec(
                command=command, unmanaged=True, total_steps=6, cwd="/", no_retry_on=(3,)
            )
            client.submit([spec])
            until(lambda: journal.exists() and client.job(0).state == "running")
        cluster.kill()
        (tmp_path / "go").touch()
        until(end.exists)
        cluster.kill("node-a")
        cluster.start()
        cluster.add_agent("node-a", "v100=1")
        with cluster.client() as client:
            until(lambda: client.job(0).state == state)
            attempts = client.attempts(0)
        assert journal.read_text() == "start end "
        assert [one.attempt for one in attempts] == [1]
        until(lambda: not end.exists(), what="the end of what the agent remembers")
