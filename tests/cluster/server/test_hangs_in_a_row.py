"""Hangs count as failures in a row, however short the rounds are: who stands still does not train."""

from pathlib import Path

from tests.cluster.server_nodes import EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.failures import Backoff

ROUND_S = 1.0


def _hangs(cluster: EngineNodes, node: PlayedNode, job: int, attempt: int) -> None:
    """A start that does some steps, and then none for longer than a round."""
    cluster.until(lambda: (job, attempt) in node.leased)
    told = {"loaded_step": 0, "saved_step": 0, "step": 5}
    node.run(job, attempt, **told, step_age_s=0.0)
    starts = cluster.service.engine.state.registry.newest
    cluster.until(lambda: (start := starts(job)) is not None and start.record.trained_s is not None)
    start = starts(job)
    assert start is not None
    clock = cluster.service.engine.state.clock
    cluster.until(lambda: clock.now_s() - start.record.began_s > 2 * ROUND_S)
    age_s = clock.now_s() - start.record.began_s
    failure = Failure(kind="stalled", exit_code=-9, message="no step for 2 s")
    node.end(
        job, attempt, exit_code=-9, reason="no step for 2 s", failure=failure, **told,
        step_age_s=age_s, ran_s=age_s,
    )  # fmt: skip


def test_a_job_that_hangs_again_and_again_is_dropped(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, ROUND_S) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.1)
        node = cluster.node("a")
        node.register()
        job = cluster.submit(max_retries=1)
        for attempt in (1, 2):
            _hangs(cluster, node, job, attempt)
        cluster.until(lambda: cluster.job(job).state == "dropped" or (job, 3) in node.leased)
        assert cluster.job(job).state == "dropped"
