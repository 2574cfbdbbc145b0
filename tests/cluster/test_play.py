"""A trace on a real cluster: `fairlead play`, interrupted and resumed, and compared with its simulation."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.cluster.cluster import TIMEOUT_S, Running, running, until

from fairlead.cluster.play.player import read_submitted

RATES = """family,scale_factor,accelerator,locality,steps_per_s
net,1,v100,consolidated,50
net,1,k80,consolidated,20
net,2,v100,consolidated,80
net,2,k80,consolidated,30
"""
TRACE = """job,arrival_s,family,scale_factor,total_steps
0,0,net,1,6000
3,60,net,2,8000
5,1200,net,1,3000
"""
SCALED = {0: 100, 3: 133, 5: 50}  # steps at a 60th


def _fairlead(cluster: Running, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fairlead", *arguments],
        cwd=cluster.directory,
        env={**os.environ, "FAIRLEAD_SERVER": cluster.url, "FAIRLEAD_TOKEN": cluster.admin_token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_trace_is_played_interrupted_and_compared(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(RATES)
    (tmp_path / "trace.csv").write_text(TRACE)
    out = tmp_path / "live"
    with running(tmp_path, ("--round", "2"), {"a": "v100=2", "b": "k80=2"}) as cluster:
        with cluster.client() as client:
            until(lambda: len(client.nodes()) == 2, what="the nodes")
        play = _fairlead(
            cluster, "play", "trace.csv", "--speed", "60", "--throughputs", "rates.csv",
            "--out", "live", "--simulated",
        )  # fmt: skip
        until(
            lambda: play.poll() is not None or len(read_submitted(out)) >= 2,
            what="the first two jobs",
        )
        beside = _fairlead(cluster, "play", "--resume", "live")
        assert "live: another process writes this run" in beside.communicate(timeout=TIMEOUT_S)[1]
        assert beside.returncode == 2
        play.send_signal(signal.SIGINT)
        _, said = play.communicate(timeout=TIMEOUT_S)
        assert play.returncode == 130, said
        assert "fairlead play --resume live" in said
        assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
        again = _fairlead(cluster, "play", "--resume", "live", "--json")
        told, said = again.communicate(timeout=TIMEOUT_S)
        assert again.returncode == 0, said
        assert json.loads(told)["simulated"]["n_completed"] == 3
        with cluster.client() as client:
            assert len(client.jobs()) == 3, "nothing was submitted twice"
        refused = _fairlead(cluster, "play", "--resume", "live")
        assert "is complete" in refused.communicate(timeout=TIMEOUT_S)[1]
        assert refused.returncode == 2
    _check(out)
    _compare(cluster, out)


def _check(out: Path) -> None:
    run = json.loads((out / "run.json").read_text())
    assert run["status"] == "complete"
    assert run["metrics"]["n_completed"] == 3
    jobs = pl.read_parquet(out / "jobs.parquet")
    assert dict(jobs.select("job", "total_steps").iter_rows()) == SCALED
    assert jobs["steps_done"].to_list() == pytest.approx(jobs["total_steps"].to_list())
    assert (jobs["run_s"] <= jobs["jct_s"] + 1e-6).all()
    intervals = pl.read_parquet(out / "placement_intervals.parquet")
    assert set(intervals["job"]) == set(SCALED)
    assert (out / "report.html").exists()


def _compare(cluster: Running, out: Path) -> None:
    both = _fairlead(cluster, "compare", str(out), str(out / "simulated"), "--json")
    told, said = both.communicate(timeout=TIMEOUT_S)
    assert both.returncode == 0, said
    assert len(json.loads(told)["differences"]["jct_s"]) == 3
    # What was played can be simulated from the command line as well.
    files = (str(out / name) for name in ("trace.csv", "rates.csv", "cluster.toml"))
    trace, rates, machines = files
    simulated = _fairlead(
        cluster, "simulate", "--trace", trace, "--throughputs", rates, "--cluster", machines,
        "--policy", "las_aware", "--out", "again",
    )  # fmt: skip
    _, said = simulated.communicate(timeout=TIMEOUT_S)
    assert simulated.returncode == 0, said
