"""What is told of a start whose agent was killed is what was known of it, and no more is measured by it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.protocol.api_models import AttemptView

LONG_S = 600.0


def _lose(cluster: EngineNodes, node: PlayedNode) -> None:
    watch = cluster.service.engine.parts.watch
    cluster.do(lambda: watch.lose(node.name, "node lost"))


def _first(cluster: EngineNodes, job: int) -> AttemptView:
    return cluster.service.stints(ADMIN, job)[0]


def _begun(cluster: EngineNodes) -> tuple[PlayedNode, int]:
    node = cluster.node("one")
    job = cluster.submit()
    node.register()
    cluster.until(lambda: node.jobs == {job})
    return node, job


def test_the_steps_of_a_start_whose_node_was_lost_are_told(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, loaded_step=0, step=57, saved_step=40, start_s=2.0, load_s=0.5, ran_s=3.0)
        cluster.until(lambda: cluster.job(job).steps == 57)
        cluster.silence(node)
        _lose(cluster, node)
        stint = cluster.until(lambda: _first(cluster, job).ended_s and _first(cluster, job))
        assert (stint.from_step, stint.to_step, stint.reached_step) == (0, 40, 57)
        assert (stint.start_s, stint.load_s) == (2.0, 0.5)
        assert stint.trained_s is not None
        told = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert "start 1 node lost at step 57, 40 kept" in told


def test_an_agent_that_was_away_does_not_make_the_start_longer(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        began_s = _first(cluster, job).began_s
        state = cluster.service.engine.state
        shift_s = 42.0  # the report comes so long after the order
        clock = state.clock
        later: Any = SimpleNamespace(now_s=lambda: clock.now_s() + shift_s, to_meta=clock.to_meta)
        state.clock = later
        node.run(job, 1, loaded_step=0, step=57, saved_step=40, start_s=0.1, ran_s=shift_s - 1.0)
        cluster.until(lambda: cluster.job(job).steps == 57)
        trained_s = cluster.until(lambda: _first(cluster, job).trained_s)
        state.clock = clock
        assert trained_s - began_s < 20.0


def test_an_agent_started_anew_that_knows_no_steps_does_not_take_them_back(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, loaded_step=0, step=57, saved_step=40, start_s=2.0, load_s=0.5, ran_s=3.0)
        cluster.until(lambda: cluster.job(job).steps == 57)
        node.end(job, 1, exit_code=-9, reason="the process that owned the ranks died", start_s=42.0)
        stint = cluster.until(lambda: _first(cluster, job).ended_s and _first(cluster, job))
        assert (stint.to_step, stint.reached_step) == (40, 57)
        assert (stint.start_s, stint.load_s) == (2.0, 0.5)


@pytest.mark.parametrize("known", [{}, {"start_s": 42.0, "wait_s": 1.0}], ids=["nothing", "start"])
def test_a_start_that_never_trained_is_not_measured(
    tmp_path: Path, known: dict[str, float]
) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, **known)
        node.report()
        cluster.silence(node)
        _lose(cluster, node)
        stint = cluster.until(lambda: _first(cluster, job).ended_s and _first(cluster, job))
        assert stint.trained_s is None
        assert stint.start_s == -1.0
        assert cluster.job(job).overhead_s == 0.0
        assert not cluster.service.engine.parts.starts.seconds
        told = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert "start 1 node lost at step 0, not seen to train" in told
