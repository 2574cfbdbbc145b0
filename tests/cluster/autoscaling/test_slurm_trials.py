"""Faults of Slurm at random, one after the other: no job loses a step or does one twice at once.

``FAIRLEAD_TRIALS=200 FAIRLEAD_SLURM_NODES=32 FAIRLEAD_SEED=1 python -m pytest -m long`` and this file.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from tests.cluster.autoscaling.slurm_cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.cluster.cluster import Running, running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import UnreachableError

pytestmark = [
    pytest.mark.long,
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing_programs()), reason=missing_programs()),
]
TRIALS = int(os.environ.get("FAIRLEAD_TRIALS", "12"))
NODES = int(os.environ.get("FAIRLEAD_SLURM_NODES", "4"))
SEED = int(os.environ.get("FAIRLEAD_SEED", "1"))
LIMIT_S = 1800.0
STEPS = 300
ENGINE = """
idle_timeout = "5s"
interval = 1
max_queued = {nodes}
[types.v100]
devices = 2
maximum = {nodes}
walltime = "1m"
state_dir = "{states}"
agent_options = ["--simulated-devices", "--inside-job"]
"""
SCRIPT = """
import os, sys, time
import fairlead
done = sys.argv[1]
def load(path): pass
def save(path): path.write_text(str(lease.step))
with fairlead.Lease(load=load, save=save, total_steps={steps}) as lease:
    while lease.next():
        with open(done, "a") as file:
            print(lease.step, os.environ["FAIRLEAD_ATTEMPT"], time.time(), file=file)
        time.sleep(0.1)
"""


def _cancel(slurm: SlurmCluster, _: Running, dice: random.Random) -> None:
    if jobs := slurm.jobs():
        slurm.command("scancel", dice.choice(jobs))


def _kill_node(slurm: SlurmCluster, _: Running, dice: random.Random) -> None:
    if jobs := slurm.jobs():
        slurm.command("scancel", "--signal=KILL", "--full", dice.choice(jobs))


def _kill_slurmd(slurm: SlurmCluster, _: Running, dice: random.Random) -> None:
    number = dice.randint(1, NODES)
    slurm.end(f"n{number}", signal.SIGKILL)
    time.sleep(dice.uniform(0.0, 3.0))
    slurm.start_node(number)


def _kill_controller(slurm: SlurmCluster, _: Running, dice: random.Random) -> None:
    slurm.end("slurmctld", signal.SIGKILL)
    time.sleep(dice.uniform(0.0, 5.0))
    slurm.start_controller()


def _requeue(slurm: SlurmCluster, _: Running, dice: random.Random) -> None:
    if jobs := slurm.jobs():
        slurm.try_command("scontrol", "requeue", dice.choice(jobs))


def _kill_server(_: SlurmCluster, cluster: Running, dice: random.Random) -> None:
    cluster.kill()
    time.sleep(dice.uniform(0.0, 2.0))
    cluster.start()


FAULTS: list[Callable[[SlurmCluster, Running, random.Random], None]] = [
    *(_cancel, _cancel, _kill_node, _kill_slurmd, _kill_controller, _requeue, _kill_server)
]


def test_faults_at_random(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    script, config = tmp_path / "train.py", tmp_path / "engine.toml"
    script.write_text(SCRIPT.format(steps=STEPS))
    config.write_text(ENGINE.format(nodes=NODES, states=tmp_path / "nodes"))
    options = ("--engine", "slurm", "--engine-config", str(config), "--round", "3")
    with slurm_cluster(tmp_path / "slurm", NODES) as slurm, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(slurm.conf))
        patch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
        try:
            with running(tmp_path, options) as cluster, cluster.client() as client:
                jobs: list[int] = []
                for trial in range(TRIALS):
                    _keep_busy(client, jobs, tmp_path, script)
                    time.sleep(dice.uniform(1.0, 6.0))
                    fault = dice.choice(FAULTS)
                    print(f"{trial}: {fault.__name__}", file=sys.stderr)
                    fault(slurm, cluster, dice)
                until(lambda: not client.jobs("open"), LIMIT_S, "the end of all jobs")
                for job in jobs:
                    _check(client, job, tmp_path / f"done-{jobs.index(job)}")
        finally:
            slurm.cancel_all()


def _keep_busy(client: Client, jobs: list[int], directory: Path, script: Path) -> None:
    """Submit so many that all devices have work, and some wait."""
    until(lambda: _answers(client), LIMIT_S, "an answer")
    for _ in range(2 * NODES + 2 - len(client.jobs("open"))):
        words = (sys.executable, str(script), str(directory / f"done-{len(jobs)}"))
        jobs += client.submit([JobSpec(command=words, total_steps=STEPS, cwd="/")])


def _answers(client: Client) -> bool:
    with suppress(UnreachableError):
        client.status()
        return True
    return False


def _check(client: Client, job: int, path: Path) -> None:
    told = client.job(job)
    assert told.state == "completed", (job, told.state, told.reason)
    rows = [line.split() for line in path.read_text().splitlines()]
    steps = [int(row[0]) for row in rows]
    attempts = [int(row[1]) for row in rows]
    assert attempts == sorted(attempts), f"job {job}: two attempts at once"
    for before, after in pairwise(range(len(rows))):
        if attempts[before] == attempts[after]:
            assert steps[after] == steps[before] + 1, f"job {job}: a gap within an attempt"
        else:
            assert steps[after] <= steps[before] + 1, f"job {job}: steps are missing"
    assert sorted(set(steps)) == [*range(STEPS)]
    assert told.lost_steps == len(steps) - STEPS, f"job {job}: lost steps"
