"""Metrics from scripts to the API, with agent and server killed in between."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.cluster import FAIRLEAD, running, until

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import InputError

# Reports a value for each step; goes on where a file says. What it did is in a ledger.
SCRIPT = """
import os, pathlib, sys, time
import fairlead
kept = pathlib.Path(sys.argv[1])
first = int(kept.read_text()) if kept.exists() else 0
for step in range(first, int(sys.argv[2])):
    fairlead.report(step=step, loss=1.0 / (step + 1), start=int(os.environ["FAIRLEAD_ATTEMPT"]))
    if step % 20 == 0:
        part = kept.with_suffix(".part")
        part.write_text(str(step))
        part.rename(kept)
    time.sleep(0.01)
"""


def test_metrics_survive_agent_and_server_that_are_killed(tmp_path: Path) -> None:
    steps = 600

    def job(folder: Path) -> JobSpec:
        return JobSpec(
            command=(sys.executable, "-c", SCRIPT, str(folder / "kept"), str(steps)),
            total_steps=100_000,
            unmanaged=True,
            keeps_progress=True,
            cwd=str(folder),
        )

    with running(tmp_path, agents={"node-a": "v100=1"}) as cluster:
        with cluster.client() as client:
            until(lambda: any(node.state == "up" for node in client.nodes()), what="the node")
            (one,) = client.submit([job(tmp_path)])

            def reached(step: int) -> bool:
                return any(curve.last_step >= step for curve in client.metrics(one, "loss"))

            until(lambda: reached(30), what="first metrics")
            cluster.kill()
            cluster.start()
            until(lambda: reached(100), what="metrics after the server was killed")
            cluster.kill("node-a")
            cluster.add_agent("node-a", "v100=1")
            until(lambda: client.job(one).state == "completed", what="the end")
            until(lambda: reached(steps - 1), what="the last value")
            (loss,) = client.metrics(one, "loss")
            assert loss.steps == list(range(steps)), "none is missing, none is there twice"
            assert loss.values == [1.0 / (step + 1) for step in range(steps)]
            (start,) = client.metrics(one, "start")
            assert start.values == sorted(start.values), "later attempts replace earlier ones"
            assert start.last == client.job(one).attempt
            assert [curve.name for curve in client.metrics(one)] == ["loss", "start"]

            ann = client.add_user("ann", "apes", "user")
            with cluster.client(ann) as stranger, pytest.raises(InputError, match="there is none"):
                stranger.metrics(one)

        shown = _command(cluster.url, cluster.admin_token, "metrics", str(one))
        assert "loss" in shown
        assert f"{steps - 1}" in shown
        table = _command(
            cluster.url, cluster.admin_token, "metrics", str(one), "--csv"
        ).splitlines()
        assert table[0] == "metric,step,time,value"
        assert len(table) == 1 + 2 * steps
        assert _command(cluster.url, cluster.admin_token, "metrics", str(one), "--name", "no") == (
            f"job {one} has reported no metric no\n"
        )


def _command(url: str, token: str, *words: str) -> str:
    """The output of a command."""
    env = {"PATH": "/usr/bin:/bin", "FAIRLEAD_SERVER": url, "FAIRLEAD_TOKEN": token}
    done = subprocess.run(
        [*FAIRLEAD, *words],
        capture_output=True,
        text=True,
        check=True,
        env=env | {"PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"},
    )
    return done.stdout
