"""What is told of a job while it is being stopped: it holds its devices until its last process has ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, compared, engine_nodes

from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.messages import ORPHANED, Failure

KEY = (0, 1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EngineNodes]:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as found:
        yield found


def begin(cluster: EngineNodes, **more: object) -> PlayedNode:
    """A node that holds the job 0, and speaks when the test lets it."""
    node = cluster.node("a")
    node.register()
    assert cluster.submit(grace_s=60.0, **more) == KEY[0]
    cluster.until(lambda: KEY in node.statuses, "the attempt")
    cluster.nodes.clear()
    return node


def await_stop(cluster: EngineNodes, node: PlayedNode) -> None:
    cluster.until(lambda: KEY not in {(a.job, a.attempt) for a in node.say().desired}, "the order")


def events(cluster: EngineNodes) -> list[str]:
    return [words for _, words in cluster.service.explain(ADMIN, KEY[0]).events]


def test_its_time_is_run_time_and_what_it_holds_is_said(cluster: EngineNodes) -> None:
    node = begin(cluster)
    progress: dict[str, Any] = {"loaded_step": 0, "step": 100, "ran_s": 10.0, "step_age_s": 0.0}
    node.run(*KEY, **progress)
    node.say()
    cluster.until(lambda: cluster.job(KEY[0]).measured_rate == 10.0, "its rate")
    before = cluster.job(KEY[0])
    cluster.service.pause(ADMIN, KEY[0])
    await_stop(cluster, node)
    node.stopping(*KEY, **progress)
    node.say()
    while_stopping = cluster.job(KEY[0])
    assert while_stopping.state == "paused"
    assert while_stopping.run_s > before.run_s
    assert while_stopping.queued_s == pytest.approx(before.queued_s, abs=1e-3)
    assert while_stopping.measured_rate == before.measured_rate == 10.0
    assert while_stopping.reason.startswith(
        "paused by its owner; attempt 1 is being stopped (paused), told to stop "
    )
    assert while_stopping.reason.endswith(", and holds 1 x v100 of a until it has ended")
    facts = cluster.service.explain(ADMIN, KEY[0]).facts
    assert facts[-1].startswith("Its attempt 1 is being stopped (paused), told to stop ")
    assert facts[-1].endswith(", and holds 1 x v100 of a until it has ended.")
    node.end(*KEY, exit_code=0)
    node.say()
    cluster.until(lambda: cluster.service.attempts(ADMIN, KEY[0])[0].ended_s, "the end")
    after = cluster.job(KEY[0])
    assert after.reason == "paused by its owner"
    assert after.run_s >= while_stopping.run_s


def test_a_job_of_which_time_is_the_progress_gains_no_more_and_does_it_again(
    cluster: EngineNodes,
) -> None:
    node = begin(cluster, unmanaged=True, total_steps=60)
    node.run(*KEY, ran_s=30.0)
    node.say()
    cluster.service.pause(ADMIN, KEY[0])
    await_stop(cluster, node)
    node.stopping(*KEY, ran_s=31.0)
    node.say()
    assert [cluster.job(KEY[0]).steps for _ in range(3)] == [31.0] * 3
    assert cluster.service.attempts(ADMIN, KEY[0])[-1].to_step == 31.0
    node.end(*KEY, exit_code=-15, ran_s=31.0)
    node.say()
    cluster.until(lambda: cluster.service.attempts(ADMIN, KEY[0])[0].ended_s, "the end")
    cluster.service.resume(ADMIN, KEY[0])
    cluster.nodes.append(node)
    cluster.until(lambda: len(cluster.service.attempts(ADMIN, KEY[0])) == 2, "the next attempt")
    told = events(cluster)
    assert "attempt 1 on v100 0 of a" in told
    assert "attempt 2 on v100 0 of a, does 31 steps again" in told
    assert [one.lost_steps for one in cluster.service.attempts(ADMIN, KEY[0])] == [31.0, 0.0]


def test_a_cancelled_job_waits_for_nothing_any_more(cluster: EngineNodes) -> None:
    node = begin(cluster)
    row = cluster.service.engine.state.registry.jobs[KEY[0]]
    row.reason = "waits for a device"
    cluster.service.cancel(ADMIN, KEY[0])
    await_stop(cluster, node)
    view = cluster.job(KEY[0])
    assert view.state == "cancelled"
    assert view.reason.startswith("attempt 1 is being stopped (cancelled), told to stop ")
    node.end(*KEY, exit_code=0)
    node.say()
    cluster.until(lambda: cluster.service.attempts(ADMIN, KEY[0])[0].ended_s, "the end")
    assert cluster.job(KEY[0]).reason == ""


def test_that_its_agent_ends_it_is_said_and_no_end_is_forecast(cluster: EngineNodes) -> None:
    node = begin(cluster)
    progress: dict[str, Any] = {"loaded_step": 0, "step": 100, "ran_s": 10.0, "step_age_s": 0.0}
    node.run(*KEY, **progress)
    node.say()
    cluster.until(lambda: cluster.job(KEY[0]).steps == 100, "its steps")
    assert cluster.job(KEY[0]).no_end == ""
    node.stopping(*KEY, reason=ORPHANED, **progress)
    node.say()
    cluster.until(lambda: cluster.job(KEY[0]).no_end == "being ended", "the end")
    view = cluster.job(KEY[0])
    assert (view.state, view.reason) == (
        "running",
        f"is being ended, and starts again: {ORPHANED}",
    )
    told = cluster.service.explain(ADMIN, KEY[0])
    assert (told.no_end, told.finish_s) == ("being ended", None)
    cluster.nodes.append(node)  # however long the forecasts take, it is not silent
    notes = compared(cluster, WhatIf()).notes
    assert any("is being ended, and starts again" in note for note in notes)


def test_that_an_agent_ends_a_job_behind_its_loop_does_not_say_that_it_starts_again(
    cluster: EngineNodes,
) -> None:
    node = begin(cluster)
    behind: dict[str, Any] = {"loaded_step": 0, "step": 300, "ran_s": 10.0, "finishing": True}
    node.run(*KEY, **behind)
    node.say()
    cluster.until(lambda: cluster.job(KEY[0]).state == "finishing", "its last step")
    node.stopping(*KEY, reason="agent stopped", **behind)
    node.say()
    cluster.until(lambda: bool(cluster.job(KEY[0]).reason), "the reason")
    assert cluster.job(KEY[0]).reason == (
        "its agent lets it finish, for as long as its grace: agent stopped"
    )
    told = cluster.service.explain(ADMIN, KEY[0])
    assert "starts again" not in told.why_here
    assert (
        "It is complete when that has ended with exit code 0. Its agent ends it when its grace is over "
        "(agent stopped)." in told.why_here
    )
    node.end(*KEY, exit_code=0, completed=True, **behind)
    node.say()
    cluster.until(lambda: cluster.job(KEY[0]).state == "completed", "the end")


def test_no_end_is_forecast_of_what_does_not_end_though_it_was_told_to_stop(
    cluster: EngineNodes,
) -> None:
    node = begin(cluster)
    progress: dict[str, Any] = {"loaded_step": 0, "step": 100, "ran_s": 10.0, "step_age_s": 20.0}
    node.run(*KEY, **progress)
    node.say()
    cluster.until(lambda: cluster.job(KEY[0]).steps == 100, "its steps")
    cluster.service.pause(ADMIN, KEY[0])
    cluster.service.resume(ADMIN, KEY[0])
    await_stop(cluster, node)
    stall = "not ended 20 s after it was told to stop; rank 0 is in small.py:19"
    node.stopping(*KEY, stall=stall, **progress)
    node.say()
    cluster.until(lambda: cluster.job(KEY[0]).reason.startswith(stall), "where it stands")
    assert cluster.job(KEY[0]).no_end == "stands still"
    assert f"It has {stall}." in cluster.service.explain(ADMIN, KEY[0]).facts


def test_a_process_that_died_in_place_of_its_save_is_told(cluster: EngineNodes) -> None:
    node = begin(cluster)
    progress: dict[str, Any] = {"loaded_step": 0, "step": 239, "ran_s": 10.0, "saved_step": 0}
    node.run(*KEY, **progress)
    node.say()
    cluster.service.pause(ADMIN, KEY[0])
    await_stop(cluster, node)
    failure = Failure(kind="exit", rank=0, exit_code=9)
    node.end(*KEY, exit_code=9, reason="exit code 9", failure=failure, **progress)
    node.say()
    cluster.until(lambda: cluster.service.attempts(ADMIN, KEY[0])[0].ended_s is not None, "its end")
    (attempt,) = cluster.service.attempts(ADMIN, KEY[0])
    assert attempt.why == "paused; exit code 9; its work was not saved"
    assert cluster.job(KEY[0]).failures == 0


def test_a_finishing_gang_of_which_a_rank_was_killed_is_being_ended(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        two.register()
        job = cluster.submit(scale_factor=2)
        cluster.until(lambda: (job, 1) in one.statuses and (job, 1) in two.statuses)
        done: dict[str, Any] = {"loaded_step": 0, "step": 100, "saved_step": 100, "finishing": True}
        first, other = sorted((one, two), key=lambda node: cluster.job(job).node.index(node.name))
        first.end(job, 1, exit_code=0, completed=True, **done)
        other.stopping(job, 1, reason="rank 1: killed by signal 9 (SIGKILL)")
        first.say()
        other.say()
        told = cluster.service.explain(ADMIN, job).why_here
        assert "run on" not in told
        assert "is being ended on" in told
        assert "rank 1: killed by signal 9 (SIGKILL)" in told
        assert "rank 1: killed by signal 9" in cluster.job(job).reason
