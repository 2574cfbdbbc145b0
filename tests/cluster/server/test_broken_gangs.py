"""What is told of a gang of which ranks have failed on one node, while those on another do not end."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.protocol.messages import AGENT_LEAVES, LEFT_EARLY, Failure

ERROR = "KeyError: 'x' (train.py:40)"


def test_a_gang_whose_rank_0_has_failed_is_being_ended_and_not_done(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0, lease_s=60.0) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2)
        cluster.until(lambda: all(node.jobs for node in nodes))
        attempt = cluster.service.engine.state.registry.newest(job)
        assert attempt is not None
        first, second = sorted(nodes, key=lambda node: node.name != attempt.first_node)
        first.run(job, 1, loaded_step=0, step=40, saved_step=0)
        second.run(job, 1)
        cluster.until(lambda: cluster.job(job).steps == 40)
        failure = Failure(kind="exception", exit_code=1, message=ERROR)
        told = {"loaded_step": 0, "step": 40, "saved_step": 0}
        first.end(job, 1, exit_code=1, reason=ERROR, failure=failure, **told)
        second.stopping(job, 1)
        cluster.silence(first)  # it has said that
        first.say()
        second.say()
        why = f"ranks on {first.name} have ended ({ERROR})"
        cluster.until(lambda: why in cluster.job(job).reason)
        view = cluster.job(job)
        assert (view.reason, view.no_end) == (f"is being ended: {why}", "being ended")
        facts = " ".join(cluster.service.explain(ADMIN, job).facts)
        assert f"It is being ended on 1 x v100 of {second.name}: {why}." in facts
        assert "All its steps are done" not in facts
        assert "Expected to end" not in facts


def test_a_gang_whose_rank_0_has_ended_well_waits_for_the_others(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0, lease_s=60.0) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2, unmanaged=True, total_steps=20)
        cluster.until(lambda: all(node.jobs for node in nodes))
        attempt = cluster.service.engine.state.registry.newest(job)
        assert attempt is not None
        first, second = sorted(nodes, key=lambda node: node.name != attempt.first_node)
        first.run(job, 1)
        second.run(job, 1)
        cluster.until(lambda: cluster.job(job).state == "running")
        first.end(job, 1, exit_code=0)
        cluster.silence(first)
        first.say()
        cluster.until(lambda: first.name in attempt.gone)
        facts = cluster.service.explain(ADMIN, job).facts
        assert facts[:2] == (
            f"Its ranks on {first.name} have ended with exit code 0; others run on 1 x v100 of "
            f"{second.name}.",
            "It is complete when those have ended so too.",
        )


def test_a_gang_of_which_a_rank_ended_for_a_sigterm_is_started_again_to_finish(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2, total_steps=40)
        cluster.until(lambda: all((job, 1) in node.leased for node in nodes))
        attempt = cluster.service.engine.state.registry.newest(job)
        assert attempt is not None
        first, second = sorted(nodes, key=lambda node: node.name != attempt.first_node)
        told = {"loaded_step": 0, "step": 40, "saved_step": 40}
        first.end(job, 1, exit_code=0, completed=True, finishing=True, **told)
        second.end(job, 1, exit_code=0, terminated=True, reason=AGENT_LEAVES)
        cluster.until(lambda: all((job, 2) in node.leased for node in nodes))
        view = cluster.job(job)
        assert (view.starts, view.failures, view.steps) == (2, 0, 40)


def test_a_gang_that_waits_for_a_rank_that_has_left_is_ended_at_once(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0, lease_s=60.0) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2, total_steps=40, max_retries=0)
        cluster.until(lambda: all((job, 1) in node.leased for node in nodes))
        attempt = cluster.service.engine.state.registry.newest(job)
        assert attempt is not None
        (second,) = [node for node in nodes if node.name != attempt.first_node]
        second.end(job, 1, exit_code=0, left=1)
        cluster.until(lambda: cluster.job(job).state == "dropped")
        (view,) = cluster.service.attempts(ADMIN, job)
        assert view.why == f"failed: rank 1 {LEFT_EARLY}"


@pytest.mark.parametrize("raiser", [0, 1])
def test_what_a_rank_raises_after_an_order_to_stop_is_told_wherever_it_ran(
    tmp_path: Path, raiser: int
) -> None:
    raised = Failure(kind="exception", exit_code=1, message=ERROR, traceback="T")
    with engine_nodes(tmp_path) as cluster:
        nodes = [cluster.node(name) for name in "ab"]
        for node in nodes:
            node.register()
        job = cluster.submit(scale_factor=2)
        cluster.until(lambda: all((job, 1) in node.leased for node in nodes))
        for node in nodes:
            node.run(job, 1)
            node.say()
        cluster.service.pause(ADMIN, job)
        cluster.until(lambda: all(node.statuses[job, 1].state != "running" for node in nodes))
        nodes[1 - raiser].end(job, 1, exit_code=75)
        nodes[raiser].end(job, 1, exit_code=1, reason=ERROR, failure=raised)
        cluster.until(lambda: all((job, 1) not in node.statuses for node in nodes))
        (attempt,) = cluster.service.attempts(ADMIN, job)
        assert (attempt.why, attempt.traceback) == (f"paused; {ERROR}", "T")
