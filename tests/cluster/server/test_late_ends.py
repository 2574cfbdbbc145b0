"""An attempt that was told to stop comes to its end within its grace, in a round without it."""

from pathlib import Path

import numpy as np
import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes
from tests.cluster.server_parts import AttemptParts, add_node, cluster_state

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus, NodeReport
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.live_round import LiveRound
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.store.rows import JobRow

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


def test_a_job_that_needed_fewer_steps_is_shown_with_those(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit(total_steps=300)
        cluster.until(lambda: (job, 1) in node.statuses)
        node.run(job, 1, loaded_step=0, step=50)
        cluster.until(lambda: cluster.job(job).steps == 50)
        node.end(job, 1, exit_code=0, completed=True, loaded_step=0, step=100, saved_step=100)
        cluster.until(lambda: cluster.job(job).state == "completed")
        view, attempt = cluster.job(job), cluster.service.attempts(ADMIN, job)[0]
        assert (view.steps, view.total_steps) == (100, 100)
        assert (attempt.to_step, attempt.end) == (100, "completed")
        assert view.reason == attempt.why == "ended by itself at step 100 of 300"
        told = cluster.service.explain(ADMIN, job).facts
        assert told[0] == "It is completed: it ended by itself at step 100 of 300."
        events = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert "attempt 1 ended by itself at step 100 of 300" in events
    with engine_nodes(tmp_path) as cluster:
        view = cluster.job(job)
        assert (view.total_steps, view.reason) == (100, "ended by itself at step 100 of 300")


def test_a_job_that_fits_nowhere_is_counted_when_it_is_cancelled(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        jobs = [cluster.submit(rates={name: 1.0}) for name in ("a100", "v100")]
        for job in jobs:
            cluster.service.cancel(ADMIN, job)
        cluster.until(lambda: all(cluster.job(job).state == "cancelled" for job in jobs))
        assert cluster.service.status(ADMIN).jobs == {"cancelled": 2}


def test_a_job_whose_devices_another_has_not_left_says_so(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0, early_round_end=True) as cluster:
        node = cluster.node("one")
        node.register()
        first = cluster.submit()
        cluster.until(lambda: (first, 1) in node.statuses)
        node.run(first, 1, loaded_step=0, step=50)
        cluster.until(lambda: cluster.job(first).steps == 50)
        second = cluster.submit()
        cluster.silence(node)  # the first one goes on, whatever it is told
        cluster.service.pause(ADMIN, first)
        cluster.until(lambda: node.say() and cluster.job(second).state == "running")
        assert (
            cluster.job(second).reason
            == "waits for its devices, which another job has not left yet"
        )
        rows = cluster.service.engine.state.registry.jobs
        cluster.do(lambda: setattr(rows[second], "reason", "failed: KeyError: 'a'"))
        assert (
            cluster.job(second).reason
            == "waits for its devices, which another job has not left yet"
        )
        cluster.do(lambda: setattr(rows[second], "reason", ""))
        node.end(first, 1, exit_code=0)
        node.statuses[second, 1] = AttemptStatus(
            job=second, attempt=1, state="starting", wait_s=0.1
        )
        cluster.until(lambda: node.say() and cluster.job(second).reason == "")


def test_the_device_of_a_job_that_completes_before_it_has_moved_is_free_for_others() -> None:
    fleet = Fleet(10.0, 0.01, lambda: 100.0, lambda _: None)
    front = LocalFront(fleet)
    state = cluster_state(fleet, lambda: 100.0)
    parts = AttemptParts(state)
    spec = JobSpec(command=("x",), total_steps=100)
    row = JobRow(
        id=7, name="", tenant="t", user="u", spec=spec, submitted_s=0.0, total_steps=100.0,
        acknowledged_total=100.0, state="running",
    )  # fmt: skip
    state.registry.jobs[7] = row
    for name in ("one", "two"):
        add_node(fleet, name)
    first = parts.orders.assign(7, {"one": (0,)}, "v100", 100.0)
    following = parts.orders.assign(7, {"two": (0,)}, "v100", 100.0)  # the first is to stop
    fleet.publish()
    state.round = LiveRound(1, 90.0, 3600.0, np.array([[7]]), {7: following})
    state.capacity_changed = False
    ended = AttemptStatus(
        job=7, attempt=1, order_id=first.record.order_id, state="ended", step=100, loaded_step=0,
        saved_step=100, exit_code=0, completed=True,
    )  # fmt: skip
    front.report(NodeReport(node="one", incarnation="one.1", seq=1, holds=(ended,)))
    parts.intake.apply("one")
    assert state.round.ended[7].completed
    assert state.capacity_changed
