"""That a job could not save is said until it has saved, whatever starts of it come and go meanwhile."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, EngineNodes, PlayedNode, engine_nodes

from fairlead.cluster.front.web.tables import jobs_table
from fairlead.cluster.protocol.api_models import failing_saves
from fairlead.cluster.protocol.messages import WOULD_LOSE

DISK = "OSError: [Errno 28] No space left on device"
FAILS = f"no checkpoint can be saved ({DISK}){WOULD_LOSE} the work since step 100"
AT_ITS_END = f"exit code 74: step 440 could not be saved ({DISK})"


def _starts(cluster: EngineNodes, node: PlayedNode, job: int, attempt: int, **told: object) -> None:
    cluster.until(lambda: (job, attempt) in node.leased)
    node.run(job, attempt, trained_s=4.4, step_age_s=0.0, ran_s=4.4, **told)
    cluster.until(lambda: cluster.job(job).steps == told["step"])


def _is_told(cluster: EngineNodes, job: int, why: str) -> bool:
    """By all that show it, or by none."""
    shown, facts = cluster.job(job), cluster.service.explain(ADMIN, job).facts
    told = [
        why in shown.save_failed,
        shown.save_failed_s is not None,
        any("save failed" in fact and why in fact for fact in facts),
        shown.state != "running" or (why in shown.reason and why in str(jobs_table([shown]))),
    ]
    assert len(set(told)) == 1 or (not any(told[:3]) and shown.state != "running"), told
    return told[0]


@pytest.mark.parametrize("ends_badly", [False, True])
def test_the_next_start_goes_on_saying_it_until_it_has_saved(
    tmp_path: Path, ends_badly: bool
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        job = cluster.submit()
        problem = "" if ends_badly else FAILS
        known = {"loaded_step": 0, "saved_step": 100}
        _starts(cluster, node, job, 1, **known, step=440, directory_problem=problem)
        cluster.silence(node)
        cluster.service.pause(ADMIN, job)
        code, why = (74, AT_ITS_END) if ends_badly else (0, "")
        node.end(job, 1, exit_code=code, step=440, reason=why, unsaved=why, **known)
        cluster.until(lambda: node.say() and cluster.service.attempts(ADMIN, job)[0].ended_s)
        assert _is_told(cluster, job, DISK)
        assert "paused" in cluster.job(job).reason
        cluster.nodes.append(node)
        cluster.service.resume(ADMIN, job)
        here = {"loaded_step": 100, "saved_step": 100}
        _starts(cluster, node, job, 2, **here, step=300)
        assert _is_told(cluster, job, DISK)
        (lost,) = cluster.service.drain(ADMIN, "a")
        since = "its last 200 steps, since step 100, are lost unless it can save now"
        assert lost.startswith(f"job {job}: {since}: its last save failed ")
        assert DISK in lost
        cluster.service.undrain(ADMIN, "a")
        cluster.until(lambda: (job, 3) in node.leased)
        _starts(cluster, node, job, 3, **here, step=301)
        assert _is_told(cluster, job, DISK)
        node.run(job, 3, loaded_step=100, step=350, saved_step=340, trained_s=4.4, ran_s=4.4)
        cluster.until(lambda: cluster.job(job).saved_step == 340)
        assert not _is_told(cluster, job, DISK)
        assert cluster.job(job).reason == ""
        assert cluster.service.pause(ADMIN, job) == []


def test_the_status_says_how_many_jobs_cannot_save(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a", devices=2)
        node.register()
        known = {"loaded_step": 0, "saved_step": 9, "step": 99}
        for problem in (FAILS, ""):
            _starts(cluster, node, cluster.submit(), 1, **known, directory_problem=problem)
        told = cluster.until(
            lambda: found if (found := cluster.service.status(ADMIN)).cannot_save else None
        )
        assert told.cannot_save == 1
        assert told.cannot_save_s is not None
        assert failing_saves(told).startswith(
            "1 job that runs has not saved since a save failed, for "
        )
        (job,) = cluster.service.engine.parts.view_parts.published.tally.unsaved_since
        node.run(job, 1, loaded_step=0, step=200, saved_step=150, trained_s=4.4, ran_s=4.4)
        cluster.until(lambda: cluster.service.status(ADMIN).cannot_save == 0)
        assert failing_saves(cluster.service.status(ADMIN)) == ""


def test_it_is_known_after_a_restart_of_the_server(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        job = cluster.submit()
        _starts(
            cluster, node, job, 1, loaded_step=0, saved_step=9, step=99, directory_problem=FAILS
        )
        store = cluster.service.store
        cluster.until(lambda: (row := store.job(job)) is not None and row.save_failure is not None)
    with engine_nodes(tmp_path) as cluster:
        assert DISK in cluster.job(job).save_failed
