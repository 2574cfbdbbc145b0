"""New nodes are bounded, and the nodes of a large cluster are not kept waiting."""

from pathlib import Path

import pytest
from tests.cluster.server.test_node_tokens import enrol
from tests.cluster.server_nodes import engine_nodes

from fairlead.cluster.front.facade import TooManyError
from fairlead.cluster.server import enrolment_limit
from fairlead.cluster.server.enrolment_limit import (
    AT_ONCE,
    PER_MINUTE,
    EnrolmentLimit,
)
from fairlead.errors import ConfigError


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


def test_a_cluster_has_so_many_types_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a card on the first page: hundreds made it megabytes."""
    monkeypatch.setattr(enrolment_limit, "MAX_TYPES", 2)
    with engine_nodes(tmp_path) as cluster:
        enrol(cluster, "a", accelerator="v100")
        enrol(cluster, "b", accelerator="k80")
        why = "node 'c': accelerator 'p100' would be one more than the 2 types"
        with pytest.raises(ConfigError, match=why):
            enrol(cluster, "c", accelerator="p100")
        enrol(cluster, "c", accelerator="k80")
        with pytest.raises(ConfigError, match="node 'b': accelerator 'p100'"):
            enrol(cluster, "b", accelerator="p100")
        enrol(cluster, "a", accelerator="p100")  # in the place of its own one
        assert {node.name for node in cluster.service.store.nodes()} == {"a", "b", "c"}
