"""Nodes that have not registered since the server was started get nothing new, and lose nothing by it."""

import time
from pathlib import Path

from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

LONG_S = 600.0  # leases that no test outlives


def _back(cluster: EngineNodes, before: PlayedNode) -> PlayedNode:
    """The agent that was there before, which registers with a server that was started anew."""
    node = cluster.node(before.name, before.incarnation)
    node.statuses, node.leased = before.statuses, before.leased
    node.register()
    return node


def _given(cluster: EngineNodes, job: int) -> list[str]:
    """Of each start of a job its node."""
    return [attempt.node for attempt in cluster.service.attempts(ADMIN, job)]


def _let_rounds_pass(cluster: EngineNodes, number: int = 2) -> None:
    before = cluster.service.status(ADMIN).round
    cluster.until(lambda: cluster.service.status(ADMIN).round > before + number)


def test_a_node_that_is_dead_when_the_server_is_started_gets_nothing(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        for name in ("one", "two"):
            cluster.node(name, f"{name}.1").register()
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        cluster.node("one", "one.1").register()
        jobs = [cluster.submit() for _ in range(3)]
        cluster.until(lambda: any(_given(cluster, job) for job in jobs))
        _let_rounds_pass(cluster)
        assert {node for job in jobs for node in _given(cluster, job)} == {"one"}


def test_jobs_wait_for_the_first_node_that_registers_and_no_longer(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        for name in ("one", "two"):
            cluster.node(name, f"{name}.1").register()
    with engine_nodes(tmp_path, lease_s=LONG_S, round_s=300.0) as cluster:
        job = cluster.submit()
        time.sleep(1.5)  # longer than it takes to order a job of a node that is there
        assert _given(cluster, job) == []
        assert cluster.job(job).state == "waiting"
        two = cluster.node("two", "two.1")
        two.register()
        cluster.until(lambda: job in two.jobs)
        assert _given(cluster, job) == ["two"]


def test_a_running_round_ends_without_a_dead_node_whose_job_is_waited_for(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        one, two = cluster.node("one", "one.1"), cluster.node("two", "two.1")
        one.register()
        first = cluster.submit()
        cluster.begin(one, first)
        two.register()
        second = cluster.submit()
        cluster.begin(two, second)
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        one = _back(cluster, one)
        third = cluster.submit()
        cluster.until(lambda: third in one.jobs)
        _let_rounds_pass(cluster)
        assert set(_given(cluster, third)) == {"one"}
        assert _given(cluster, second) == ["two"]
        assert cluster.job(second).state == "running", "it may run there still"
        _back(cluster, two)
        _let_rounds_pass(cluster)
        assert _given(cluster, second)[0] == "two"
        attempts = cluster.service.attempts(ADMIN, second)
        assert "lost" not in attempts[0].why


def test_jobs_notice_nothing_of_a_restart_of_the_server(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        nodes = [cluster.node(name, f"{name}.1") for name in ("one", "two")]
        for node in nodes:
            node.register()
        gang = cluster.submit(scale_factor=2)
        for node in nodes:
            cluster.begin(node, gang)
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        again = [_back(cluster, nodes[0])]
        late_s = (
            time.monotonic() + 1.5
        )  # the other one is a little late; rounds are over after a second
        cluster.until(lambda: time.monotonic() > late_s)  # a silent node would become suspect
        again.append(_back(cluster, nodes[1]))
        _let_rounds_pass(cluster)
        assert len(_given(cluster, gang)) == 1
        assert all(node.jobs == {gang} for node in again)
        assert not cluster.service.attempts(ADMIN, gang)[0].why


def test_an_order_for_a_node_that_never_registers_goes_elsewhere(tmp_path: Path) -> None:
    """It waited for the end of the start before it when the server was stopped."""
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        one, two = cluster.node("one", "one.1"), cluster.node("two", "two.1")
        one.register()
        job = cluster.submit(grace_s=60.0)
        cluster.begin(one, job)
        two.register()
        cluster.nodes.clear()
        cluster.service.drain(ADMIN, "one")
        live = cluster.service.engine.state.registry.live
        end = time.monotonic() + 180
        while len(live[job]) < 2:  # nobody ends anything meanwhile
            assert time.monotonic() < end
            two.say()
            one.say()
            time.sleep(0.02)
        assert live[job][1].placement() == {"two": (0,)}
        assert not live[job][1].ordered
    with engine_nodes(tmp_path, lease_s=LONG_S) as cluster:
        one = _back(cluster, one)
        three = cluster.node("three", "three.1")
        three.register()
        cluster.until(lambda: job in three.jobs, "the start on a node that is there")
        assert two.leased == set()
