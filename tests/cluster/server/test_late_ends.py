"""An attempt that was told to stop comes to its end within its grace, in a round without it."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

LONG_S = 1000.0  # longer than a test waits


def _until_round(cluster: EngineNodes, node: PlayedNode, after: int) -> None:
    """A later round is in force; the node ends nothing that it is not to hold any more."""
    cluster.until(lambda: node.say() and cluster.service.status(ADMIN).round > after)


@pytest.mark.parametrize("state", ["finishing", "running"])
def test_a_paused_job_that_completes_is_complete_at_once(tmp_path: Path, state: str) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        one = cluster.node("one", devices=2)
        job, other = cluster.submit(total_steps=100), cluster.submit()
        one.register()
        cluster.until(lambda: one.jobs == {job, other})
        at = {"step": 100, "finishing": True} if state == "finishing" else {"step": 50}
        one.run(job, 1, loaded_step=0, saved_step=0, **at)
        one.run(other, 1, loaded_step=0, saved_step=0, step=1)
        cluster.until(lambda: cluster.job(job).state == state)
        cluster.silence(one)
        number = cluster.service.status(ADMIN).round
        cluster.service.pause(ADMIN, job)
        _until_round(cluster, one, number)
        assert cluster.job(job).state == "paused"
        one.end(job, 1, exit_code=0, step=100, loaded_step=0, saved_step=100, completed=True)
        cluster.until(lambda: one.say() and cluster.job(job).state != "paused")
        shown = cluster.job(job)
        assert (shown.state, shown.steps, shown.reason) == ("completed", 100, "")
        assert cluster.service.status(ADMIN).round == number + 1, "the round goes on"
        assert cluster.job(other).state == "running"
        assert cluster.service.attempts(ADMIN, job)[-1].why == "completed"
