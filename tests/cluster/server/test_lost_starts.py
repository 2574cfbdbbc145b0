"""What is told of a start whose agent was killed is what was known of it, and no more is measured by it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cli.job_history import overhead_s
from fairlead.cluster.protocol.api_models import AttemptView
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.server.after_restore import next_attempt
from fairlead.cluster.store.job_views import attempt_views
from fairlead.cluster.store.rows import AttemptRow
from fairlead.errors import ConfigError

LONG_S = 600.0


def _lose(cluster: EngineNodes, node: PlayedNode) -> None:
    watch = cluster.service.engine.parts.nodes.watch
    cluster.do(lambda: watch.mark_lost(node.name, "node lost"))


def _first(cluster: EngineNodes, job: int) -> AttemptView:
    return cluster.service.attempts(ADMIN, job)[0]


def _begun(cluster: EngineNodes) -> tuple[PlayedNode, int]:
    node = cluster.node("one")
    job = cluster.submit()
    node.register()
    cluster.until(lambda: node.jobs == {job})
    return node, job


def test_the_steps_of_a_start_whose_node_was_lost_are_told(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, loaded_step=0, step=57, saved_step=40, start_s=2.0, load_s=0.5, ran_s=3.0)
        cluster.until(lambda: cluster.job(job).steps == 57)
        cluster.silence(node)
        _lose(cluster, node)
        attempt = cluster.until(lambda: _first(cluster, job).ended_s and _first(cluster, job))
        assert (attempt.from_step, attempt.to_step, attempt.reached_step) == (0, 40, 57)
        assert (attempt.start_s, attempt.load_s) == (2.0, 0.5)
        assert attempt.trained_s is not None
        told = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert "attempt 1 node lost at step 57 or later, 40 kept" in told


def test_an_agent_that_was_away_does_not_make_the_start_longer(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        began_s = _first(cluster, job).began_s
        state = cluster.service.engine.state
        shift_s = 42.0  # the report comes so long after the order
        clock = state.clock
        later: Any = SimpleNamespace(now_s=lambda: clock.now_s() + shift_s, to_meta=clock.to_meta)
        state.clock = later
        node.run(job, 1, loaded_step=0, step=57, saved_step=40, start_s=0.1, ran_s=shift_s - 1.0)
        cluster.until(lambda: cluster.job(job).steps == 57)
        trained_s = cluster.until(lambda: _first(cluster, job).trained_s)
        state.clock = clock
        assert trained_s - began_s < 20.0


def test_an_agent_started_anew_that_knows_no_steps_does_not_take_them_back(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, loaded_step=0, step=57, saved_step=40, start_s=2.0, load_s=0.5, ran_s=3.0)
        cluster.until(lambda: cluster.job(job).steps == 57)
        node.end(job, 1, exit_code=-9, reason="the process that owned the ranks died", start_s=42.0)
        attempt = cluster.until(lambda: _first(cluster, job).ended_s and _first(cluster, job))
        assert (attempt.to_step, attempt.reached_step) == (40, 57)
        assert (attempt.start_s, attempt.load_s) == (2.0, 0.5)


@pytest.mark.parametrize("known", [{}, {"start_s": 42.0, "wait_s": 0.01}], ids=["nothing", "start"])
def test_a_start_that_is_lost_before_it_trains_costs_its_time_and_measures_nothing(
    tmp_path: Path, known: dict[str, float]
) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, **known)
        node.report()
        cluster.silence(node)
        _lose(cluster, node)
        attempt = cluster.until(lambda: _first(cluster, job).ended_s and _first(cluster, job))
        assert attempt.trained_s is None
        held_s = attempt.ended_s - attempt.began_s
        # Without the handover nobody knows whether it had devices.
        assert attempt.start_s == pytest.approx(max(held_s - 0.01, 0.0) if known else -1.0)
        assert cluster.job(job).overhead_s == pytest.approx(held_s if known else 0.0)
        assert not cluster.service.engine.parts.attempts.starts.seconds
        told = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert "attempt 1 node lost at step 0, not seen to train" in told


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({}, id="never-spoke"),
        pytest.param({"start_s": 0.02, "load_s": 0.01, "loaded_step": 0, "step": 0}, id="loaded"),
    ],
)
def test_all_time_of_a_start_that_took_no_step_is_its_start(
    tmp_path: Path, told: dict[str, float]
) -> None:
    """From when it had its devices until it ended; no time is in two columns."""
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, wait_s=0.01, **told)
        node.report()
        failure = Failure(exit_code=1, message="exit code 1")
        known = {"wait_s": 0.01, "stop_s": 0.02, **told}
        began_s, state = _first(cluster, job).began_s, cluster.service.engine.state
        cluster.until(lambda: state.now_s() - began_s > 0.1)  # longer than it says of its parts
        node.end(job, 1, exit_code=1, reason="exit code 1", failure=failure, **known)
        attempt = cluster.until(lambda: _first(cluster, job).ended_s and _first(cluster, job))
        held_s = attempt.ended_s - attempt.began_s
        assert overhead_s(attempt) == pytest.approx(held_s)
        assert attempt.start_s == pytest.approx(held_s - 0.03 - told.get("load_s", 0.0))
        view = cluster.job(job)
        assert (view.overhead_s, view.run_s) == pytest.approx((held_s, held_s - 0.01))
        row = cluster.do(lambda: cluster.service.engine.state.registry.jobs[job])
        assert row.lost_device_s == pytest.approx(held_s - 0.01)


def test_what_the_next_start_goes_on_from_was_kept_by_the_lost_one(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, loaded_step=0, step=57, saved_step=0, ran_s=3.0)
        cluster.until(lambda: cluster.job(job).steps == 57)
        node.end(job, 1, step=57, exit_code=-9, reason="the process that owned the ranks died")
        cluster.until(lambda: node.jobs == {job} and (job, 2) in node.statuses)
        assert (_first(cluster, job).to_step, _first(cluster, job).reached_step) == (0, 57)
        node.run(job, 2, loaded_step=64, step=70, saved_step=64, lost_steps=0, ran_s=1.0)
        cluster.until(lambda: cluster.job(job).steps == 70)
        first, second = cluster.service.attempts(ADMIN, job)
        assert (first.from_step, first.to_step, first.reached_step) == (0, 64, 64)
        assert (second.from_step, second.to_step) == (64, 70)
        assert cluster.job(job).lost_steps == 0
        told = [words for _, words in cluster.service.explain(ADMIN, job).events]
        assert "attempt 1 the process that owned the ranks died at step 64" in told


def test_a_start_that_failed_has_come_as_far_as_its_process_says(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        node.run(job, 1, loaded_step=0, step=3, saved_step=0, ran_s=0.1)
        cluster.until(lambda: _first(cluster, job).trained_s)
        failure = Failure(kind="exception", exit_code=1, type="ValueError", line=5, step=129)
        node.end(job, 1, exit_code=1, reason="ValueError", loaded_step=0, step=3, failure=failure)
        cluster.until(lambda: _first(cluster, job).ended_s)
        assert (_first(cluster, job).to_step, _first(cluster, job).reached_step) == (0, 129)


def _row(attempt: int, end: AttemptEnd | None, **more: Any) -> AttemptRow:
    ended_s = None if end is None else 10.0 * attempt
    given = {"began_s": 1.0, "ended_s": ended_s, "end": end, "reached_step": 0.0}
    return AttemptRow(
        job=0, attempt=attempt, node="a", accelerator="v", devices=(0,), **given | more
    )


_LOST, _FAILED = AttemptEnd.NODE_LOST, AttemptEnd.FAILED
_SEEN = {"trained_s": 2.0, "reached_step": 57.0}


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        pytest.param([_row(1, _LOST), _row(2, _LOST)], [(0, 0), (0, 64)], id="neither-seen"),
        pytest.param([_row(1, _LOST, **_SEEN), _row(2, _LOST)], [(0, 64), (64, 64)], id="first"),
        pytest.param([_row(1, _LOST), _row(2, _FAILED)], [(0, 64), (64, 64)], id="second-failed"),
        pytest.param(
            [_row(1, _LOST, to_step=80.0, reached_step=90.0)], [(0, 80)], id="kept-was-damaged"
        ),
    ],
)
def test_who_of_those_not_heard_to_the_end_did_the_steps(
    rows: list[AttemptRow], steps: list[tuple[float, float]]
) -> None:
    views = attempt_views([*rows, _row(9, None, from_step=64.0)], lambda row: row)
    assert [(view.from_step, view.to_step) for view in views[:-1]] == steps


@pytest.mark.parametrize(
    ("rows", "reached"),
    [
        pytest.param([_row(1, _FAILED, **_SEEN)], [60], id="beyond-what-was-heard"),
        pytest.param([_row(1, _LOST, **_SEEN), _row(2, _FAILED)], [57, 0], id="which-is-not-known"),
        pytest.param([_row(1, _FAILED, trained_s=2.0, reached_step=90.0)], [90], id="batch-size"),
    ],
)
def test_a_start_has_come_as_far_as_what_is_done_again_tells(
    rows: list[AttemptRow], reached: list[float]
) -> None:
    """The job counts its steps itself; its node hears of them a moment later, or never if it hangs."""
    following = _row(9, None, from_step=0.0, lost_steps=60.0, trained_s=100.0)
    views = attempt_views([*rows, following], lambda row: row)
    assert [view.reached_step for view in views[:-1]] == reached


@pytest.mark.parametrize(
    ("end", "steps"),
    [(AttemptEnd.PAUSED, (0, 45)), (AttemptEnd.FAILED, (0, 45)), (AttemptEnd.RESTORED, (0, 180))],
)
def test_what_was_done_in_a_time_that_a_restore_gave_up_is_credited_to_no_earlier_start(
    end: AttemptEnd, steps: tuple[float, float]
) -> None:
    """The checkpoint is of starts that the restored state does not know; one that ran when the backup was
    made may have gone on."""
    known = {"trained_s": 2.0, "to_step": 45.0, "reached_step": 45.0}
    after = _row(next_attempt(1, 0.0), None, from_step=180.0, lost_steps=20.0, trained_s=100.0)
    (view, _) = attempt_views([_row(1, end, **known), after], lambda row: row)
    assert (view.from_step, view.to_step) == steps
    assert (view.reached_step == 45.0) == (steps == (0, 45))


def test_a_running_start_is_shown_as_its_node_told_last(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        costs = {"wait_s": 0.5, "start_s": 2.0, "load_s": 0.25}
        node.run(job, 1, loaded_step=0, step=3, saved_step=0, ran_s=0.1, **costs)
        cluster.until(lambda: _first(cluster, job).trained_s)
        node.run(job, 1, loaded_step=0, step=150, saved_step=0, ran_s=5.0, save_s=0.1, **costs)
        node.say()
        attempt = _first(cluster, job)
        assert (attempt.from_step, attempt.to_step) == (0, 150)
        assert (attempt.wait_s, attempt.start_s, attempt.load_s, attempt.save_s) == (
            0.5,
            2.0,
            0.25,
            0.1,
        )
        assert cluster.job(job).overhead_s == pytest.approx(2.85)


@pytest.mark.parametrize("done", [True, False])
def test_a_start_that_completes_though_told_to_stop_was_not_preempted(
    tmp_path: Path, done: bool
) -> None:
    with engine_nodes(tmp_path, 1.0) as cluster:
        node, job = _begun(cluster)
        cluster.node("two").register()
        node.run(job, 1, loaded_step=0, step=3, saved_step=3, ran_s=0.1, start_s=1.0)
        cluster.until(lambda: _first(cluster, job).trained_s)
        cluster.service.drain(ADMIN, "one")
        cluster.silence(node)
        cluster.until(lambda: job not in {a.job for a in node.say().desired})
        steps = {"loaded_step": 0, "step": 999_999 if done else 3, "saved_step": 3}
        node.end(job, 1, exit_code=0, completed=done, start_s=1.0, stop_s=4.9, **steps)
        node.say()
        cluster.until(lambda: _first(cluster, job).ended_s)
        view, first = cluster.job(job), _first(cluster, job)
        assert (view.preemptions, first.stop_s) == ((0, -1.0) if done else (1, 4.9))
        assert view.overhead_s == (1.0 if done else 5.9)


def test_of_a_job_whose_node_was_taken_over_nothing_false_is_said(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, 1.0) as cluster:
        node = cluster.node("one")
        job = cluster.submit(grace_s=300.0)
        node.register()
        cluster.until(lambda: node.jobs == {job})
        node.run(job, 1, loaded_step=0, step=380, saved_step=300, ran_s=100.0)
        cluster.until(lambda: cluster.job(job).steps == 380)
        cluster.silence(node)
        other = PlayedNode(cluster, "one", "another.1", 1)

        def taken_over() -> bool:
            try:
                other.register()
            except ConfigError:
                return False
            return True

        cluster.until(taken_over)
        cluster.nodes.append(other)
        cluster.until(lambda: cluster.view("one").state == "waiting")
        view, facts = cluster.job(job), " ".join(cluster.service.explain(ADMIN, job).facts)
        assert (view.state, view.node, view.devices) == ("preempted", "", ())
        assert "cannot go on: another agent has taken over the name 'one'" in facts
        assert "may still run there for up to" in facts
        for false in ("not taken it up", "has not begun to train", "joined", "last decision"):
            assert false not in facts


@pytest.mark.parametrize("told", ["2 0", "300 250"])
def test_a_job_whose_first_word_is_late_began_at_nothing(tmp_path: Path, told: str) -> None:
    step, saved = map(int, told.split())
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node = cluster.node("one")
        job = cluster.submit(unmanaged=True)
        node.register()
        cluster.until(lambda: node.jobs == {job})
        node.run(job, 1, loaded_step=step, step=step, saved_step=saved, ran_s=1.0)
        cluster.until(lambda: cluster.job(job).steps == step)
        node.run(job, 1, loaded_step=step, step=400, saved_step=300, ran_s=9.0)
        node.end(job, 1, exit_code=1, reason="x", loaded_step=step, step=400, saved_step=300)
        cluster.until(lambda: _first(cluster, job).ended_s)
        assert _first(cluster, job).from_step == 0
        cluster.until(lambda: (job, 2) in node.statuses)
        node.run(job, 2, loaded_step=320, step=320, saved_step=300, ran_s=1.0)
        cluster.until(lambda: cluster.job(job).steps == 320 and cluster.job(job).lost_steps)
        first, second = cluster.service.attempts(ADMIN, job)
        assert (first.from_step, first.to_step, first.reached_step) == (0, 300, 400)
        assert (second.from_step, second.lost_steps) == (300, 100)


def test_that_a_job_was_paused_is_told_though_its_node_is_lost_meanwhile(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node, job = _begun(cluster)
        cluster.begin(node, job)
        cluster.until(lambda: cluster.job(job).steps == 5)
        cluster.service.pause(ADMIN, job)
        cluster.silence(node)
        _lose(cluster, node)
        cluster.until(lambda: _first(cluster, job).ended_s)
        assert (cluster.job(job).state, cluster.job(job).reason) == (
            "paused",
            "paused by its owner",
        )
