"""The progress of a job that reports nothing is its run time: whenever somebody asks, not once a round."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.front.committed_state import CommittedState
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.model.duration_text import duration

TOTAL = 60
KEY = (0, 1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EngineNodes]:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as found:
        yield found


@pytest.fixture
def node(cluster: EngineNodes) -> PlayedNode:
    """It runs the job 0, which reports nothing."""
    played = cluster.node("a")
    played.register()
    assert cluster.submit(unmanaged=True, total_steps=TOTAL, grace_s=60.0) == KEY[0]
    cluster.until(lambda: KEY in played.statuses, "the start")
    played.run(*KEY, ran_s=0.5)
    played.say()
    cluster.nodes.clear()  # from here on it speaks when the test lets it
    return played


def told(cluster: EngineNodes) -> list[float]:
    """Steps of the job as each place tells them."""
    explained = cluster.service.explain(ADMIN, KEY[0])
    return [
        cluster.job(KEY[0]).steps,
        explained.job.steps,
        explained.attempts[-1].to_step,
        cluster.service.attempts(ADMIN, KEY[0])[-1].to_step,
        cluster.service.forecasting.forecast_input().steps_done[KEY[0]],
    ]


def test_it_is_known_between_the_ends_of_rounds(cluster: EngineNodes, node: PlayedNode) -> None:
    node.run(*KEY, ran_s=45.0)
    node.say()
    found = told(cluster)
    assert all(45.0 <= steps <= TOTAL - 1 for steps in found), found
    before = cluster.job(KEY[0]).steps
    cluster.until(lambda: cluster.job(KEY[0]).steps > before, "progress between two reports")


def test_time_alone_completes_no_job(cluster: EngineNodes, node: PlayedNode) -> None:
    node.run(*KEY, ran_s=1000.0)
    node.say()
    assert told(cluster) == [TOTAL - 1.0] * 5


def test_no_end_is_forecast_of_a_job_that_runs_longer_than_its_steps_take(
    cluster: EngineNodes, node: PlayedNode
) -> None:
    """Its next second is as likely to be the last as any other: 0 s would count as an end in a what-if."""
    node.run(*KEY, ran_s=1.0)
    node.say()
    assert cluster.job(KEY[0]).no_end == ""
    node.run(*KEY, ran_s=1000.0)
    node.say()
    assert cluster.job(KEY[0]).no_end == "overdue"
    explained = cluster.service.explain(ADMIN, KEY[0])
    assert (explained.no_end, explained.finish_s) == ("overdue", None)
    found = cluster.service.what_if(ADMIN, WhatIf(add_nodes={"v100": 1}))
    assert found.no_end == {KEY[0]: "overdue"}
    (note,) = (one for one in found.notes if "longer" in one)
    assert note.startswith("job 0 has run for longer than its steps take: no end is forecast")


def test_nothing_is_made_up_for_a_node_that_is_silent(
    cluster: EngineNodes, node: PlayedNode
) -> None:
    node.run(*KEY, ran_s=10.0)
    node.say()
    fleet = cluster.service.engine.state.fleet
    fleet.nodes["a"].observed.seen -= 30.0
    assert cluster.job(KEY[0]).steps == 10.0 + fleet.silence_s


def test_it_is_known_while_the_driver_stands_still(cluster: EngineNodes, node: PlayedNode) -> None:
    node.run(*KEY, ran_s=45.0)
    node.say()
    state = cluster.service.engine.state
    committed = CommittedState(state.store.directory, cluster.front.table, state.now_s)
    for steps in (committed.job(ADMIN, 0).steps, committed.attempts(ADMIN, 0)[-1].to_step):
        assert 45.0 <= steps <= TOTAL - 1
    node.stopping(*KEY, ran_s=50.0)
    node.say()
    assert committed.job(ADMIN, 0).steps == 50.0


def test_until_its_node_speaks_a_server_that_was_killed_says_how_old_it_is(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as before:
        played = before.node("a")
        played.register()
        assert before.submit(unmanaged=True, total_steps=TOTAL) == KEY[0]
        before.until(lambda: KEY in played.statuses, "the start")
        played.run(*KEY, ran_s=30.0)
        played.say()
        clock = before.service.engine.parts.rounds.clock
        before.do(lambda: clock.end_round(before.service.engine.state.now_s()))
        rows = before.service.engine.state.registry.jobs
        before.until(lambda: rows[KEY[0]].steps >= 30.0, "the report of the round")
        before.do(lambda: None)  # with which it is written down
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as after:
        job = after.job(KEY[0])
        assert job.progress_age_s is not None
        assert job.progress_age_s > 0
        assert f"its steps are of {duration(job.progress_age_s)[:1]}" in job.reason
        state = after.service.engine.state
        committed = CommittedState(state.store.directory, after.front.table, state.now_s)
        assert committed.job(ADMIN, 0).progress_age_s == pytest.approx(job.progress_age_s, abs=60.0)
        again = after.node("a")
        again.statuses = {KEY: AttemptStatus(job=0, attempt=1, state="running", ran_s=40.0)}
        again.register()
        job = after.job(KEY[0])
        assert job.progress_age_s is None
        assert job.steps >= 40.0
        assert "its steps are of" not in job.reason
