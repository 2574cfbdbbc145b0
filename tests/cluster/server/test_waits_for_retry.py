"""A job that failed and is to be tried again was not preempted: it waits, and it is told when and why."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.protocol.messages import ORPHANED, Failure, SpawnerDeath
from fairlead.cluster.server import spawner_deaths
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
            attempt = max(cluster.until(lambda: {a for _, a in node.statuses} - ended))
            node.run(job, attempt, loaded_step=0, step=40, ran_s=5.0)
            _let_rounds_end(cluster, 2)
            failure = Failure(exit_code=74, message="step 40 could not be saved")
            node.end(job, attempt, exit_code=74, step=40, loaded_step=0, failure=failure)
            ended.add(attempt)
            cluster.until(lambda: cluster.job(job).state != "running")
        cluster.until(lambda: cluster.job(job).ended_s is not None)
        assert "failed 3 times in a row" in cluster.job(job).reason


def _spawner_dies(cluster: EngineNodes, node: PlayedNode, number: int) -> set[int]:
    """All that trains on the node ends with it. Returns these jobs, once that is booked."""
    there = [
        (job, attempt) for (job, attempt), held in node.statuses.items() if held.state == "running"
    ]
    death = SpawnerDeath(number=number, jobs=tuple(job for job, _ in there))
    for job, attempt in there:
        node.end(job, attempt, exit_code=-9, reason=ORPHANED, spawner_death=death)
    cluster.until(lambda: not {key for key in there if key in node.statuses})
    return set(death.jobs)


def _train(cluster: EngineNodes, node: PlayedNode, jobs: set[int]) -> None:
    """These jobs train on the node, and no others."""
    cluster.until(lambda: node.jobs == jobs)
    starting = [key for key, held in node.statuses.items() if held.state == "starting"]
    for job, attempt in starting:
        node.run(job, attempt, loaded_step=0, step=10, ran_s=1.0, saved_step=attempt)
    cluster.until(lambda: all(cluster.job(job).saved_step == saved for job, saved in starting))


def test_who_was_suspected_waits_no_longer_than_until_another_one_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawner_deaths, "SUSPECT_WAIT_S", 3000.0)  # longer than any test
    with engine_nodes(tmp_path, round_s=20.0, early_round_end=True) as cluster:
        node = cluster.node("one", devices=3)
        jobs = {cluster.submit() for _ in range(3)}
        node.register()
        for number in (1, 2):
            _train(cluster, node, jobs)
            assert _spawner_dies(cluster, node, number) == jobs
        cluster.until(lambda: any(cluster.job(job).retry_in_s for job in jobs))
        waiting = {job for job in jobs if cluster.job(job).retry_in_s is not None}
        (evil,) = jobs - waiting
        assert all("died again" in cluster.job(job).reason for job in waiting)
        _train(cluster, node, {evil})
        _spawner_dies(cluster, node, 3)
        cluster.until(lambda: cluster.job(evil).failures == 1)
        cluster.until(lambda: waiting <= node.jobs)


def test_a_job_that_kills_what_owns_it_and_saves_before_is_dropped(tmp_path: Path) -> None:
    """What it has done excuses no death that it is to blame for."""
    with engine_nodes(tmp_path) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.2)
        node = cluster.node("one")
        job = cluster.submit(max_retries=2)
        node.register()
        for number in range(1, 5):
            _train(cluster, node, {job})
            _spawner_dies(cluster, node, number)
        cluster.until(lambda: cluster.job(job).ended_s is not None)
        assert cluster.job(job).failures == 3
        assert cluster.view("one").state == "up"
