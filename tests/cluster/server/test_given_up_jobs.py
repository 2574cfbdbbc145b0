"""Of a job that has ended before its last step, all that it did and did not keep is lost."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.protocol.api_models import JobView
from fairlead.cluster.protocol.messages import Failure


def _begun(cluster: EngineNodes, **spec: Any) -> tuple[PlayedNode, int]:
    """A node, and a job that was ordered there."""
    node, job = cluster.node("one"), cluster.submit(**spec)
    node.register()
    cluster.until(lambda: node.leased)
    return node, job


def _is_leased(node: PlayedNode, key: tuple[int, int]) -> bool:
    return key in node.leased


def _is_at(cluster: EngineNodes, job: int, step: int) -> bool:
    return cluster.job(job).steps == step


def _ended(cluster: EngineNodes, job: int, state: str) -> JobView:
    """The job, once it and all of its attempts have ended."""

    def over() -> bool:
        ended = [one.ended_s is not None for one in cluster.service.attempts(ADMIN, job)]
        return cluster.job(job).state == state and all(ended)

    cluster.until(over)
    return cluster.job(job)


def test_a_dropped_job_has_lost_the_steps_of_its_last_attempt_too(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        node, job = _begun(cluster, max_retries=1)
        lost = 0
        for attempt, (told, failed_at) in enumerate([(9, 9), (10, 12)], start=1):
            cluster.until(partial(_is_leased, node, (job, attempt)))
            node.run(job, attempt, loaded_step=0, saved_step=0, step=told, lost_steps=lost)
            cluster.until(partial(_is_at, cluster, job, told))
            lost += failed_at
            failure = Failure(kind="exception", step=failed_at, exit_code=1)
            node.end(
                job, attempt, exit_code=1, loaded_step=0, saved_step=0, step=told,
                lost_steps=lost - failed_at, failure=failure,
            )  # fmt: skip
        assert _ended(cluster, job, "dropped").lost_steps == 9 + 12


@pytest.mark.parametrize("paused", [False, True])
def test_a_cancelled_job_has_lost_what_it_had_not_saved(tmp_path: Path, paused: bool) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        node, job = _begun(cluster)
        at: dict[str, Any] = {"loaded_step": 0, "saved_step": 5, "step": 9}
        node.run(job, 1, **at)
        cluster.until(lambda: cluster.job(job).steps == 9)
        if paused:
            cluster.service.pause(ADMIN, job)
            node.end(job, 1, exit_code=0, **at)
            assert _ended(cluster, job, "paused").lost_steps == 0, "the next one says what is"
        cluster.service.cancel(ADMIN, job)
        node.end(job, 1, exit_code=0, **at)
        found = _ended(cluster, job, "cancelled")
        assert (found.lost_steps, found.steps) == (4, 5)


def test_a_cancelled_job_that_kept_all_has_lost_nothing(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, loaded_step=0, saved_step=5, step=9)
        cluster.until(lambda: cluster.job(job).steps == 9)
        cluster.service.cancel(ADMIN, job)
        node.end(job, 1, exit_code=0, loaded_step=0, saved_step=9, step=9)
        assert _ended(cluster, job, "cancelled").lost_steps == 0


def test_a_program_that_is_cancelled_while_it_is_parked_has_lost_all(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        node, job = _begun(cluster, unmanaged=True, park="stop")
        at: dict[str, Any] = {"loaded_step": 0, "step": 9}
        node.run(job, 1, **at)
        cluster.until(lambda: cluster.job(job).steps == 9)
        cluster.service.pause(ADMIN, job)
        node.end(job, 1, exit_code=-9, released=True, **at)
        assert _ended(cluster, job, "paused").steps == 9
        cluster.service.cancel(ADMIN, job)
        assert _ended(cluster, job, "cancelled").lost_steps == 9
