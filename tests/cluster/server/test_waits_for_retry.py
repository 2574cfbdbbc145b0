"""A job that failed and is to be tried again was not preempted: it waits, and it is told when and why."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.protocol.api_models import AttemptView, JobView
from fairlead.cluster.protocol.messages import (
    AGENT_LEAVES,
    EXPIRED,
    ORPHANED,
    Failure,
    SpawnerDeath,
)
from fairlead.cluster.server import death_judge
from fairlead.cluster.store.failures import Backoff
from fairlead.model.events import JobsPaused
from fairlead.model.job import JobId

LONG_S = 3000.0  # longer than any test


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


def test_a_job_whose_wait_is_over_still_waits_for_another_try(tmp_path: Path) -> None:
    """No devices are left for it: it was not preempted, also once it has been paused."""
    with engine_nodes(tmp_path, 600.0) as cluster:
        retries = cluster.service.engine.parts.jobs.retries
        retries.backoff = Backoff(LONG_S, LONG_S)
        node, state = cluster.node("one"), cluster.service.engine.state
        job = cluster.submit()
        node.register()
        _fail(cluster, node, job, 1)
        cluster.until(lambda: cluster.job(job).retry_in_s is not None)
        cluster.service.drain(ADMIN, "one")
        clock = cluster.service.engine.parts.rounds.clock
        cluster.do(lambda: retries.poll(state.now_s() + 2 * LONG_S))
        for _ in range(2):
            cluster.until(lambda: cluster.job(job).retry_in_s is None)
            cluster.do(lambda: clock.end_round(state.now_s()))
            view = cluster.until(lambda: _off_devices(cluster, job))
            assert (view.state, view.retry_in_s) == ("waiting", None)
            assert view.reason == "failed once, tried again when it gets devices: exit code 3"
            facts = cluster.service.explain(ADMIN, job).facts
            assert facts[0] == f"It waits for another try: {view.reason}."
            cluster.service.pause(ADMIN, job)
            assert cluster.job(job).reason == "paused by its owner"
            cluster.service.resume(ADMIN, job)
        cluster.service.undrain(ADMIN, "one")
        cluster.until(lambda: (job, 2) in node.statuses)
        node.run(job, 2, loaded_step=0, step=5, saved_step=0)
        cluster.until(lambda: cluster.job(job).steps == 5)
        cluster.service.drain(ADMIN, "one")
        cluster.until(lambda: cluster.job(job).state != "running")
        assert cluster.job(job).state == "preempted"


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


@pytest.mark.parametrize(
    ("by_agent", "end"),
    [
        ("", "paused; exit code 74: step 40 could not be saved (disk full)"),
        (AGENT_LEAVES, f"{AGENT_LEAVES}; exit code 74: step 40 could not be saved (disk full)"),
    ],
)
def test_an_attempt_that_could_not_save_as_it_was_stopped_says_why(
    tmp_path: Path, by_agent: str, end: str
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        job = cluster.submit()
        node.register()
        cluster.until(lambda: (job, 1) in node.statuses)
        node.run(job, 1, loaded_step=0, step=40, ran_s=5.0)
        cluster.until(lambda: cluster.job(job).steps == 40)
        cluster.silence(node)
        if not by_agent:
            cluster.service.pause(ADMIN, job)
        why = "exit code 74: step 40 could not be saved (disk full)"
        reason = by_agent or why
        node.end(job, 1, exit_code=74, step=40, loaded_step=0, reason=reason, unsaved=why)
        attempt = cluster.until(lambda: node.say() and _ended(cluster, job))
        assert attempt.why == end
        told = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert f"attempt 1 {end}; it ended at step 40 or later, 0 kept" in told


def _ended(cluster: EngineNodes, job: int) -> AttemptView | None:
    first = cluster.service.attempts(ADMIN, job)[0]
    return first if first.ended_s is not None else None


def _fail(cluster: EngineNodes, node: PlayedNode, job: int, attempt: int, **more: Any) -> None:
    """The attempt fails, and that is booked."""
    cluster.until(lambda: (job, attempt) in node.statuses)
    failure = Failure(exit_code=3, message="exit code 3")
    node.end(job, attempt, exit_code=3, reason="exit code 3", failure=failure, **more)
    cluster.until(lambda: cluster.job(job).failures == (attempt + 1) // 2)


def _off_devices(cluster: EngineNodes, job: int) -> JobView | None:
    view = cluster.job(job)
    return None if view.state == "running" else view


def _lose_node(cluster: EngineNodes, node: PlayedNode) -> None:
    """It loses its jobs, and comes back."""
    watch = cluster.service.engine.parts.nodes.watch
    cluster.do(lambda: watch.mark_lost(node.name, "node lost"))
    node.statuses.clear()
    node.incarnation = f"{node.incarnation}.again"
    node.register()


_ENDS: dict[str, dict[str, Any] | None] = {
    "node lost": None,
    "orphaned": {"reason": ORPHANED, "exit_code": -9},
    "agent left": {"reason": AGENT_LEAVES, "exit_code": 0},
    "lease expired": {"reason": EXPIRED, "exit_code": 0},
}


@pytest.mark.parametrize("end", _ENDS)
@pytest.mark.parametrize("heard", [True, False], ids=["heard", "found"])
def test_a_checkpoint_ends_the_row_of_failures_however_its_attempt_ended(
    tmp_path: Path, end: str, heard: bool
) -> None:
    """Also one of which the cluster learns only when the next attempt goes on from it."""
    with engine_nodes(tmp_path) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.2)
        node = cluster.node("one")
        job = cluster.submit(max_retries=1)
        node.register()
        _fail(cluster, node, job, 1)
        cluster.until(lambda: (job, 2) in node.statuses)
        told = {"loaded_step": 0, "step": 272, "saved_step": 270 if heard else 0}
        node.run(job, 2, **told)
        cluster.until(lambda: cluster.job(job).steps == 272)
        if (how := _ENDS[end]) is None:
            _lose_node(cluster, node)
        else:
            node.end(job, 2, **told, **how)
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(LONG_S, LONG_S)
        _fail(cluster, node, job, 3, loaded_step=270, step=271, saved_step=270)
        view = cluster.until(lambda: _off_devices(cluster, job))
        assert view.state == "waiting"
        assert view.reason.startswith("failed once (2 failures in all), tried again in ")


def test_a_job_without_checkpoints_that_ran_for_a_round_and_lost_its_node_has_run_well(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.2)
        node = cluster.node("one")
        job = cluster.submit(max_retries=1, unmanaged=True)
        node.register()
        _fail(cluster, node, job, 1)
        cluster.until(lambda: (job, 2) in node.statuses)
        node.run(job, 2, ran_s=60.0)
        node.end(job, 2, ran_s=60.0, reason=ORPHANED, exit_code=-9)
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(LONG_S, LONG_S)
        _fail(cluster, node, job, 3)
        view = cluster.until(lambda: _off_devices(cluster, job))
        assert view.reason.startswith("failed once (2 failures in all), tried again in ")


def test_a_lost_attempt_that_saved_nothing_new_does_not_end_the_row(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 600.0) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.1, 0.2)
        node = cluster.node("one")
        job = cluster.submit(max_retries=1)
        node.register()
        _fail(cluster, node, job, 1)
        cluster.until(lambda: (job, 2) in node.statuses)
        node.run(job, 2, loaded_step=0, step=272, saved_step=0)
        cluster.until(lambda: cluster.job(job).steps == 272)
        _lose_node(cluster, node)
        _fail(cluster, node, job, 3, loaded_step=0, step=271, saved_step=0)
        cluster.until(lambda: cluster.job(job).ended_s is not None)
        assert "failed twice in a row" in cluster.job(job).reason


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
    monkeypatch.setattr(death_judge, "SUSPECT_WAIT_S", LONG_S)
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
        assert all(
            "the process that owns the ranks died 2 times" in cluster.job(job).reason
            for job in waiting
        )
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


def test_a_job_that_a_node_has_let_go_and_that_fails_then_is_tried_again(tmp_path: Path) -> None:
    """It fails before the core has decided since: that it was pinned keeps it from nothing any more."""
    with engine_nodes(tmp_path) as cluster:
        parts = cluster.service.engine.parts.jobs
        parts.retries.backoff = Backoff(0.1, 0.2)
        node = cluster.node("one")
        job = cluster.submit()
        node.register()
        cluster.until(lambda: node.jobs == {job})
        failure = Failure(exit_code=3, message="exit code 3")
        node.end(job, 1, exit_code=3, reason="exit code 3", failure=failure)
        cluster.until(lambda: job in parts.retry_waits.waiting - parts.retry_waits.to_hold)
        cluster.do(lambda: parts.pinned.release([job]))
        cluster.until(lambda: job not in parts.retry_waits.waiting)
        assert _is_let_go(cluster, job)


def test_a_job_that_the_core_holds_for_no_reason_takes_part_again(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        state = cluster.service.engine.state
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        cluster.until(lambda: node.jobs == {job})
        held = JobsPaused(state.now_s(), np.array([job]), True)
        cluster.do(lambda: state.emit(held))
        cluster.until(lambda: (job, 2) in node.statuses)


def _is_let_go(cluster: EngineNodes, job: int) -> bool:
    """Whether the core has been told that the job takes part, or is about to be."""
    state = cluster.service.engine.state

    def told() -> bool:
        assert state.scheduler is not None
        held = JobId(job) in state.scheduler.data.paused_jobs
        return not held or any(isinstance(event, JobsPaused) for event in state.events)

    return cluster.do(told)


@pytest.mark.parametrize(("saved_step", "in_a_row"), [(-1, 2), (3, 1)])
def test_what_is_not_kept_ends_no_row_of_failures(
    tmp_path: Path, saved_step: int, in_a_row: int
) -> None:
    """However long a job trained before it failed: without a checkpoint it would do so for ever."""
    with engine_nodes(tmp_path, 600.0) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.01, 0.01)
        registry, node = cluster.service.engine.state.registry, cluster.node("one")
        job = cluster.submit()
        node.register()
        _fail(cluster, node, job, 1)
        cluster.until(lambda: (job, 2) in node.statuses)
        told: dict[str, Any] = {"loaded_step": 0, "step": 5, "saved_step": saved_step}
        node.run(job, 2, **told)
        cluster.until(lambda: cluster.job(job).steps == 5)

        def begin_earlier() -> None:
            attempt = registry.newest(job)
            assert attempt is not None
            attempt.record.began_s -= 10_000.0

        cluster.do(begin_earlier)
        failure = Failure(exit_code=3, message="exit code 3")
        node.end(job, 2, exit_code=3, reason="exit code 3", failure=failure, **told)
        cluster.until(lambda: registry.jobs[job].failures == 2)
        assert registry.jobs[job].failures_in_a_row == in_a_row
