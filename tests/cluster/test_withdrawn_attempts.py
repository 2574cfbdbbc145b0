"""A start that waits for an earlier one of its job to end is none until it is ordered of its node."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.server_nodes import (
    ADMIN,
    WAIT_S,
    EngineNodes,
    PlayedNode,
    engine_nodes,
)

TOTAL = 20


def _finishing(cluster: EngineNodes) -> tuple[PlayedNode, int]:
    """A job whose steps are all done, and the node on which it ends."""
    node = cluster.node("one")
    node.register()
    job = cluster.submit(total_steps=TOTAL)
    cluster.until(lambda: (job, 1) in node.leased & node.statuses.keys())
    node.run(job, 1, loaded_step=0, step=TOTAL, saved_step=TOTAL, finishing=True)
    node.say()
    cluster.until(lambda: cluster.job(job).state == "finishing")
    return node, job


def _until(node: PlayedNode, holds: Callable[[], object]) -> None:
    """The node goes on saying what it holds, and ends nothing."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        node.say()
        time.sleep(0.02)


def _pause_and_resume(cluster: EngineNodes, node: PlayedNode, job: int) -> None:
    """The old start still ends when the next one is decided on."""
    cluster.service.pause(ADMIN, job)
    live = cluster.service.engine.state.registry.live
    _until(node, lambda: live[job][0].stopping == "paused")
    cluster.service.resume(ADMIN, job)
    _until(node, lambda: len(live[job]) == 2)


def _starts(cluster: EngineNodes, job: int) -> list[str]:
    attempts, view = cluster.service.attempts(ADMIN, job), cluster.job(job)
    assert view.starts == len(attempts)
    return [attempt.why for attempt in attempts]


def test_a_start_that_was_never_ordered_did_not_complete_the_job(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=30.0) as cluster:
        node, job = _finishing(cluster)
        _pause_and_resume(cluster, node, job)
        assert _starts(cluster, job) == [""]
        node.end(job, 1, step=TOTAL, loaded_step=0, exit_code=0, completed=True)
        _until(node, lambda: cluster.job(job).state == "completed")
        assert _starts(cluster, job) == ["completed"]
        assert cluster.service.explain(ADMIN, job).events[-1][1] == "completed"


def test_a_start_that_is_taken_back_before_its_order_is_none(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=30.0) as cluster:
        node, job = _finishing(cluster)
        _pause_and_resume(cluster, node, job)
        cluster.service.pause(ADMIN, job)
        live = cluster.service.engine.state.registry.live
        _until(node, lambda: len(live[job]) == 1)
        node.end(job, 1, step=TOTAL, loaded_step=0, exit_code=1)
        _until(node, lambda: job not in live)
        assert _starts(cluster, job) == ["paused"]
        assert cluster.job(job).preemptions == 0


def test_a_start_begins_when_it_is_ordered(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=30.0) as cluster:
        node, job = _finishing(cluster)
        _pause_and_resume(cluster, node, job)
        node.end(job, 1, step=TOTAL, loaded_step=0, saved_step=TOTAL, exit_code=1)
        _until(node, lambda: len(_starts(cluster, job)) == 2)
        first, second = cluster.service.attempts(ADMIN, job)
        assert first.ended_s is not None
        assert second.began_s >= first.ended_s
        assert (second.from_step, second.to_step) == (TOTAL, TOTAL)
        told = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert told[2].startswith("attempt 1 paused")
        assert told[3].startswith("attempt 2 on ")
        cluster.until(lambda: cluster.job(job).attempt >= 2)
        rounds = cluster.service.status(ADMIN).round
        _until(node, lambda: cluster.service.status(ADMIN).round > rounds + 1)
        assert cluster.job(job).steps == TOTAL, "after reports of rounds too"
