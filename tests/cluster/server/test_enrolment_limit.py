"""New nodes are bounded, and the nodes of a large cluster are not kept waiting."""

from pathlib import Path

import pytest
from tests.cluster.server.test_node_tokens import enrol
from tests.cluster.server_nodes import engine_nodes

from fairlead.cluster.front.facade import TooManyError
from fairlead.cluster.server import enrolment_limit
from fairlead.cluster.server.enrolment_limit import AT_ONCE, PER_MINUTE, EnrolmentLimit


def test_a_large_cluster_comes_up_at_once_and_then_some_nodes_a_minute() -> None:
    now = 100.0
    limit = EnrolmentLimit(lambda: now)
    for number in range(AT_ONCE):
        limit.spend(f"n{number}")
    why = rf"node 'late': {AT_ONCE:,} new nodes have enrolled; {PER_MINUTE} more a minute, the next in 1 s"
    with pytest.raises(TooManyError, match=why):
        limit.spend("late")
    now += 60.0
    for number in range(PER_MINUTE):
        limit.spend(f"m{number}")
    with pytest.raises(TooManyError):
        limit.spend("late")
    now += 1e6
    for number in range(AT_ONCE):
        limit.spend(f"o{number}")
    with pytest.raises(TooManyError):
        limit.spend("late")


def test_only_new_names_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrolment_limit, "AT_ONCE", 2)
    monkeypatch.setattr(enrolment_limit, "PER_MINUTE", 0.01)
    with engine_nodes(tmp_path) as cluster:
        enrol(cluster, "a")
        for _ in range(3):
            enrol(cluster, "a")  # its agent has lost its token
        enrol(cluster, "b")
        with pytest.raises(TooManyError, match="node 'c': 2 new nodes have enrolled"):
            enrol(cluster, "c")
        enrol(cluster, "b")
        assert {node.name for node in cluster.service.store.nodes()} == {"a", "b"}
