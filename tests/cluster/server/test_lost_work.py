"""Whoever stops a job that cannot save is told what is lost, and the scheduler takes it into account."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.protocol.messages import WOULD_LOSE
from fairlead.cluster.server.restart_costs import MeasuredStarts, RestartCostsOfJobs
from fairlead.model.job import JobId

WHY = "no checkpoint can be saved (OSError: [Errno 28] No space left on device)"
FAILS = f"{WHY}{WOULD_LOSE} the work since step 100"
LONG_S = 3600.0


def _runs(cluster: EngineNodes, node: PlayedNode, **more: object) -> int:
    """A job whose attempt is leased, and runs."""
    spec = {k: more.pop(k) for k in ("unmanaged", "keeps_progress", "park") if k in more}
    job = cluster.submit(**spec)
    cluster.until(lambda: (job, 1) in node.leased)
    node.run(job, 1, **more)
    cluster.until(lambda: cluster.job(job).state == "running")
    return job


def _trains(cluster: EngineNodes, node: PlayedNode, problem: str, *, save_place: str = "") -> int:
    told = {
        "save_place": save_place,
        "loaded_step": 0,
        "step": 440,
        "saved_step": 100,
        "trained_s": 4.4,
    }
    job = _runs(cluster, node, **told, step_age_s=0.0, ran_s=4.4, directory_problem=problem)
    cluster.until(lambda: cluster.job(job).steps == 440)
    return job


@pytest.mark.parametrize("how", ["pause", "drain"])
def test_a_job_whose_saves_fail_is_told_with_the_steps_that_are_lost(
    tmp_path: Path, how: str
) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node = cluster.node("a")
        node.register()
        job = _trains(cluster, node, FAILS)

        def stop() -> list[str]:
            service = cluster.service
            return service.pause(ADMIN, job) if how == "pause" else service.drain(ADMIN, "a")

        assert stop() == [
            f"job {job}: its last 340 steps, since step 100, are lost unless it can save now: {WHY}"
        ]
        assert stop() == [], "it is being stopped already"


def test_a_job_that_saves_loses_nothing(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node = cluster.node("a")
        node.register()
        job = _trains(cluster, node, "")
        assert cluster.service.pause(ADMIN, job) == []


def test_a_job_that_starts_over_is_told_with_all_its_steps(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a", devices=2)
        node.register()
        kept = _runs(cluster, node, unmanaged=True, keeps_progress=True, ran_s=50.0)
        lost = _runs(cluster, node, unmanaged=True, ran_s=50.0)
        cluster.until(lambda: cluster.job(lost).steps >= 2 and cluster.job(kept).steps >= 2)
        (told,) = cluster.service.drain(ADMIN, "a")
        over = "it starts again from zero when it is stopped"
        assert re.fullmatch(rf"job {lost}: its [\d,]+ steps are lost: {over}", told), told


def test_a_program_that_can_be_parked_loses_nothing_yet_by_a_drain(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        job = _runs(cluster, node, unmanaged=True, park="stop", ran_s=50.0)
        cluster.until(lambda: cluster.job(job).steps >= 2)
        (told,) = cluster.service.drain(ADMIN, "a")
        assert (
            "steps are lost: it is parked if it can be, and starts again from zero unless" in told
        )
        cluster.service.undrain(ADMIN, "a")


@pytest.mark.parametrize(
    ("problem", "others_wait", "unkept_s"), [(FAILS, False, 3.4), ("", True, 3.4), ("", False, 0.0)]
)
def test_work_that_cannot_be_saved_is_weighed_in_preemption(
    tmp_path: Path, problem: str, others_wait: bool, unkept_s: float
) -> None:
    """Also that of a job which has not tried to save since others wait for the storage that they share."""
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node = cluster.node("a")
        node.register()
        job = _trains(cluster, node, problem)
        state = cluster.service.engine.state

        def cost_s() -> float:
            current, core, setup = state.round, state.scheduler, state.setup
            assert current is not None
            assert core is not None
            assert setup is not None
            attempt = current.attempts[job]
            assert attempt.leader is not None
            attempt.statuses["a"] = replace(attempt.leader, trained_s=4.4, ran_s=4.4)
            core.data.ledger.jobs.restart_s[:] = 1e6  # so that it has to be told anew
            waits = {state.checkpoints: "Read-only file system"} if others_wait else {}
            costs = RestartCostsOfJobs(state, MeasuredStarts(state), lambda: waits)
            learned = costs.learned(current, state.now_s() + 1e6)
            assert learned is not None
            assert learned.jobs.tolist() == [JobId(job)]
            usual_s = setup.restart_costs.default_s
            factor: float = setup.settings.preemption_hysteresis
            return (float(learned.restart_s[0]) - usual_s) * factor

        assert cluster.do(cost_s) == pytest.approx(unkept_s)


@pytest.mark.parametrize(
    ("age_s", "trained_s", "is_warned"),
    [(1000.0, 4.4, True), (0.0, 4400.0, False), (1000.0, 88000.0, False)],
    ids=["has left its loop", "trains", "long steps"],
)
def test_who_pauses_a_job_that_asks_for_no_step_any_more_is_told_what_is_lost(
    tmp_path: Path, age_s: float, trained_s: float, is_warned: bool
) -> None:
    """Its script may have left its loop, and saves nothing from then on."""
    with engine_nodes(tmp_path, LONG_S) as cluster:
        node = cluster.node("a")
        node.register()
        steps = {"loaded_step": 0, "step": 440, "saved_step": 100, "step_age_s": age_s}
        job = _runs(cluster, node, **steps, trained_s=trained_s, ran_s=trained_s + age_s)
        cluster.until(lambda: cluster.job(job).steps == 440)
        lost = cluster.service.pause(ADMIN, job)
        assert len(lost) == is_warned
        for text in lost:
            assert text.startswith(
                f"job {job}: its last 340 steps, since step 100, are lost unless it comes to its next step, "
                "or to its end, within 0.5 s: it has asked for none for 16 min"
            )


@pytest.mark.parametrize(
    ("problem", "place", "is_warned"),
    [
        (FAILS, "", True),
        (FAILS, "/", True),
        (FAILS, "/own", False),
        (f"RuntimeError{WOULD_LOSE} the work", "", False),
    ],
)
def test_a_job_that_has_not_tried_to_save_since_is_warned_of_what_others_found(
    tmp_path: Path, problem: str, place: str, is_warned: bool
) -> None:
    """They share the storage. A job whose own ``save`` fails says nothing of that."""
    with engine_nodes(tmp_path, 2.0) as cluster:
        one, two = cluster.node("a"), cluster.node("b")
        one.register()
        _trains(cluster, one, problem, save_place=place)
        two.register()
        job = _trains(cluster, two, "")
        lost = cluster.service.pause(ADMIN, job)
        assert bool(lost) is is_warned
        for text in lost:
            begin = (
                f"job {job}: its last 340 steps, since step 100, are lost unless it can save now: "
            )
            assert text.startswith(f"{begin}of another job, its last save failed ")
            assert text.endswith(" ago: No space left on device")
