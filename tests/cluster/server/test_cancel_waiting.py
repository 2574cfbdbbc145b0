"""Who cancels jobs that wait stops nobody else's."""

from pathlib import Path

from tests.cluster.server_nodes import ADMIN, engine_nodes


def test_a_round_goes_on_when_a_job_that_waits_is_cancelled(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0, lease_s=60.0) as cluster:
        node, state = cluster.node("n"), cluster.service.engine.state
        node.register()
        runs = cluster.submit()
        cluster.begin(node, runs)
        waits = [cluster.submit() for _ in range(3)]
        before = state.round
        assert before is not None
        for job in waits:
            cluster.service.cancel(ADMIN, job)
        cluster.until(lambda: all(cluster.job(job).state == "cancelled" for job in waits))
        assert state.round is before
        assert [row.attempt for row in cluster.service.attempts(ADMIN, runs)] == [1]
        cluster.service.cancel(ADMIN, runs)
        cluster.until(lambda: cluster.job(runs).state == "cancelled")
        cluster.until(lambda: state.round is not before, "the end of the round")
