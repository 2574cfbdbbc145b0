"""Submissions are durable soon whatever the driver's thread does."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, WAIT_S, busy_driver, engine_nodes

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.commit_log import MAX_ROWS
from fairlead.cluster.server.submissions import Submission
from fairlead.cluster.store.store import Store, Transaction
from fairlead.errors import StoreError
from fairlead.model.commands import Command
from fairlead.model.events import Event, JobsSubmitted

SPEC = JobSpec(command=("x",), total_steps=1000, rates={"v100": 1.0})


def test_submission_is_answered_and_durable_while_the_driver_is_busy(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("n").register()
        earlier = cluster.submit()
        with busy_driver(cluster):
            ids = cluster.service.submit(ADMIN, [SPEC, SPEC])
            assert ids == [earlier + 1, earlier + 2]
            assert [row.id for row in cluster.service.store.open_jobs()] == [earlier, *ids]
            assert cluster.job(ids[0]).state == "waiting"
        later = cluster.submit()
        assert later == ids[-1] + 1
        cluster.service.cancel(ADMIN, earlier)
        cluster.until(lambda: cluster.job(ids[0]).state == "running", "the job to run")
        cluster.service.cancel(ADMIN, ids[1])
        cluster.until(lambda: cluster.job(ids[1]).state == "cancelled", "the other's end")


def test_server_that_ends_before_its_driver_heard_of_a_job_runs_it_after_its_next_start(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path / "first") as cluster:
        cluster.node("n").register()
        cluster.until(lambda: cluster.service.engine.state.ready, "a core")
        with busy_driver(cluster):
            (job,) = cluster.service.submit(ADMIN, [SPEC])
            shutil.copytree(tmp_path / "first", tmp_path / "second")  # as a crash would leave it
    with engine_nodes(tmp_path / "second") as cluster:
        assert cluster.job(job).state == "waiting"
        cluster.node("n", "two.1").register()
        cluster.until(lambda: cluster.job(job).state == "running", "the job to run")
        assert cluster.submit() == job + 1


def test_same_key_submits_once_whoever_writes_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster, ThreadPoolExecutor() as pool:
        cluster.node("n").register()
        with busy_driver(cluster):
            ids = cluster.service.submit(ADMIN, [SPEC], key="k")
            again = pool.submit(cluster.service.submit, ADMIN, [SPEC], key="k")
        assert again.result(WAIT_S) == ids == cluster.service.submit(ADMIN, [SPEC], key="k")
        assert len(cluster.service.store.open_jobs()) == 1


def test_what_cannot_be_written_aside_waits_for_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_nodes(tmp_path) as cluster, ThreadPoolExecutor() as pool:
        cluster.node("n").register()
        driver, tried = cluster.service.engine._thread, threading.Event()
        transaction = Store.transaction

        def fails(store: Store) -> object:
            if threading.current_thread() is driver:
                return transaction(store)
            tried.set()
            raise StoreError("state.db: cannot be written (full)")

        monkeypatch.setattr(Store, "transaction", fails)
        with busy_driver(cluster):
            waiting = pool.submit(cluster.service.submit, ADMIN, [SPEC])
            assert tried.wait(WAIT_S)
            assert not waiting.done()
        assert waiting.result(WAIT_S) == [0]
        assert cluster.submit() == 1


def test_core_hears_of_a_job_once_its_row_is_durable(tmp_path: Path) -> None:
    """So that a submission waits for no decision, and a crash in between loses nothing."""
    with engine_nodes(tmp_path) as cluster:
        cluster.node("n").register()
        cluster.until(lambda: cluster.service.engine.state.ready, "a core")
        state, seen = cluster.service.engine.state, []
        scheduler = state.scheduler
        assert scheduler is not None
        handle = scheduler.handle

        def look(event: Event) -> list[Command]:
            if isinstance(event, JobsSubmitted) and event.jobs:
                seen.append([state.store.job(job.id) is not None for job in event.jobs])
            return handle(event)

        cluster.do(lambda: setattr(scheduler, "handle", look))
        cluster.submit()
        cluster.until(lambda: seen, "the core to hear of it")
        assert seen == [[True]]


def test_large_commit_leaves_submissions_to_the_thread_beside_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("n").register()
        cluster.until(lambda: cluster.service.engine.state.ready, "a core")
        service, registry = cluster.service, cluster.service.engine.state.registry
        commits, left = service.engine.parts.commits, []
        write_all = commits._write_all

        def look(t: Transaction) -> None:
            if len(registry.dirty_jobs) >= MAX_ROWS:
                left.append(
                    not submission.ids.done() and submission in service.submissions._waiting
                )
            write_all(t)

        submission = Submission(user="u", tenant="t", specs=[SPEC], key="")

        def much() -> None:
            commits._write_all = look  # type: ignore[method-assign]
            service.submissions.submit(submission)
            registry.dirty_jobs.update(range(1_000_000, 1_000_000 + MAX_ROWS))

        cluster.do(much)
        assert left == [True]
        (job,) = submission.ids.result(WAIT_S)
        cluster.until(lambda: cluster.job(job).state == "running", "the job to run")
