"""The cluster file changes between two starts of the server, while jobs run."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.errors import ConfigError

LONG_S = 600.0  # leases that no test outlives


def cluster_file(folder: Path, **nodes: int) -> Path:
    """A file with nodes of so many devices each."""
    path = folder / "cluster.toml"
    path.write_text(
        "".join(
            f'[[node]]\nname = "{name}"\naccelerator = "v100"\ndevices = {devices}\n'
            for name, devices in nodes.items()
        )
    )
    return path


def joined(cluster: EngineNodes, before: PlayedNode) -> PlayedNode:
    """The agent that was there before, which registers with a server that was started anew."""
    node = cluster.node(before.name, before.incarnation, before.devices)
    node.statuses, node.leased, node.seq = before.statuses, before.leased, before.seq
    node.register()
    return node


def node_of(cluster: EngineNodes, job: int) -> str:
    """Of its newest attempt."""
    return cluster.service.attempts(ADMIN, job)[-1].node


def names(cluster: EngineNodes) -> set[str]:
    return {node.name for node in cluster.service.nodes(ADMIN)}


def running(cluster: EngineNodes, *devices: int) -> tuple[list[PlayedNode], list[int]]:
    """Nodes a, b with so many devices, and a job on each device."""
    nodes = [
        cluster.node(name, f"{name}.1", number) for name, number in zip("ab", devices, strict=True)
    ]
    for node in nodes:
        node.register()
    jobs = [cluster.submit() for _ in range(sum(devices))]
    cluster.until(lambda: {job for node in nodes for job in node.jobs} == set(jobs))
    return nodes, jobs


def test_jobs_leave_a_node_that_is_taken_out_of_the_file_before_it_is_removed(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with engine_nodes(
        state, cluster_file=cluster_file(tmp_path, a=1, b=1), lease_s=LONG_S
    ) as cluster:
        nodes, jobs = running(cluster, 1, 1)
    with engine_nodes(state, cluster_file=cluster_file(tmp_path, a=1), lease_s=LONG_S) as cluster:
        assert cluster.view("b").state == "drained"
        assert cluster.view("b").reason.startswith("taken out of the cluster file")
        a, b = (joined(cluster, node) for node in nodes)
        cluster.until(lambda: not b.jobs, "the end of the job on b")
        cluster.until(lambda: names(cluster) == {"a"}, "the removal of b")
        cluster.silence(b)
        with pytest.raises(ConfigError, match="node 'b': is not in the cluster file"):
            b.register()
        cluster.until(lambda: {node_of(cluster, job) for job in jobs} == {"a"})
        assert a.jobs <= set(jobs)


def test_a_node_without_jobs_that_is_taken_out_of_the_file_is_gone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with engine_nodes(state, cluster_file=cluster_file(tmp_path, a=1, b=1)) as cluster:
        for name in "ab":
            cluster.node(name, f"{name}.1").register()
    with engine_nodes(state, cluster_file=cluster_file(tmp_path, a=1)) as cluster:
        assert names(cluster) == {"a"}


def test_a_node_that_is_put_back_into_the_file_keeps_its_jobs(tmp_path: Path) -> None:
    state = tmp_path / "state"
    both = cluster_file(tmp_path, a=1, b=1)
    with engine_nodes(state, cluster_file=both, lease_s=LONG_S) as cluster:
        nodes, _ = running(cluster, 1, 1)
    with engine_nodes(state, cluster_file=cluster_file(tmp_path, a=1), lease_s=LONG_S) as cluster:
        assert cluster.view("b").state == "drained"
    with engine_nodes(
        state, cluster_file=cluster_file(tmp_path, a=1, b=1), lease_s=LONG_S
    ) as cluster:
        for node in nodes:
            joined(cluster, node)
        cluster.until(lambda: cluster.view("b").state == "up")
        cluster.until(lambda: len(nodes[1].jobs) == 1)


def test_the_job_of_a_renamed_node_moves_to_the_new_one(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with engine_nodes(
        state, cluster_file=cluster_file(tmp_path, a=1, b=1), lease_s=LONG_S
    ) as cluster:
        nodes, jobs = running(cluster, 1, 1)
    with engine_nodes(
        state, cluster_file=cluster_file(tmp_path, a=1, c=1), lease_s=LONG_S
    ) as cluster:
        for node in nodes:
            joined(cluster, node)
        cluster.node("c", "c.1").register()
        cluster.until(lambda: names(cluster) == {"a", "c"}, "the removal of b")
        cluster.silence(cluster.nodes[1])
        cluster.until(lambda: {node_of(cluster, job) for job in jobs} == {"a", "c"})


@pytest.mark.parametrize("kind", ["fewer devices", "another type"])
def test_a_node_of_another_make_ends_its_jobs_before_they_run_again(
    tmp_path: Path, kind: str
) -> None:
    """The agent of before is refused, and ends; until its leases are over its jobs begin nowhere else."""
    state = tmp_path / "state"
    with engine_nodes(state, cluster_file=cluster_file(tmp_path, a=1, b=2), lease_s=8.0) as cluster:
        nodes, jobs = running(cluster, 1, 2)
        on_b = nodes[1].jobs
    path = cluster_file(tmp_path, a=1, b=1 if kind == "fewer devices" else 2)
    if kind == "another type":
        path.write_text(path.read_text().replace("v100", "k80", 2).replace("k80", "v100", 1))
    with engine_nodes(state, cluster_file=path, lease_s=8.0) as cluster:
        joined(cluster, nodes[0])
        with pytest.raises(ConfigError, match="node 'b': the cluster file says"):
            joined(cluster, nodes[1])
        cluster.nodes.pop()
        left = set(on_b)
        assert {node_of(cluster, job) for job in left} == {"b"}
        assert all(cluster.job(job).starts == 1 for job in left)
        assert cluster.view("b").state == "suspect"
        cluster.until(lambda: cluster.view("b").state == "lost")
        cluster.until(lambda: any(cluster.job(job).starts > 1 for job in left))
        assert {node_of(cluster, job) for job in left if cluster.job(job).starts > 1} == {"a"}
    assert len(jobs) == 3
