"""A job that ends the agents of its nodes, one after the other, is blamed and given up; others are not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.store.failures import Backoff


def _trains(cluster: EngineNodes, job: int) -> PlayedNode | None:
    """Let the newest attempt of the job train. Returns its node; None = the job was given up."""

    def holding() -> list[PlayedNode]:
        return [node for node in cluster.nodes if job in node.jobs]

    def is_dropped() -> bool:
        return cluster.job(job).state == "dropped"

    cluster.until(lambda: is_dropped() or holding())
    if is_dropped():
        return None
    (node,) = holding()
    key = next(key for key, held in node.statuses.items() if held.state != "ended")
    cluster.until(lambda: key in node.leased)
    node.run(*key, loaded_step=0, step=10, ran_s=1.0)
    cluster.until(lambda: cluster.job(job).steps >= 10)
    return node


def _starts_anew(cluster: EngineNodes, node: PlayedNode) -> None:
    """The agent is killed, and another one is started in its place."""
    cluster.silence(node)
    name, _, run = node.incarnation.partition(".")
    again = cluster.node(node.name, f"{name}.{int(run) + 1}", node.devices)
    again.register()


@pytest.mark.parametrize("how", [_starts_anew, EngineNodes.silence])
def test_a_job_that_takes_node_after_node_is_given_up(
    tmp_path: Path, how: Callable[[EngineNodes, PlayedNode], None]
) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.2)
        for name in "abcd":
            cluster.node(name, f"{name}.1").register()
        evil = cluster.submit(max_retries=50)
        attempts = 0
        while (node := _trains(cluster, evil)) is not None:
            how(cluster, node)
            attempts += 1
            cluster.until_silence_tells(
                lambda: cluster.service.attempts(ADMIN, evil)[attempts - 1].ended_s  # noqa: B023
            )
        view = cluster.job(evil)
        assert "it takes node after node: an agent died or fell silent" in view.reason
        assert 3 <= attempts <= 5, "it may have been started again where it was"
        assert 0 < view.failures < attempts
