"""What state a node is in, why, and what the core is told of it."""

import time
from operator import attrgetter
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.node_states import NODE_STATES, NodeState
from fairlead.cluster.server.live_node import Hold, LiveNode
from fairlead.cluster.server.node_condition import condition, usable

LEFT_S = 1_700_000_000.0
ENDING = "its agent is being ended in order; its jobs save, and go elsewhere"
LEFT = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(LEFT_S))


def _node(more: dict[str, object]) -> LiveNode:
    """more: values of fields, by their names from the node on."""
    node = LiveNode("a", "v100", 2)
    usual = {"agent.incarnation": "one", "observed.seen": 90.0, "leases.until": 130.0}
    for name, value in (usual | more).items():
        *path, last = name.split(".")
        setattr(attrgetter(path[0])(node) if path else node, last, value)
    return node


@pytest.mark.parametrize(
    ("more", "state", "reason"),
    [
        ({}, "up", ""),
        ({"agent.incarnation": ""}, "never seen", "no agent has registered under this name"),
        ({"drained": True}, "drained", "drained by an administrator"),
        (
            {"drained": True, "suspect": True},
            "drained",
            "drained by an administrator; silent for 10 s; its lease ends in 30 s",
        ),
        ({"lost": True, "leases.until": 95.0}, "lost", "silent for 10 s"),
        ({"suspect": True}, "suspect", "silent for 10 s; its lease ends in 30 s"),
        ({"agent.left_s": LEFT_S}, "offline", f"its agent was ended in order, {LEFT}"),
        (
            {"agent.left_s": LEFT_S, "lost": True},
            "offline",
            f"its agent was ended in order, {LEFT}",
        ),
        ({"agent.left_s": LEFT_S, "drained": True}, "drained", "drained by an administrator"),
        ({"agent.ending": True}, "offline", ENDING),
        ({"agent.ending": True, "health.problems": ("disk full",)}, "offline", ENDING),
        ({"agent.ending": True, "drained": True}, "drained", "drained by an administrator"),
        (
            {"agent.ending": True, "agent.left_s": LEFT_S},
            "offline",
            f"its agent was ended in order, {LEFT}",
        ),
        (
            {"agent.ending": True, "suspect": True},
            "suspect",
            "silent for 10 s; its lease ends in 30 s",
        ),
        ({"agent.ending": True, "lost": True, "leases.until": 95.0}, "lost", "silent for 10 s"),
        ({"health.cordoned": "3 jobs failed there"}, "unhealthy", "3 jobs failed there"),
        ({"health.problems": ("disk full", "clock wrong")}, "unhealthy", "disk full; clock wrong"),
        ({"health.problems": ("x",), "health.cordoned": "y"}, "unhealthy", "x; y"),
        ({"hold": Hold(107.0, "restored")}, "waiting", "restored; for 7 s more"),
        ({"hold": Hold(99.0, "restored")}, "up", ""),
        (
            {"suspect": True, "health.cordoned": "y"},
            "suspect",
            "silent for 10 s; its lease ends in 30 s",
        ),
    ],
)
def test_every_state_has_its_reason(more: dict[str, object], state: NodeState, reason: str) -> None:
    found = condition(_node(more), 100.0)
    assert (found.state, found.reason) == (state, reason)
    assert found.state in NODE_STATES
    assert usable(_node(more), 100.0) == (state == "up")


def test_a_node_of_an_earlier_run_of_the_server_is_suspect_until_its_jobs_are_given_up() -> None:
    earlier = {"agent.incarnation": "", "agent.last_incarnation": "one", "observed.seen": 0.0}
    anew = "has not registered since the server was started"
    found = condition(_node(earlier), 100.0)
    assert (found.state, found.reason) == ("suspect", f"{anew}; its lease ends in 30 s")
    found = condition(_node(earlier), 140.0)  # its jobs may take their grace
    assert (found.state, found.reason) == ("suspect", anew)
    found = condition(_node(earlier | {"lost": True}), 140.0)
    assert (found.state, found.reason) == ("lost", anew)


def test_after_a_restart_of_the_server_a_node_is_lost_only_when_its_leases_are_over(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        for name in ("one", "two"):
            cluster.node(name, f"{name}.1").register()
    with engine_nodes(tmp_path, lease_s=5.0) as cluster:
        view = cluster.view("two")
        assert (view.state, view.reason.partition(";")[0]) == (
            "suspect",
            "has not registered since the server was started",
        )
        with pytest.raises(ConflictError, match="'two': is suspect, has not registered since"):
            cluster.service.remove_node(ADMIN, "two")
        cluster.node("one", "one.1").register()
        assert cluster.view("one").state == "up"
        cluster.until(lambda: cluster.view("two").state == "lost")
        cluster.service.remove_node(ADMIN, "two")


def test_a_drained_node_is_not_removed_while_it_may_still_run_jobs(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0, lease_s=60.0) as cluster:
        node, other = cluster.node("one"), cluster.node("two")
        node.register()
        job = cluster.submit()
        cluster.begin(node, job)
        other.register()
        cluster.silence(node)  # killed
        cluster.service.drain(ADMIN, "one")
        with pytest.raises(ConflictError) as refused:
            cluster.service.remove_node(ADMIN, "one")
        assert str(refused.value) == (
            f"node 'one': may still run job {job}; wait until nothing runs there"
        )
