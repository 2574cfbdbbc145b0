"""A node's name changes hands, with real agents and real jobs: no job ever runs twice at once."""

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.cluster.cluster import (
    TIMEOUT_S,
    Running,
    running,
    until,
)

from fairlead.cluster.protocol.api_models import NodeView
from fairlead.cluster.protocol.job_spec import JobSpec

GRACE_S = 1.0
# Says 50 times a second, with its pid, that it lives; no signal but SIGKILL ends it.
STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a", buffering=1) as file:
    while True:
        file.write(f"{os.getpid()} {time.monotonic()}\\n")
        time.sleep(0.02)
"""


def _lives(path: Path) -> dict[int, tuple[float, float]]:
    """Pid -> when it said first and last that it lives."""
    lives: dict[int, tuple[float, float]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        pid, at = line.split()
        lives[int(pid)] = (lives.get(int(pid), (float(at),))[0], float(at))
    return lives


def _assert_one_at_a_time(path: Path) -> None:
    spans = sorted(_lives(path).values())
    assert len(spans) >= 2
    for (_, ended), (began, _) in itertools.pairwise(spans):
        assert ended < began, f"two ran at once, for {ended - began:.2f} s"


@contextmanager
def _one_node(directory: Path, grace_s: float = GRACE_S) -> Iterator[tuple[Running, Path]]:
    """A cluster with one node, on which a stubborn job without iterator runs; and what that says."""
    said = directory / "said"
    with running(directory, ("--lease", "2"), {"node-a": "v100=1"}) as cluster:
        command = (sys.executable, "-c", STUBBORN, str(said))
        spec = JobSpec(command=command, total_steps=10**6, unmanaged=True, grace_s=grace_s)
        with cluster.client() as client:
            client.submit([spec])
        until(lambda: bool(_lives(said)), what="the job")
        yield cluster, said


def _node(cluster: Running) -> NodeView:
    with cluster.client() as client:
        return client.nodes()[0]


def _more_lives(said: Path) -> Callable[[], bool]:
    known = len(_lives(said))
    return lambda: len(_lives(said)) > known


def _without_state(cluster: Running, node: str) -> None:
    """Start the agent of a node anew, its state directory deleted."""
    state = cluster.directory / f"agent-{node}"
    while state.exists():  # what the agent has left behind may still write there
        shutil.rmtree(state, ignore_errors=True)
    cluster.add_agent(node, "v100=1")


def test_a_name_taken_from_an_agent_that_stands_still(tmp_path: Path) -> None:
    with _one_node(tmp_path) as (cluster, said):
        stopped = cluster.agents.pop("node-a")
        stopped.send_signal(signal.SIGSTOP)
        try:
            until(lambda: (_node(cluster).last_seen_s or 0.0) > 2.5, what="silence")
            (cluster.directory / "agent-node-a").rename(cluster.directory / "elsewhere")
            seen = _more_lives(said)
            cluster.add_agent("node-a", "v100=1")
            until(seen, what="the next start")
            _assert_one_at_a_time(said)
        finally:
            stopped.send_signal(signal.SIGCONT)
            stopped.wait(TIMEOUT_S)


@pytest.mark.parametrize("spawner_too", [pytest.param(False, marks=pytest.mark.long), True])
def test_an_agent_that_is_killed_and_loses_its_state(tmp_path: Path, spawner_too: bool) -> None:
    """Its successor finds the job by what the machine knows, ends it, and need not wait for the lease."""
    with _one_node(tmp_path) as (cluster, said):
        agent = psutil.Process(cluster.agents["node-a"].pid)
        spawner = next(
            c for c in agent.children() if "fairlead.cluster.agent.spawner" in c.cmdline()
        )
        if spawner_too:
            spawner.suspend()  # so that it cannot act between the two
            spawner_pid = spawner.pid
        cluster.kill("node-a")
        if spawner_too:
            os.kill(spawner_pid, signal.SIGKILL)
        seen = _more_lives(said)
        _without_state(cluster, "node-a")
        until(seen, what="the next start")
        _assert_one_at_a_time(said)
        assert _node(cluster).state == "up"


def test_without_a_proof_the_lease_and_the_grace_are_waited_out(tmp_path: Path) -> None:
    """What the machine knew is deleted as well: nobody can say what lives."""
    with _one_node(tmp_path, grace_s=6.0) as (cluster, said):
        cluster.kill("node-a")  # its spawner gives the job its grace
        shutil.rmtree(Path(os.environ["FAIRLEAD_RUN_DIR"]) / "nodes")
        until(lambda: (_node(cluster).last_seen_s or 0.0) > 2.5, what="silence")
        seen = _more_lives(said)
        _without_state(cluster, "node-a")
        until(seen, what="the next start")
        _assert_one_at_a_time(said)
