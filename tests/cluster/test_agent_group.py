"""A host with devices of several types: one agent for each, started and ended as one."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.agent.test_lock_holders import PASS_ON, RECEIVE, python
from tests.cluster.cluster import Running, descendants, running, until

from fairlead.cluster.protocol.job_spec import JobSpec


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        found.add_agent("host", "v100=2,k80=1", "--simulated-devices")
        with found.client() as client:
            until(lambda: [one.last_seen_s is not None for one in client.nodes()] == [True, True])
        yield found


def states(cluster: Running) -> dict[str, str]:
    with cluster.client() as client:
        return {one.name: one.state for one in client.nodes()}


def test_each_type_is_a_node_whose_jobs_run(cluster: Running) -> None:
    with cluster.client() as client:
        nodes = {one.name: (one.accelerator, one.devices) for one in client.nodes()}
        assert nodes == {"host-v100": ("v100", 2), "host-k80": ("k80", 1)}
        asked = [
            JobSpec(command=("true",), total_steps=1, unmanaged=True, rates={kind: 1.0})
            for kind in ("v100", "k80")
        ]
        jobs = client.submit(asked)
        until(lambda: all(client.job(job).state == "completed" for job in jobs))
        where = [client.attempts(job)[-1].node for job in jobs]
        assert where == ["host-v100", "host-k80"]


def test_one_signal_ends_all_in_order(cluster: Running) -> None:
    agent = cluster.agents["host"]
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(180.0) == 0
    assert descendants(cluster.directory / "agent-host") == []


def test_stop_ends_all(cluster: Running) -> None:
    state = str(cluster.directory / "agent-host")
    command = (sys.executable, "-m", "fairlead", "agent", "--stop", "--node", "host", "--state")
    said = subprocess.run((*command, state), capture_output=True, text=True, check=True).stdout
    assert said == "node host: its agent has ended\n"
    assert cluster.agents["host"].wait(180.0) == 0


def test_where_one_dies_the_other_ends(cluster: Running) -> None:
    agent = cluster.agents["host"]
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    assert len(children) == 2
    subprocess.run(("kill", "-9", children[0]), check=True)
    assert agent.wait(180.0) == 9
    until(lambda: not descendants(cluster.directory / "agent-host"))


def test_where_the_parent_is_killed_all_end_and_nobody_is_told_that_this_was_in_order(
    cluster: Running,
) -> None:
    cluster.kill("host")
    until(lambda: not descendants(cluster.directory / "agent-host"))
    with cluster.client() as client:
        until(lambda: {one.state for one in client.nodes()} <= {"suspect", "lost"})


def test_a_job_that_was_passed_the_lock_of_another_type_s_device_is_ended(
    cluster: Running, tmp_path: Path
) -> None:
    """It would keep that device from all jobs for as long as it runs."""
    door = str(tmp_path / "door")
    with cluster.client() as client:

        def submit(kind: str, *command: str, devices: int = 1) -> int:
            spec = JobSpec(
                command=command,
                total_steps=1,
                unmanaged=True,
                scale_factor=devices,
                rates={kind: 1.0},
                max_retries=0,
            )
            return client.submit([spec])[0]

        receiver = submit("k80", *python(RECEIVE, door))
        until(lambda: "listens" in client.log(receiver)[0])
        sender = submit("v100", *python(PASS_ON, door))
        until(lambda: client.job(sender).state == "completed")
        until(lambda: "locks" in client.log(receiver)[0])
        following = submit("v100", "true", devices=2)
        until(lambda: client.job(following).state == "completed")
        until(lambda: client.job(receiver).state == "dropped")
