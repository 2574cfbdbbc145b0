"""The controller of searches, on a service whose nodes and reports a test plays."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import JobState
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import ParameterRange, PrunerSpec, StudySpec
from fairlead.cluster.server import search_controller
from fairlead.cluster.server.live_search import LiveSearch
from fairlead.cluster.server.submissions import Submission, SubmissionQueue
from fairlead.cluster.store.metric_store import MetricStore
from fairlead.cluster.store.rows import JobRow, SearchRow, TrialRow
from fairlead.cluster.store.transaction import Transaction
from fairlead.errors import StoreError

STUDY: dict[str, Any] = {
    "metric": "loss",
    "parameters": {"x": ParameterRange(low=0.0, high=1.0)},
    "job": JobSpec(command=("x",), total_steps=1_000, rates={"v100": 1.0}, grace_s=0.5),
    "trials": 3,
    "sampler": "random",
}


def begin(cluster: EngineNodes, **more: Any) -> int:
    return cluster.service.submit_search(ADMIN, StudySpec(**(STUDY | more)))


def trial(cluster: EngineNodes, search: int, number: int = 0) -> TrialRow:
    found: list[TrialRow] = cluster.until(
        lambda: cluster.service.store.trials(search)[number:], f"trial {number}"
    )
    return found[0]


def row(cluster: EngineNodes, search: int) -> SearchRow:
    found = cluster.service.store.search(search)
    assert found is not None
    return found


def report(folder: Path, job: int, *points: tuple[int, float], attempt: int = 1) -> None:
    lines = [json.dumps({"step": step, "metrics": {"loss": value}}) for step, value in points]
    MetricStore(folder).put((job, attempt), 0, ("\n".join(lines) + "\n").encode())


def complete(cluster: EngineNodes, node: PlayedNode, job: int) -> None:
    node.end(job, 1, completed=True, exit_code=0, step=1_000, loaded_step=0, saved_step=0)
    node.say()


def test_a_trial_whose_job_completes_has_its_value(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        search = begin(cluster, trials=1)
        job = trial(cluster, search).job
        cluster.begin(node, job)
        report(tmp_path, job, (1, 0.5), (2, 0.25))
        complete(cluster, node, job)
        cluster.until(lambda: row(cluster, search).settled, "the end of the search")
        found = trial(cluster, search)
        assert (found.state, found.value, found.step) == ("completed", 0.25, 2)
        assert row(cluster, search).state == "completed"


def test_a_trial_that_reports_nothing_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_controller, "LATE_S", 0.0)
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        search = begin(cluster, trials=1)
        job = trial(cluster, search).job
        cluster.begin(node, job)
        complete(cluster, node, job)
        cluster.until(lambda: row(cluster, search).settled, "the end of the search")
        found = trial(cluster, search)
        assert (found.state, found.reason) == ("failed", "it has reported no loss")


def test_a_value_that_comes_after_the_end_counts(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        search = begin(cluster, trials=1)
        job = trial(cluster, search).job
        cluster.begin(node, job)
        complete(cluster, node, job)
        cluster.until(lambda: cluster.job(job).state == "completed", "the end of its job")
        report(tmp_path, job, (1, 0.5))
        cluster.until(lambda: row(cluster, search).settled, "the end of the search")
        assert trial(cluster, search).value == 0.5


def test_a_pruned_trial_is_cancelled_with_the_reason(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a", devices=2)
        node.register()
        pruner = PrunerSpec("asha", min_step=2, reduction=2)
        search = begin(cluster, trials=2, parallel=2, pruner=pruner)
        good, bad = trial(cluster, search, 0).job, trial(cluster, search, 1).job
        for job in (good, bad):
            cluster.begin(node, job)
        report(tmp_path, good, (2, 0.1))
        cluster.until(lambda: trial(cluster, search, 0).rungs == 1, "its rung, which is durable")
        report(tmp_path, bad, (2, 0.9))
        cluster.until(lambda: trial(cluster, search, 1).state == "pruned", "the verdict")
        cluster.until(lambda: cluster.job(bad).state == "cancelled", "the end of its job")
        found = trial(cluster, search, 1)
        assert cluster.job(bad).reason.startswith(f"pruned by search {search}: {found.reason}")
        assert cluster.job(good).state == "running"
        assert trial(cluster, search, 0).state == "running"


def test_a_trial_that_has_ended_is_not_stopped_any_more(tmp_path: Path) -> None:
    """Its job completes between the look at it and the verdict."""
    with engine_nodes(tmp_path) as cluster:
        search = begin(cluster, trials=1)
        job = trial(cluster, search).job
        controller = cluster.service.searches
        late = TrialRow(search=search, number=0, job=job, parameters={"x": 0.5}, state="pruned")
        cluster.service.cancel(ADMIN, job)
        written = cluster.do(lambda: controller._write([late], (), []))
        assert written.trials == []
        cluster.until(lambda: trial(cluster, search).state == "stopped", "how it ended")
        assert trial(cluster, search).reason == "its job was cancelled"


def test_a_trial_that_was_written_as_over_is_cancelled_by_the_next_server(tmp_path: Path) -> None:
    """The server ended between the two."""
    with engine_nodes(tmp_path) as cluster:
        search = begin(cluster, trials=1)
        found = trial(cluster, search)
    with engine_nodes(tmp_path) as cluster:
        cluster.service.searches.close()
        over = TrialRow(
            search=search, number=0, job=found.job, parameters=found.parameters, state="pruned"
        )
        state = cluster.service.engine.state
        cluster.do(lambda: state.write(lambda t: t.put_trial(over)))
        assert cluster.job(found.job).state == "waiting"
    with engine_nodes(tmp_path) as cluster:
        cluster.until(lambda: cluster.job(found.job).state == "cancelled", "the end of its job")
        cluster.until(lambda: row(cluster, search).settled, "the end of the search")
        assert trial(cluster, search).state == "pruned"


def test_a_stopped_search_begins_nothing_more_after_a_restart(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        search = begin(cluster, trials=50)
        trial(cluster, search)
        cluster.service.stop_search(ADMIN, search)
    with engine_nodes(tmp_path) as cluster:
        cluster.until(lambda: row(cluster, search).settled, "the end of the search")
        assert [one.state for one in cluster.service.store.trials(search)] == ["stopped"]
        assert row(cluster, search).reason == "stopped by admin"


def test_a_trial_and_its_job_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails leaves neither, and the trial is asked for again."""
    with engine_nodes(tmp_path) as cluster:
        store = cluster.service.store
        failures = iter([True, True, False])

        def put_trial(self: Any, one: TrialRow) -> None:
            if next(failures, False):
                raise StoreError("the disk is full")
            right(self, one)

        right = Transaction.put_trial
        monkeypatch.setattr(Transaction, "put_trial", put_trial)
        monkeypatch.setattr(search_controller, "RETRY_S", 0.0)
        search = begin(cluster, trials=1)
        found = trial(cluster, search)
        assert next(failures, None) is None, "it has failed twice"
        assert [job.id for job in cluster.service.jobs(ADMIN)] == [found.job]
        assert [one.job for one in store.trials(search)] == [found.job]


def test_a_job_whose_round_ends_as_it_is_looked_at_has_completed(tmp_path: Path) -> None:
    """Its row says that it runs, between the end of the round and what is written of it."""
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        controller = cluster.service.searches
        looked: list[str] = []

        def displayed_state(job: JobRow) -> JobState:
            state = cluster.service.viewer.displayed_state(job)
            looked.append(state)
            return "running" if looked[-2:] == ["completed"] * 2 else state

        controller._doors = controller._doors._replace(displayed_state=displayed_state)
        search = begin(cluster, trials=1)
        job = trial(cluster, search).job
        cluster.begin(node, job)
        report(tmp_path, job, (1, 0.5))
        complete(cluster, node, job)
        cluster.until(lambda: trial(cluster, search).state != "running", "the end of the trial")
        assert trial(cluster, search).state == "completed"


def test_a_search_whose_trials_are_too_large_for_orders_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its study was accepted when that was not looked at."""
    monkeypatch.setattr(search_controller, "check_study", lambda study: None)
    with engine_nodes(tmp_path) as cluster:
        job = JobSpec(command=("x", "{x}" * 40_000), total_steps=1_000, rates={"v100": 1.0})
        search = begin(cluster, job=job)
        cluster.until(lambda: row(cluster, search).state != "running", "the end of the search")
        assert (
            "trial 0 cannot begin: job: command, container and env" in row(cluster, search).reason
        )
        assert not cluster.service.jobs(ADMIN)


def test_a_tenant_has_so_many_open_searches_and_others_have_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_controller, "MAX_OPEN_OF_TENANT", 2)
    with engine_nodes(tmp_path) as cluster:
        eve, ann = (Caller(user, user, "user") for user in ("eve", "ann"))
        study = StudySpec(**STUDY)
        ids = [cluster.service.submit_search(eve, study) for _ in range(2)]
        with pytest.raises(ConflictError, match="tenant 'eve': may have 2 searches that have not"):
            cluster.service.submit_search(eve, study)
        cluster.service.submit_search(ann, study)
        for _ in range(3):
            cluster.service.submit_search(ADMIN, study)
        cluster.service.stop_search(eve, ids[0])
        cluster.until(lambda: row(cluster, ids[0]).settled, "the end of the search")
        cluster.service.submit_search(eve, study)


def test_a_trial_that_is_asked_for_as_its_search_is_stopped_never_becomes_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Submission] = []
    submit = SubmissionQueue.submit
    with engine_nodes(tmp_path) as cluster:

        def stopping(queue: SubmissionQueue, submission: Submission) -> Any:
            """The search is stopped before what it asks for is written."""
            if submission.trial is not None:
                asked.append(submission)
                cluster.service.stop_search(ADMIN, submission.trial.search)
            return submit(queue, submission)

        monkeypatch.setattr(SubmissionQueue, "submit", stopping)
        search = begin(cluster)
        cluster.until(lambda: row(cluster, search).settled, "the end of the search")
        assert len(asked) == 1
        assert not cluster.service.jobs(ADMIN)
        assert not cluster.service.store.trials(search)


def test_searches_that_wait_for_a_limit_leave_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(search_controller, "RETRY_S", 0.0)
    caplog.set_level("INFO", logger=search_controller.__name__)
    with engine_nodes(tmp_path) as cluster:
        tries: list[int] = []

        def full(*_: object) -> None:
            tries.append(1)
            raise ConflictError(f"tenant 'eve': may have 1 jobs; it has {len(tries)}")

        monkeypatch.setattr(cluster.service.searches._tenants, "check", full)
        eve = Caller("eve", "eve", "user")
        search = cluster.service.submit_search(eve, StudySpec(**STUDY))
        cluster.until(lambda: len(tries) > 5, "further tries")
        assert row(cluster, search).waiting_reason == "tenant 'eve': may have 1 jobs"
    told = [one for one in caplog.records if one.name == search_controller.__name__]
    assert [(one.levelname, one.getMessage()) for one in told] == [
        ("INFO", f"search {search}: tenant 'eve': may have 1 jobs")
    ]


def test_a_submission_is_in_the_audit_log_before_other_searches_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of which may take a while."""
    with engine_nodes(tmp_path) as cluster:
        controller = cluster.service.searches
        first = begin(cluster, trials=1, name="first")
        noted: list[int] = []
        note = controller._doors.audit.note

        def noting(search: SearchRow, action: str, trials: Sequence[TrialRow]) -> None:
            noted.extend(search.id for _ in trials if action == "submit")
            note(search, action, trials)

        turns: list[tuple[int, bool]] = []
        turn = controller._turn

        def slow(search: LiveSearch) -> None:
            if search.row.id == first:
                turn(search)
                return
            asked = controller._searches[first].asked
            if asked is not None:
                asked.result(60)  # it has become durable during the turn of another
            turns.append((search.row.id, first in noted))

        monkeypatch.setattr(controller._doors.audit, "note", noting)
        monkeypatch.setattr(controller, "_turn", slow)
        for _ in range(2):
            begin(cluster)
        cluster.until(lambda: any(known for _, known in turns), "the entry")
        unknown = [search for search, known in turns if not known]
        assert len(unknown) <= 1
