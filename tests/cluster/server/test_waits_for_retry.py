"""A job that failed and is to be tried again was not preempted: it waits, and it is told when and why."""

from pathlib import Path

from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.protocol.messages import Failure


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
