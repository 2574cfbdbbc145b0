"""A server that cannot write its state says so wherever people look."""

from pathlib import Path
from typing import NoReturn

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, busy_driver, engine_nodes

from fairlead.cli.terminal_views import status_screen
from fairlead.cluster.front.committed_state import CommittedState
from fairlead.cluster.front.leases import LeaseTable
from fairlead.cluster.front.relay import CallService
from fairlead.cluster.front.remote import DriverCalls
from fairlead.cluster.front.web.overview import summary
from fairlead.cluster.server.durable_answers import WrittenJobs
from fairlead.cluster.store.store import Store
from fairlead.errors import StoreError

WHY = "state/state.db: cannot be written (database or disk is full)"


def test_status_page_and_explain_name_the_cause(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        job = cluster.submit()
        state = cluster.service.engine.state
        assert cluster.service.status(ADMIN).unwritable == ""
        state.commit_error = WHY
        try:
            status = cluster.service.status(ADMIN)
            facts = cluster.service.explain(ADMIN, job).facts
        finally:
            state.commit_error = ""
    assert status.unwritable == WHY
    assert facts[0].startswith("Nothing can be written down just now")
    assert WHY in facts[0]
    assert str(status_screen(status).renderables[0]) == f"NOTHING IS WRITTEN DOWN: {WHY}"
    assert WHY in str(summary(status).body)


def test_an_end_that_the_server_could_not_take_over_yet_is_shown_as_one(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit(unmanaged=True, total_steps=8)
        cluster.until(lambda: node.leased)
        node.run(job, 1, ran_s=6.0)
        cluster.until(lambda: cluster.job(job).steps > 0)
        with busy_driver(cluster):
            node.end(job, 1, exit_code=0, completed=True, ran_s=8.0)
            node.say()
            view, told = cluster.job(job), cluster.service.explain(ADMIN, job)
        end = "its processes on one have ended with exit code 0, which is not booked yet"
        assert (view.state, view.no_end, view.reason) == ("running", "ended", end)
        assert f"{end[1:]}." in told.why_here
        assert (told.no_end, told.finish_s) == ("ended", None)
        cluster.until(lambda: cluster.job(job).state == "completed")


def test_what_was_found_at_the_start_is_shown_though_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        _, job = _training(cluster)
        cluster.service.pause(ADMIN, paused := cluster.submit())
    with monkeypatch.context() as patch:
        patch.setattr(Store, "transaction", _refuse)
        with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
            cluster.until(lambda: cluster.service.engine.state.commit_error)
            status, view = cluster.service.status(ADMIN), cluster.job(job)
            assert status.jobs == {"running": 1, "paused": 1}
            assert status.devices["v100"][0] == 1
            assert "one has not registered since the server was started" in view.reason
            assert "nothing can be written down" in view.reason
            assert "start elsewhere" not in view.reason
            assert cluster.job(paused).state == "paused"


def test_nobody_is_told_of_an_end_that_is_not_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        node = cluster.node("one")
        node.register()
        ended, other = cluster.submit(), cluster.submit()
        cluster.service.pause(ADMIN, other)
        cluster.until(lambda: node.statuses)
        cluster.begin(node, ended)
        cluster.until(lambda: cluster.job(ended).state == "running")
        engine = cluster.service.engine
        calls = DriverCalls(lambda call: service.take(call))
        service = CallService(
            cluster.service,
            calls.answer,
            wait=lambda: None,
            wait_until_written=WrittenJobs(engine.state, lambda: engine.parts.inbox.is_idle).wait,
        )
        questions: list[tuple[str, tuple[object, ...]]] = [
            ("job", (ended,)),
            ("jobs", ()),
            ("jobs_of", ([ended],)),
            ("attempts", (ended,)),
            ("explain", (ended,)),
        ]
        with monkeypatch.context() as patch:
            patch.setattr(Store, "transaction", _refuse)
            done = 1_000_000
            steps = {"loaded_step": 0, "step": done, "saved_step": done}
            node.end(ended, 1, exit_code=0, completed=True, **steps)
            cluster.until(lambda: engine.state.commit_error)
            for method, given in questions:
                with pytest.raises(StoreError, match="disk is full"):
                    calls.call(method, ADMIN, *given)
            assert calls.call("job", ADMIN, other).state == "paused"
        cluster.until(lambda: not engine.state.commit_error)
        assert calls.call("job", ADMIN, ended).state == "completed"
        service.close()


def test_leases_of_nodes_that_cannot_register_are_not_told_as_renewed(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        node, job = _training(cluster)
        state, table = cluster.service.engine.state, cluster.front.table
        committed = CommittedState(state.store.directory, table, state.now_s)
        cluster.do(lambda: None)  # what was decided is written down by now
        node.say()
        told = committed.explain(ADMIN, job, 0.0, WHY).why_here
        assert "leases are renewed" in told
        assert committed.job(ADMIN, job).reason == ""
        restarted = LeaseTable(60.0, 0.0, table.monotonic, lambda _: None)
        committed = CommittedState(state.store.directory, restarted, state.now_s)
        why = "one has not registered since the server was started"
        told = committed.explain(ADMIN, job, 0.0, WHY).why_here
        assert "leases are renewed" not in told
        assert (
            f"Leases are not renewed there, and what runs saves and ends with them: {why}" in told
        )
        assert committed.job(ADMIN, job).reason.startswith(f"{why}; its steps are of ")


def _training(cluster: EngineNodes) -> tuple[PlayedNode, int]:
    """A node, and a job that has done steps there."""
    node = cluster.node("one")
    node.register()
    job = cluster.submit()
    cluster.until(lambda: node.statuses)
    cluster.begin(node, job)
    cluster.until(lambda: cluster.job(job).steps > 0)
    return node, job


def _refuse(_: Store) -> NoReturn:
    raise StoreError(WHY)
