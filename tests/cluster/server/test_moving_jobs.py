"""What is said of a job that was told to move: until its last process there has ended, it is where it was."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.front.committed_state import CommittedState

KEY = (0, 1)
TOTAL = 1_000
RAN: dict[str, Any] = {"loaded_step": 0, "step": 100, "ran_s": 10.0, "trained_s": 10.0}
DONE: dict[str, Any] = {"loaded_step": 0, "step": TOTAL, "saved_step": TOTAL, "finishing": True}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EngineNodes]:
    with engine_nodes(tmp_path, round_s=3600.0, lease_s=60.0) as found:
        yield found


def move(cluster: EngineNodes, **held: Any) -> tuple[PlayedNode, PlayedNode]:
    """The job 0 is on the first node, and is to go to the second, which is told nothing of it yet."""
    old = cluster.node("a")
    old.register()
    assert cluster.submit(grace_s=60.0, total_steps=TOTAL) == KEY[0]
    cluster.until(lambda: KEY in old.statuses, "the attempt")
    old.run(*KEY, **held)
    old.say()
    cluster.until(lambda: cluster.job(KEY[0]).started_s is not None, "its training")
    new = cluster.node("b")
    new.register()
    cluster.nodes.clear()
    old.stopping(*KEY, **held)
    cluster.service.drain(ADMIN, "a")
    live = cluster.service.engine.state.registry.live

    def is_told() -> bool:
        old.say()
        new.report()
        return len(live.get(KEY[0], ())) == 2

    cluster.until(is_told, "the order to move")
    return old, new


def test_it_is_where_it_still_holds_devices(cluster: EngineNodes) -> None:
    old, new = move(cluster, **RAN)
    job = cluster.job(KEY[0])
    assert (job.state, job.node, job.devices, job.attempt) == ("running", "a", (0,), 1)
    assert job.steps == 100
    assert job.reason.startswith("attempt 1 is being stopped (moved), told to stop ")
    assert job.reason.endswith(
        ", and holds 1 x v100 of a until it has ended; then the job goes on on 1 x v100 of b"
    )
    assert [view.jobs for view in cluster.service.nodes(ADMIN)] == [((KEY[0],),), ((),)]
    told = cluster.service.explain(ADMIN, KEY[0])
    assert told.facts[0].startswith("Its attempt 1 is being stopped (moved), told to stop ")
    assert told.facts[0].endswith("until it has ended; then the job goes on on 1 x v100 of b.")
    assert len(told.attempts) == 1
    old.end(*KEY, exit_code=0, saved_step=100, **RAN)
    old.say()
    cluster.nodes.append(new)
    cluster.until(lambda: (KEY[0], 2) in new.statuses, "the attempt there")
    job = cluster.job(KEY[0])
    assert (job.state, job.node, job.attempt, job.reason) == ("running", "b", 2, "")


def test_one_that_finishes_goes_on_finishing(cluster: EngineNodes) -> None:
    old, new = move(cluster, **DONE)
    assert (cluster.job(KEY[0]).state, cluster.job(KEY[0]).node) == ("finishing", "a")
    assert cluster.service.jobs(ADMIN, "running") == []
    old.end(*KEY, exit_code=1, **DONE)
    old.say()
    cluster.nodes.append(new)
    cluster.until(lambda: (KEY[0], 2) in new.statuses, "the attempt there")
    assert (cluster.job(KEY[0]).state, cluster.job(KEY[0]).node) == ("finishing", "b")
    new.run(KEY[0], 2, loaded_step=900, step=900, saved_step=900)
    cluster.until(lambda: cluster.job(KEY[0]).state == "running", "the truth: its end was lost")


def test_so_it_is_told_while_the_driver_stands_still(cluster: EngineNodes) -> None:
    move(cluster, **RAN)
    state = cluster.service.engine.state
    committed = CommittedState(state.store.directory, cluster.front.table, state.now_s)
    cluster.do(lambda: None)  # what was decided is written down by now
    (job,) = committed.jobs(ADMIN)
    assert (job.state, job.node, job.attempt) == ("running", "a", 1)
    assert [one.node for one in committed.attempts(ADMIN, KEY[0])] == ["a"]


def test_a_job_that_is_cancelled_while_it_saves_is_at_the_step_that_it_reached(
    cluster: EngineNodes,
) -> None:
    old, _ = move(cluster, **RAN)
    old.stopping(*KEY, **RAN | {"step": 180})
    cluster.service.cancel(ADMIN, KEY[0])
    old.say()
    job = cluster.job(KEY[0])
    assert (job.state, job.steps, job.node) == ("cancelled", 180, "")
    assert "is being stopped" in job.reason
    old.end(*KEY, exit_code=0, saved_step=180, **RAN | {"step": 180})
    old.say()
    live = cluster.service.engine.state.registry.live
    cluster.until(lambda: KEY[0] not in live or old.say() is None, "the end")
    assert cluster.job(KEY[0]).steps == 180
