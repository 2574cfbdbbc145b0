"""A job that failed and is to be tried again was not preempted: it waits, and it is told when and why."""

from pathlib import Path

from tests.cluster.server_nodes import ADMIN, EngineNodes, engine_nodes

from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.store.failures import Backoff


def test_a_job_that_failed_waits_for_another_try(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        node = cluster.node("one")
        job = cluster.submit()
        node.register()
        cluster.until(lambda: node.jobs == {job})
        failure = Failure(exit_code=3, message="exit code 3")
        node.end(job, 1, exit_code=3, reason="exit code 3", failure=failure)
        cluster.until(lambda: cluster.job(job).state != "running")
        view = cluster.job(job)
        assert view.state == "waiting"
        assert view.retry_in_s is not None
        assert view.reason.startswith("failed once, tried again in ")
        assert view.reason.endswith(" s: exit code 3")
        engine = cluster.service.engine
        cluster.do(lambda: engine.parts.rounds.clock.end_round(engine.state.now_s()))
        cluster.until(lambda: cluster.service.status(ADMIN).jobs == {"waiting": 1})
        listed = cluster.service.jobs(ADMIN, state="waiting")
        assert [(one.id, one.state) for one in listed] == [(job, "waiting")]
        assert not cluster.service.jobs(ADMIN, state="preempted")
        assert "tried again in" in cluster.service.explain(ADMIN, job).why_here


def _let_rounds_end(cluster: EngineNodes, rounds: int) -> None:
    until = cluster.service.status(ADMIN).round + rounds
    cluster.until(lambda: cluster.service.status(ADMIN).round > until)


def test_a_job_that_trains_for_rounds_and_can_never_save_is_dropped(tmp_path: Path) -> None:
    """Training that is lost is no progress: its failures are in a row."""
    with engine_nodes(tmp_path) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.2)
        node = cluster.node("one")
        job = cluster.submit(max_retries=2)
        node.register()
        ended: set[int] = set()
        for _ in range(3):
            attempt = max(cluster.until(lambda: {a for _, a in node.held} - ended))
            node.run(job, attempt, loaded_step=0, step=40, ran_s=5.0)
            _let_rounds_end(cluster, 2)
            failure = Failure(exit_code=74, message="step 40 could not be saved")
            node.end(job, attempt, exit_code=74, step=40, loaded_step=0, failure=failure)
            ended.add(attempt)
            cluster.until(lambda: cluster.job(job).state != "running")
        cluster.until(lambda: cluster.job(job).ended_s is not None)
        assert "failed 3 times in a row" in cluster.job(job).reason
