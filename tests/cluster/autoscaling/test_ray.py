"""A server that gets its nodes from a real Ray cluster, of several nodes on this machine."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.cluster.autoscaling.counting_job import completed, counting_job, steps_done
from tests.cluster.cluster import FAIRLEAD, Running, running, until

from fairlead.cluster.http_client import Client

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]
LIMIT_S = 240.0
ENGINE = """
address = "{address}"
idle_timeout = "2s"
interval = 1
[types.v100]
devices = 1
maximum = {maximum}
walltime = "10m"
num_cpus = 0
resources = {{ v100 = 1 }}
state_dir = "{state_dir}"
agent_options = ["--simulated-devices", "--inside-job"]
"""


@pytest.fixture(scope="module")
def cluster_of_ray() -> Iterator[Any]:
    """Two nodes with a device each, beside the head."""
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    found: Any = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    try:
        for _ in range(2):
            found.add_node(**node, resources={"v100": 1})
        yield found
    finally:
        found.shutdown()


@contextmanager
def on_ray(directory: Path, address: str, maximum: int = 2) -> Iterator[tuple[Running, Client]]:
    """A server with Ray as its engine; at the end no agent of it is left."""
    config = directory / "engine.toml"
    config.write_text(
        ENGINE.format(address=address, maximum=maximum, state_dir=directory / "nodes")
    )
    options = ("--engine", "ray", "--engine-config", str(config))
    with running(directory, options) as cluster, cluster.client() as client:
        try:
            yield cluster, client
        finally:
            for process in agents(directory):
                process.kill()


def agents(directory: Path) -> list[psutil.Process]:
    """Agents whose state is below this directory."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        words = one.info["cmdline"] or []
        if "agent" in words and any(str(directory / "nodes") in word for word in words):
            found.append(one)
    return found


def queued(client: Client) -> list[int]:
    """How many nodes of each type wait."""
    return [one.queued for one in client.engine_plan().types]


def test_jobs_run_on_nodes_of_ray_which_are_given_back(cluster_of_ray: Any, tmp_path: Path) -> None:
    with on_ray(tmp_path, cluster_of_ray.address) as (_, client):
        (job,) = client.submit([counting_job(tmp_path)])
        until(lambda: completed(client, job), LIMIT_S)
        assert steps_done(tmp_path) == [*range(60)]
        (node,) = client.attempts(job)[-1].nodes
        assert node.startswith("v100-ray-")
        until(lambda: client.nodes() == [], LIMIT_S, "nodes that are forgotten")
        until(lambda: client.engine_plan().launches == (), LIMIT_S, "no actor")
        assert agents(tmp_path) == []


def test_an_actor_may_be_killed_and_the_server_too(cluster_of_ray: Any, tmp_path: Path) -> None:
    with on_ray(tmp_path, cluster_of_ray.address, maximum=1) as (cluster, client):
        (job,) = client.submit([counting_job(tmp_path, steps=200)])
        until(lambda: len(steps_done(tmp_path)) > 20, LIMIT_S)
        (agent,) = agents(tmp_path)
        actor = agent.parent()
        assert actor is not None
        cluster.kill()
        cluster.start()
        actor.send_signal(signal.SIGKILL)  # as ray.kill does
        until(lambda: completed(client, job), LIMIT_S)
        assert steps_done(tmp_path) == [*range(200)], "its agent ended in order"
        assert client.job(job).failures == 0


def test_what_ray_has_no_room_for_waits_as_an_actor(cluster_of_ray: Any, tmp_path: Path) -> None:
    with on_ray(tmp_path, cluster_of_ray.address, maximum=3) as (_, client):
        client.submit([counting_job(tmp_path, steps=2_000)] * 3)
        until(lambda: len(client.nodes()) == 2, LIMIT_S, "two nodes")
        until(lambda: queued(client) == [1], LIMIT_S, "one that waits")
        waiting = [one for one in client.engine_plan().launches if one.state == "queued"]
        assert [one.why for one in waiting] == ["Ray has no room for it yet"]


@pytest.mark.parametrize(
    ("field", "said"), [("", "engine.toml:2: address: ray: "), ("num_gpus = 1", "types.v100")]
)
def test_what_is_wrong_is_one_sentence_at_the_start(tmp_path: Path, field: str, said: str) -> None:
    text = ENGINE.format(address="127.0.0.1:1", maximum=1, state_dir="/tmp")
    if field:
        text = text.replace("resources = { v100 = 1 }", "resources = { v100 = -1 }")
    config = tmp_path / "engine.toml"
    config.write_text(text)
    options = (
        "--state",
        str(tmp_path / "state"),
        "--engine",
        "ray",
        "--engine-config",
        str(config),
    )
    done = subprocess.run(
        (*FAIRLEAD, "serve", "--inside-job", *options),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert said in line
