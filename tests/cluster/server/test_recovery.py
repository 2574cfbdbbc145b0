"""What a server refuses to start from, and how it goes on from what it finds."""

import time
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.protocol.attempt_end import LOST_ENDS
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.store.job_views import attempt_view
from fairlead.cluster.store.rows import AttemptRow, NodeRow
from fairlead.cluster.store.store import Store
from fairlead.errors import RunError
from fairlead.model.commands import WakeAt
from fairlead.scheduler.journal import encode


def test_a_journal_with_other_decisions_is_refused_as_a_state_that_cannot_be_used(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        cluster.submit()
    with Store(tmp_path) as store, store.transaction() as transaction:
        transaction.append([encode(WakeAt(1.0, 2.0))])
    with (
        pytest.raises(
            RunError, match=r"the core commands nothing; start the version that wrote it"
        ),
        engine_nodes(tmp_path),
    ):
        pass


@pytest.mark.parametrize(("act", "end"), [("pause", "paused"), ("cancel", "cancelled")])
def test_what_was_asked_just_before_a_crash_is_how_the_attempt_ends(
    tmp_path: Path, act: str, end: str
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        cluster.until(lambda: (job, 1) in node.leased)
        node.run(job, 1, loaded_step=0, step=40, saved_step=40)
        cluster.until(lambda: cluster.job(job).steps == 40)
        cluster.silence(node)
        getattr(cluster.service, act)(ADMIN, job)
    with engine_nodes(tmp_path) as cluster:
        again = cluster.node("one")
        again.statuses.update(node.statuses)
        again.register()
        cluster.until(lambda: not again.jobs, "the end of its attempt")
        cluster.until(lambda: cluster.service.attempts(ADMIN, job)[0].ended_s is not None)
        first = cluster.service.attempts(ADMIN, job)[0]
        assert (first.end, first.why) == (end, end)
        view = cluster.job(job)
        assert (view.state, view.preemptions, view.failures) == (end, 0, 0)


def test_what_an_earlier_version_kept_of_nodes_and_attempts_is_shown_without_controls(
    tmp_path: Path,
) -> None:
    evil = "\x1b]0;own\x07a\nFAKE"
    row = NodeRow(name="n", accelerator="v100", devices=1, host=evil, runs_as=evil)
    with Store(tmp_path) as store, store.transaction() as transaction:
        transaction.put_node(row)
    with engine_nodes(tmp_path) as cluster:
        (view,) = cluster.service.nodes(ADMIN)
        assert view.host == view.runs_as == "?]0;own?a?FAKE"
    attempt = AttemptRow(
        job=1, attempt=1, node="n", accelerator="v100", devices=(0,), began_s=0.0, traceback=evil
    )
    assert attempt_view(attempt).traceback == " ]0;own a\nFAKE"


def test_what_had_not_begun_is_not_billed_for_the_time_without_a_server(tmp_path: Path) -> None:
    away_s = 4.0
    with engine_nodes(tmp_path, round_s=600.0, lease_s=60.0) as cluster:
        node = cluster.node("one")
        node.register()
        cluster.silence(node)
        job = cluster.submit(total_steps=10)
        cluster.until(lambda: cluster.service.attempts(ADMIN, job), "its order")
    time.sleep(away_s)
    with engine_nodes(tmp_path, round_s=600.0, lease_s=60.0) as cluster:
        again = cluster.node("one")
        again.statuses[job, 1] = AttemptStatus(job=job, attempt=1, state="starting")
        began_s = time.monotonic()
        again.register()
        cluster.until(lambda: (job, 1) in again.leased)
        told = {"loaded_step": 0, "step": 10, "saved_step": 10, "wait_s": away_s}
        again.end(job, 1, exit_code=0, completed=True, **told)
        cluster.until(lambda: cluster.service.attempts(ADMIN, job)[0].ended_s is not None)
        attempt = cluster.service.attempts(ADMIN, job)[0]
        assert attempt.ended_s is not None
        assert attempt.ended_s - attempt.began_s <= time.monotonic() - began_s
        assert attempt.wait_s <= time.monotonic() - began_s


@pytest.mark.parametrize("tells", [False, True], ids=["by its time", "by its own word"])
def test_how_far_an_unmanaged_attempt_came_that_was_lost_with_its_server_is_not_known(
    tmp_path: Path, tells: bool
) -> None:
    """It was told to have ended where it stood at the end of the last round, and to do as much again."""
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=5.0) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit(unmanaged=True, total_steps=100)
        cluster.until(lambda: node.leased)
        node.run(job, 1, ran_s=79.0, **({"loaded_step": 0, "step": 79} if tells else {}))
        cluster.until(lambda: cluster.job(job).steps >= 79)
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=5.0) as cluster:
        cluster.node("one", "one.2").register()  # another agent, which holds nothing
        cluster.until(lambda: cluster.service.attempts(ADMIN, job)[0].ended_s is not None)
        attempt = cluster.service.attempts(ADMIN, job)[0]
        events = [words for _, words in cluster.service.explain(ADMIN, job).events]
    assert attempt.is_step_unknown
    assert attempt.end in LOST_ENDS
    assert any(words.endswith(" at a step that is not known") for words in events)
