"""A server that gets its nodes from a real Slurm, of several nodes on this machine."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.autoscaling.counting_job import completed, counting_job, steps_done
from tests.cluster.autoscaling.slurm_cluster import (
    SlurmCluster,
    missing_programs,
    slurm_cluster,
)
from tests.cluster.cluster import FAIRLEAD, Running, running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.engine_views import EngineView

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing_programs()), reason=missing_programs()),
]
LIMIT_S = 180.0
ENGINE = """
idle_timeout = "2s"
interval = 0.3
[types.v100]
devices = 1
maximum = {maximum}
walltime = "{walltime}"
partition = "{partition}"
agent_options = ["--inside-job", {agent_options}]
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A Slurm of three nodes."""
    directory = tmp_path_factory.mktemp("slurm")
    with slurm_cluster(directory, nodes=3) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(found.conf))
        patch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
        yield found


def engine_file(
    maximum: int, walltime: str, *, partition: str = "gpu", agent_options: str = ""
) -> str:
    return ENGINE.format(
        maximum=maximum, walltime=walltime, partition=partition, agent_options=agent_options
    )


@contextmanager
def on_slurm(
    slurm: SlurmCluster,
    directory: Path,
    *,
    maximum: int = 2,
    walltime: str = "10m",
    agent_options: str = '"--simulated-devices"',
) -> Iterator[tuple[Running, Client]]:
    """A server with Slurm as its engine; at the end it has no job there any more."""
    config = directory / "engine.toml"
    config.write_text(engine_file(maximum, walltime, agent_options=agent_options))
    options = ("--engine", "slurm", "--engine-config", str(config))
    try:
        with running(directory, options) as cluster, cluster.client() as client:
            yield cluster, client
    finally:
        slurm.cancel_all()


def slurm_jobs(client: Client, job: int) -> list[str]:
    """Numbers of the Slurm jobs in which a job ran, in order."""
    nodes = [node for attempt in client.attempts(job) for node in attempt.nodes]
    return [node.removeprefix("v100-slurm-") for node in dict.fromkeys(nodes)]


def plan(client: Client) -> EngineView:
    return client.engine_plan()


def test_jobs_run_on_nodes_of_slurm_which_are_given_back(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    with on_slurm(slurm, tmp_path) as (_, client):
        assert slurm.jobs() == []
        (job,) = client.submit([counting_job(tmp_path)])
        until(lambda: completed(client, job), LIMIT_S)
        assert steps_done(tmp_path) == [*range(60)]
        (number,) = slurm_jobs(client, job)
        assert client.attempts(job)[-1].nodes == (f"v100-slurm-{number}",)
        assert number.isdecimal()
        until(lambda: slurm.jobs() == [], LIMIT_S, "an empty queue")
        until(lambda: client.nodes() == [], LIMIT_S, "nodes that are forgotten")
        view = plan(client)
        assert (view.engine, view.trouble) == ("slurm", "")


def test_a_job_is_told_of_the_nodes_that_wait(slurm: SlurmCluster, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        slurm.command("scontrol", "update", f"NodeName=n{number}", "State=DRAIN", "Reason=test")
    try:
        with on_slurm(slurm, tmp_path) as (_, client):
            (job,) = client.submit([counting_job(tmp_path)])
            told = "Engine slurm was asked for 1 node of v100, which waits ("
            until(lambda: told in client.explain(job).why_here, LIMIT_S, "the sentence")
    finally:
        for number in (1, 2, 3):
            slurm.command("scontrol", "update", f"NodeName=n{number}", "State=RESUME")


def test_a_node_that_is_cancelled_costs_no_step(slurm: SlurmCluster, tmp_path: Path) -> None:
    with on_slurm(slurm, tmp_path) as (_, client):
        (job,) = client.submit([counting_job(tmp_path, steps=200)])
        until(lambda: len(steps_done(tmp_path)) > 20, LIMIT_S)
        (number,) = slurm_jobs(client, job)
        slurm.command("scancel", number)
        until(lambda: completed(client, job), LIMIT_S)
        assert steps_done(tmp_path) == [*range(200)]
        assert len(slurm_jobs(client, job)) == 2
        assert client.job(job).failures == 0


def test_a_node_of_slurm_that_dies_costs_no_more_than_since_the_checkpoint(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    with on_slurm(slurm, tmp_path) as (_, client):
        (job,) = client.submit([counting_job(tmp_path, steps=200)])
        until(lambda: len(steps_done(tmp_path)) > 20, LIMIT_S)
        (number,) = slurm_jobs(client, job)
        slurm.command("scancel", "--signal=KILL", "--full", number)
        until(lambda: completed(client, job), LIMIT_S)
        done = steps_done(tmp_path)
        again = done.index(0, 1) if 0 in done[1:] else len(done)
        assert done[:again] == [*range(again)]
        assert sorted(set(done)) == [*range(200)]
        assert client.job(job).lost_steps == len(done) - 200
        assert client.job(job).failures == 0
        until(lambda: all(node.state == "up" for node in client.nodes()), LIMIT_S, "no dead node")


def test_slurm_may_be_away_and_the_server_be_killed(slurm: SlurmCluster, tmp_path: Path) -> None:
    with on_slurm(slurm, tmp_path, maximum=1) as (cluster, client):
        (job,) = client.submit([counting_job(tmp_path, steps=400)])
        until(lambda: len(steps_done(tmp_path)) > 5, LIMIT_S)
        name = (cluster.state / "engine.name").read_bytes().strip()
        until(lambda: name in slurm.saved_jobs(), LIMIT_S, "what a controller that is killed knows")
        slurm.end("slurmctld", signal.SIGKILL)
        cluster.kill()
        cluster.start()
        until(lambda: "slurm" in plan(client).trouble.lower(), LIMIT_S, "trouble")
        slurm.start_controller()
        until(
            lambda: plan(client).trouble == "" and bool(plan(client).types), LIMIT_S, "no trouble"
        )
        until(lambda: completed(client, job), LIMIT_S)
        assert steps_done(tmp_path) == [*range(400)]
        assert len(slurm_jobs(client, job)) == 1, "its node was found again"


@pytest.mark.long
def test_the_end_of_an_allocation_costs_no_step(slurm: SlurmCluster, tmp_path: Path) -> None:
    with on_slurm(slurm, tmp_path, walltime="1m") as (_, client):
        (job,) = client.submit([counting_job(tmp_path, steps=400, step_s=0.25)])
        until(lambda: completed(client, job), 400.0)
        assert steps_done(tmp_path) == [*range(400)]
        assert len(slurm_jobs(client, job)) >= 2
        told = client.job(job)
        assert (told.failures, told.lost_steps) == (0, 0.0)


def test_ranks_are_steps_of_the_slurm_job_where_that_is_asked_for(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    launch = '"--launch-with", "srun --overlap --ntasks=1"'
    with on_slurm(slurm, tmp_path, agent_options=launch) as (_, client):
        (job,) = client.submit([counting_job(tmp_path, steps=100)])
        until(lambda: len(steps_done(tmp_path)) > 5, LIMIT_S)
        (number,) = slurm_jobs(client, job)
        assert f"{number}.0" in slurm.command("squeue", "--steps", "--noheader", "--format", "%i")
        client.pause(job)
        until(lambda: client.attempts(job)[-1].ended_s is not None, LIMIT_S)
        client.resume(job)
        until(lambda: completed(client, job), LIMIT_S)
        assert steps_done(tmp_path) == [*range(100)]
        assert client.job(job).failures == 0


UP = """#!/bin/bash
exec {fairlead} up --slurm --inside-job --devices v100=1 --port 0 --state {state} --round 1
"""


def test_a_whole_cluster_inside_one_allocation_and_then_in_another(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    state = tmp_path / "cluster"
    with up_in_slurm(slurm, tmp_path, "first.log") as (number, client):
        names = [f"n1-slurm-{number}", f"n2-slurm-{number}"]
        assert [node.name for node in client.nodes()] == names
        (job,) = client.submit([counting_job(tmp_path, steps=200)])
        until(lambda: len(steps_done(tmp_path)) > 20, LIMIT_S)
    with up_in_slurm(slurm, tmp_path, "second.log") as (_, client):
        until(lambda: completed(client, job), LIMIT_S)
        assert steps_done(tmp_path) == [*range(200)], "it was cancelled, and went on"
    assert (state / "server").exists()


@contextmanager
def up_in_slurm(slurm: SlurmCluster, directory: Path, log: str) -> Iterator[tuple[str, Client]]:
    """``fairlead up --slurm`` in a job of two nodes, which is cancelled in the end."""
    script, state, out = directory / "up.sh", directory / "cluster", directory / log
    script.write_text(UP.format(fairlead=" ".join(FAIRLEAD), state=state))
    number = slurm.command(
        *("sbatch", "--parsable", "--nodes=2", "--time=10", f"--output={out}", str(script))
    ).strip()
    until(lambda: out.exists() and "Ctrl-C ends it" in out.read_text(), LIMIT_S, "the cluster")
    (line,) = (line for line in out.read_text().splitlines() if line.startswith("page and API: "))
    with Client(line.split()[-1], (state / "server" / "admin.token").read_text().strip()) as client:
        yield number, client
    slurm.cancel_all()


def test_outside_of_slurm_there_is_no_allocation() -> None:
    environment = {name: value for name, value in os.environ.items() if "SLURM" not in name}
    done = subprocess.run(
        (*FAIRLEAD, "up", "--slurm", "--inside-job"),
        capture_output=True,
        text=True,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "fairlead: --slurm: SLURM_JOB_ID and SLURM_JOB_NODELIST are not set: this is no Slurm job\n",
    )


def serve(directory: Path, text: str, *more: str) -> "subprocess.CompletedProcess[str]":
    config = directory / "engine.toml"
    config.write_text(text)
    words = ("serve", "--inside-job", "--state", str(directory / "state"), "--engine-config")
    return subprocess.run(
        (*FAIRLEAD, *words, str(config), *more), capture_output=True, text=True, timeout=LIMIT_S
    )


def test_a_partition_that_is_not_there_is_one_sentence_at_the_start(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    done = serve(tmp_path, engine_file(1, "1h", partition="huge"), "--engine", "slurm")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fairlead: {tmp_path}/engine.toml:4: types.v100: sbatch: ")
    assert "nvalid partition" in line
    assert not (tmp_path / "state").exists()


def test_a_walltime_above_the_limit_of_its_partition_is_refused(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    done = serve(tmp_path, engine_file(1, "1h", partition="short"), "--engine", "slurm")
    assert done.returncode == 2
    assert done.stderr == (
        f"fairlead: {tmp_path}/engine.toml:7: types.v100.walltime: 1 h is above the limit of partition "
        "short, 1 min\n"
    )


def test_where_there_is_no_sbatch_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = serve(tmp_path, engine_file(1, "1h"), "--engine", "slurm")
    assert (done.returncode, done.stderr) == (
        2,
        "fairlead: engine slurm: there is no command sbatch here\n",
    )
