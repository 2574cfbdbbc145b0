"""Owners accept that checkpoints are lost: durable, for the next start that begins, and told."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, compared, engine_nodes

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import Assignment, Failure

AWAY = "checkpoint directory '/c/1': is gone, with 40 steps (put it back)"

OTHERS = JobSpec(command=("x",), total_steps=1000, rates={"v100": 1.0})


def ordered(cluster: EngineNodes, node: PlayedNode, job: int) -> Assignment:
    """The newest order of a job, once the node has it."""

    def found() -> Assignment | None:
        mine = [one for one in node.report().desired if one.job == job]
        status = node.statuses.get((job, mine[-1].attempt)) if mine else None
        begins = status is not None and status.state == "starting"
        return mine[-1] if begins and (job, mine[-1].attempt) in node.leased else None

    order: Assignment = cluster.until(found, "an order")
    return order


def loses_its_checkpoints(cluster: EngineNodes, node: PlayedNode, job: int) -> None:
    first = ordered(cluster, node, job)
    assert (first.kept_steps, first.accept_loss) == (0, False)
    node.run(job, first.attempt, loaded_step=0, step=50, saved_step=40)
    cluster.until(lambda: cluster.job(job).saved_step == 40)
    node.end(job, first.attempt, exit_code=1, reason="x", loaded_step=0, step=50, saved_step=40)
    second = away(cluster, node, job)
    assert (second.kept_steps, second.kept_by, second.accept_loss) == (40, first.attempt, False)


def away(cluster: EngineNodes, node: PlayedNode, job: int) -> Assignment:
    """Its next start does not find its checkpoints."""
    order = ordered(cluster, node, job)
    ends_without_checkpoints(cluster, node, order)
    return order


def ends_without_checkpoints(cluster: EngineNodes, node: PlayedNode, order: Assignment) -> None:
    job = order.job
    failure = Failure(
        kind="not_started", message=AWAY, directory="out_of_order", of_checkpoints=True
    )
    node.end(job, order.attempt, exit_code=127, reason=AWAY, failure=failure)
    cluster.until(lambda: cluster.job(job).retry_in_s is not None, "its wait")


def accept(cluster: EngineNodes, job: int) -> None:
    cluster.service.resume(ADMIN, job, accept_loss=True)


def facts(cluster: EngineNodes, job: int) -> str:
    return " ".join(cluster.service.explain(ADMIN, job).facts)


def test_acceptance_is_durable_and_holds_until_a_start_has_begun(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        loses_its_checkpoints(cluster, node, job)
        assert cluster.job(job).reason.startswith("waits for its checkpoints, tried again")
        assert cluster.job(job).failures == 1, "the first start alone has failed"
        cluster.silence(node)
        accept(cluster, job)
        accept(cluster, job)
        assert "the loss of its checkpoints is accepted by admin" in cluster.job(job).reason
        assert "accepted by admin" in facts(cluster, job)
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one", "one.2")
        node.register()
        order = ordered(cluster, node, job)
        assert order.accept_loss
        node.end(job, order.attempt, exit_code=1, reason="it fails before it has loaded")
        order = ordered(cluster, node, job)
        assert order.accept_loss
        node.run(job, order.attempt, loaded_step=10, step=12, saved_step=10, lost_steps=40)
        origin = "began at step 10, the loss of 30 steps that were kept was accepted by admin"
        cluster.until(lambda: cluster.job(job).origin == origin, "what it began from")
        assert cluster.job(job).saved_step == 10
        assert cluster.job(job).reason == origin
        assert f"It last {origin}." in facts(cluster, job)
        number = order.attempt
        node.end(job, number, exit_code=1, reason="x", loaded_step=10, step=12, saved_step=10)
        cluster.until(lambda: cluster.service.attempts(ADMIN, job)[-1].ended_s is not None)
        order = ordered(cluster, node, job)
        assert (order.accept_loss, order.kept_steps, order.kept_by) == (False, 10, number)


def test_a_paused_job_is_resumed_with_the_loss_accepted(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        loses_its_checkpoints(cluster, node, job)
        cluster.service.pause(ADMIN, job)
        accept(cluster, job)
        assert ordered(cluster, node, job).accept_loss


def test_a_loss_is_accepted_also_while_the_job_tries_whether_they_are_back(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        loses_its_checkpoints(cluster, node, job)
        order = ordered(cluster, node, job)
        assert cluster.job(job).state == "running"
        assert not order.accept_loss
        accept(cluster, job)
        ends_without_checkpoints(cluster, node, order)
        assert ordered(cluster, node, job).accept_loss


def test_an_acceptance_is_over_once_an_attempt_has_found_its_checkpoints(tmp_path: Path) -> None:
    """They were put back while the owner accepted their loss; a later loss is another one."""
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        loses_its_checkpoints(cluster, node, job)
        order = ordered(cluster, node, job)
        accept(cluster, job)
        assert "accepted by admin" in cluster.job(job).reason
        node.run(job, order.attempt, loaded_step=40, step=41, saved_step=40, lost_steps=10)
        cluster.until(lambda: "accepted" not in cluster.job(job).reason, "its beginning")
        node.end(
            job, order.attempt, exit_code=1, reason="x", loaded_step=40, step=41, saved_step=40
        )
        assert not away(cluster, node, job).accept_loss


@pytest.mark.parametrize("tells", [True, False])
def test_an_unmanaged_job_waits_for_the_directory_of_what_it_has_kept(
    tmp_path: Path, tells: bool
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit(unmanaged=True, keeps_progress=not tells, total_steps=1000)
        order = ordered(cluster, node, job)
        assert order.kept_steps == 0
        progress = {"loaded_step": 0, "step": 50, "saved_step": 40} if tells else {"ran_s": 40.0}
        node.run(job, order.attempt, **progress)
        cluster.until(lambda: cluster.job(job).steps >= 40)
        node.end(job, order.attempt, exit_code=1, reason="x", **progress)
        second = away(cluster, node, job)
        assert second.kept_steps == 40
        assert cluster.job(job).reason.startswith("waits for its checkpoints, tried again")
        accept(cluster, job)
        third = ordered(cluster, node, job)
        assert third.accept_loss
        progress = {"loaded_step": 0, "step": 2, "saved_step": 0} if tells else {"ran_s": 2.0}
        node.run(job, third.attempt, **progress)
        began = "began with what was there, the loss of the rest was accepted by admin"
        cluster.until(lambda: cluster.job(job).reason == began, "its beginning")
        with pytest.raises(ConflictError, match="does not wait for its checkpoints"):
            accept(cluster, job)
        cluster.until(lambda: 2 <= cluster.job(job).steps < 40, "its steps")
        assert cluster.job(job).lost_steps == pytest.approx(50 if tells else 40, abs=1)
        assert cluster.job(job).no_end != "waits for storage"
        told = cluster.service.explain(ADMIN, job)
        assert any(began in words for _, words in told.events)
        node.end(job, third.attempt, exit_code=1, reason="x", **progress)
        assert not ordered(cluster, node, job).accept_loss


@pytest.mark.parametrize(
    ("more", "pause", "why"),
    [
        ({}, False, "is not paused, and does not wait for its checkpoints, it is"),
        ({"unmanaged": True}, True, "is unmanaged, and has not said that it keeps any checkpoints"),
    ],
)
def test_there_must_be_a_loss_to_accept(
    tmp_path: Path, more: dict[str, bool], pause: bool, why: str
) -> None:
    with engine_nodes(tmp_path) as cluster:
        job = cluster.submit(**more)
        if pause:
            cluster.service.pause(ADMIN, job)
        with pytest.raises(ConflictError, match=why):
            accept(cluster, job)


@pytest.mark.parametrize(
    ("loaded", "origin"),
    [
        (
            {"loaded_step": 7, "from_job": 0, "from_attempt": 2},
            "began at step 7 from a checkpoint that job 0 (attempt 2) saved",
        ),
        (  # of another tenant
            {"loaded_step": 7, "from_job": 1, "from_attempt": 2},
            "began at step 7 from a checkpoint that was there before the job",
        ),
        (  # of which nothing is known
            {"loaded_step": 7, "from_job": 900, "from_attempt": 2},
            "began at step 7 from a checkpoint that was there before the job",
        ),
        ({"loaded_step": 7}, "began at step 7 from a checkpoint that was there before the job"),
        ({"loaded_step": 0}, ""),
    ],
)
def test_what_a_first_start_found_in_its_directory_is_told(
    tmp_path: Path, loaded: dict[str, int], origin: str
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        for other in (cluster.submit(), *cluster.service.submit(ADMIN, [OTHERS], "other")):
            cluster.service.cancel(ADMIN, other)
        job = cluster.submit(checkpoint_dir="/c/mine")
        order = ordered(cluster, node, job)
        node.run(job, order.attempt, step=8, **loaded)
        trains: Callable[[], bool] = lambda: cluster.job(job).started_s is not None  # noqa: E731
        cluster.until(trains, "its first step")
        assert cluster.job(job).origin == origin
        assert cluster.job(job).reason == origin


def test_a_node_that_lies_leaves_no_steps_that_its_job_does_not_have(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        order = ordered(cluster, node, job)
        most = 1 << 53
        lie: dict[str, int] = {
            "loaded_step": 7,
            "step": most,
            "saved_step": most,
            "lost_steps": most,
        }
        node.run(job, order.attempt, batch=1, total_steps=most, **lie)
        cluster.until(lambda: cluster.job(job).total_steps == most, "its first lie")
        node.run(job, order.attempt, batch=2, total_steps=1, **lie)
        cluster.until(lambda: cluster.job(job).total_steps == 1, "its second one")
        assert cluster.job(job).steps <= 1
        assert cluster.job(job).saved_step <= 1


def test_a_start_that_could_not_load_all_that_was_kept_says_so(tmp_path: Path) -> None:
    """The newest checkpoint was damaged, and the one before was not."""
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        loses_its_checkpoints(cluster, node, job)
        order = ordered(cluster, node, job)
        node.run(job, order.attempt, loaded_step=30, step=31, saved_step=30, from_job=job)
        cluster.until(lambda: cluster.job(job).saved_step == 30)
        origin = "began at step 30, of 40 steps that were kept no more could be loaded"
        assert cluster.job(job).origin == origin


def test_no_end_is_forecast_of_a_job_whose_checkpoints_are_away(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("one")
        node.register()
        job = cluster.submit()
        loses_its_checkpoints(cluster, node, job)
        told = cluster.service.explain(ADMIN, job)
        assert (told.no_end, told.finish_s) == ("waits for storage", None)
        found = compared(cluster, WhatIf())
        assert found.no_end == {job: "waits for storage"}
        assert any("cannot reach its checkpoints" in note for note in found.notes)
        order = ordered(cluster, node, job)
        assert cluster.job(job).no_end == "waits for storage", "it tries whether they are back"
        ends_without_checkpoints(cluster, node, order)
        accept(cluster, job)
        assert cluster.job(job).no_end == ""
