"""What somebody was refused because it could not be written down is not done behind their back."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, WAIT_S, EngineNodes, busy_driver, engine_nodes

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server import durable_answers
from fairlead.cluster.store.rows import UserRow
from fairlead.cluster.store.store import Store
from fairlead.errors import StoreError

SPEC = JobSpec(command=("x",), total_steps=1000, rates={"v100": 1.0})
WHY = "state.db: cannot be written (database or disk is full)"


class Disk:
    """That of the state; nothing can be written to it while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = threading.Event()
        self.failed = threading.Event()  # something could not be written
        transaction = Store.transaction

        def write(store: Store) -> object:
            if self.full.is_set():
                self.failed.set()
                raise StoreError(WHY)
            return transaction(store)

        monkeypatch.setattr(Store, "transaction", write)

    def empty(self, cluster: EngineNodes) -> None:
        """There is room again, and the server has noticed."""
        self.full.clear()
        cluster.until(
            lambda: not cluster.service.engine.state.commit_error, "the state to be written"
        )


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@contextmanager
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers are not waited for."""
    with monkeypatch.context() as patch:
        patch.setattr(durable_answers, "DURABLE_S", 0.0)
        yield


def test_submission_whose_write_fails_is_refused_and_taken_back(tmp_path: Path, disk: Disk) -> None:
    with engine_nodes(tmp_path) as cluster, ThreadPoolExecutor() as pool:
        cluster.node("n").register()
        submit = cluster.service.submit
        with busy_driver(cluster) as release:
            disk.full.set()
            asked = [pool.submit(submit, ADMIN, [SPEC], key="k") for _ in range(2)]
            assert disk.failed.wait(WAIT_S)
            release()
            for refused in asked:
                with pytest.raises(StoreError, match="disk is full"):
                    refused.result(WAIT_S)
            disk.empty(cluster)
        assert cluster.service.jobs(ADMIN) == []
        ids = submit(ADMIN, [SPEC], key="k")
        assert ids == submit(ADMIN, [SPEC], key="k")
        assert [job.id for job in cluster.service.jobs(ADMIN)] == ids
        cluster.until(lambda: cluster.job(ids[0]).state == "running", "the job to run")


def test_what_nobody_has_begun_to_write_when_its_asker_is_refused_is_not_done(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_nodes(tmp_path) as cluster:
        job = cluster.submit()
        with busy_driver(cluster), impatient(monkeypatch):
            disk.full.set()  # the thread beside the driver's cannot write either
            with pytest.raises(StoreError, match="nothing was done"):
                cluster.service.submit(ADMIN, [SPEC])
            with pytest.raises(StoreError, match="nothing was done"):
                cluster.service.pause(ADMIN, job)
            disk.full.clear()
        cluster.do(lambda: None)
        assert [(job.id, job.state) for job in cluster.service.jobs(ADMIN)] == [(job, "waiting")]


def test_change_whose_write_fails_is_said_to_come_into_force_later_and_does(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_nodes(tmp_path) as cluster:
        job = cluster.submit()
        _begins_before_it_is_waited_for(cluster, disk, monkeypatch)
        disk.full.set()
        with impatient(monkeypatch), pytest.raises(StoreError, match=_sentence()) as refusal:
            cluster.service.pause(ADMIN, job)
        assert WHY in str(refusal.value)
        disk.empty(cluster)
        assert cluster.service.store.open_jobs()[0].state == "paused"


def test_user_whose_removal_comes_into_force_later_is_let_in_no_more(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front has a list of its own of those whom it lets in."""
    with engine_nodes(tmp_path) as cluster:
        told: list[list[UserRow]] = []
        cluster.service.accounts.changed = told.append
        cluster.service.add_user(ADMIN, "ann", "vision", "user")
        _begins_before_it_is_waited_for(cluster, disk, monkeypatch)
        disk.full.set()
        with impatient(monkeypatch), pytest.raises(StoreError, match=_sentence()):
            cluster.service.remove_user(ADMIN, "ann")
        disk.empty(cluster)
        cluster.until(lambda: [row.user for row in told[-1]] == [], "the front to be told")


def test_names_of_tenants_are_written_once_there_is_room(tmp_path: Path, disk: Disk) -> None:
    with engine_nodes(tmp_path) as cluster:
        registry = cluster.service.engine.state.registry

        def change() -> None:
            registry.tenants_changed = True
            cluster.service.engine.state.write(lambda t: t.set_meta("other", "x"))
            disk.full.set()

        done = cluster.service.engine.call(change)
        assert disk.failed.wait(WAIT_S)
        disk.full.clear()
        done.result(WAIT_S)
        assert cluster.service.store.meta("tenants") is not None


def _sentence() -> str:
    return "may still come into force"


def _begins_before_it_is_waited_for(
    cluster: EngineNodes, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked of the driver has been tried to be written before anybody waits for its answer."""
    call = cluster.service.engine.call

    def tried(do: Callable[[], Any]) -> "Future[Any]":
        future = call(do)
        state = cluster.service.engine.state
        cluster.until(lambda: state.commit_error, "the write to fail")
        return future

    monkeypatch.setattr(cluster.service.engine, "call", tried)
