"""Jobs that wait for others are held until these have ended, and nobody else hears of them before."""

import shutil
from pathlib import Path

import pytest
from tests.cluster.played_jobs import complete, fail, in_core, run
from tests.cluster.server_nodes import (
    ADMIN,
    busy_driver,
    compared,
    engine_nodes,
)

from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.store.rows import JobRow
from fairlead.errors import ConfigError
from fairlead.model.job import JobId

USER = Caller(user="u", tenant="t", role="user")
OTHER = Caller(user="o", tenant="another", role="user")


@pytest.mark.parametrize("condition", ["ok", "any"])
def test_job_takes_part_once_the_one_before_it_has_completed(
    tmp_path: Path, condition: str
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n", devices=2)
        node.register()
        first = cluster.submit()
        then = cluster.submit(after=(f"{condition}:{first}",))
        run(cluster, node, first)
        view = cluster.job(then)
        word = {"ok": "complete", "any": "end"}[condition]
        assert (view.state, view.reason) == ("waiting", f"waits for job {first} to {word}")
        assert view.after == (f"{condition}:{first}",)
        assert cluster.service.explain(ADMIN, then).facts[0] == f"It {view.reason}."
        assert not in_core(cluster, then)
        complete(cluster, node, first)
        run(cluster, node, then)


def test_round_ends_early_for_a_job_whose_parent_has_completed(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, round_s=190.0, early_round_end=True) as cluster:
        node = cluster.node("n", devices=2)
        node.register()
        first, beside = cluster.submit(), cluster.submit()
        then = cluster.submit(after=(f"ok:{first}",))
        run(cluster, node, beside)
        complete(cluster, node, first)
        run(cluster, node, then)


def test_failure_ends_all_that_depend_on_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        first = cluster.submit(max_retries=0)
        child = cluster.submit(after=(f"ok:{first}",))
        grandchild = cluster.submit(after=(f"ok:{child}",))
        anyway = cluster.submit(after=(f"any:{grandchild}",))
        fail(cluster, node, first)
        cluster.until(lambda: cluster.job(grandchild).state == "dropped", "the end of the last")
        why = cluster.job(child).reason
        assert why.startswith(f"job {first}, on which it depends (ok), was dropped: failed once")
        assert cluster.job(grandchild).reason.startswith(
            f"job {child}, on which it depends (ok), was dropped: job {first}, on"
        )
        assert cluster.job(child).ended_s is not None
        cluster.until(lambda: cluster.service.status(ADMIN).jobs.get("dropped") == 3, "the count")
        run(cluster, node, anyway)


def test_job_that_is_cancelled_ends_those_that_depend_on_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        first = cluster.submit()
        child = cluster.submit(after=(f"ok:{first}", f"any:{first}"))
        other = cluster.submit(after=(f"any:{first}", f"any:{child}"))
        assert cluster.job(other).reason == f"waits for jobs {first}, {child} to end"
        cluster.service.cancel(ADMIN, first)
        cluster.until(lambda: cluster.job(child).state == "dropped", "the end of the child")
        assert cluster.job(child).reason == f"job {first}, on which it depends (ok), was cancelled"
        run(cluster, node, other)


def test_parents_that_have_ended_are_judged_at_submission(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        done, bad = cluster.submit(), cluster.submit()
        complete(cluster, node, done)
        cluster.service.cancel(ADMIN, bad)
        cluster.until(lambda: cluster.job(bad).state == "cancelled", "its end")
        dropped = cluster.submit(after=(f"ok:{done}", f"ok:{bad}"))
        cluster.until(lambda: cluster.job(dropped).state == "dropped", "the end of the child")
        run(cluster, node, cluster.submit(after=(f"ok:{done}", f"any:{bad}")))


def test_unknown_and_foreign_jobs_are_refused_alike(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        spec = JobSpec(command=("x",), total_steps=1)
        (foreign,) = cluster.service.submit(OTHER, [spec])
        (own,) = cluster.service.submit(USER, [spec])
        for parent in (foreign, own + 1, 10**9):  # the second would be the job itself
            after = JobSpec(command=("x",), total_steps=1, after=(f"ok:{parent}",))
            with pytest.raises(ConfigError, match=f"^job: after: job {parent}: there is none$"):
                cluster.service.submit(USER, [after])
        array = JobSpec(command=("x",), total_steps=1, after=(f"ok:array:{own}",))
        with pytest.raises(ConfigError, match=f"^job: after: array {own}: there is none$"):
            cluster.service.submit(USER, [array])
        assert len(cluster.service.jobs(ADMIN)) == 2


def test_held_job_can_be_paused_resumed_reweighted_and_cancelled(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        first = cluster.submit()
        paused, again, gone = (cluster.submit(after=(f"ok:{first}",)) for _ in range(3))
        cluster.service.pause(ADMIN, paused)
        cluster.service.pause(ADMIN, again)
        cluster.service.resume(ADMIN, again)
        cluster.service.set_weight(ADMIN, again, 2.0)
        cluster.service.cancel(ADMIN, gone)
        assert cluster.job(gone).state == "cancelled"
        assert cluster.job(again).reason == f"waits for job {first} to complete"
        complete(cluster, node, first)
        run(cluster, node, again)
        assert cluster.job(paused).state == "paused"
        assert not in_core(cluster, paused)
        cluster.service.cancel(ADMIN, again)
        cluster.service.resume(ADMIN, paused)
        run(cluster, node, paused)


def test_server_that_ends_before_the_release_releases_after_its_next_start(tmp_path: Path) -> None:
    with engine_nodes(tmp_path / "first") as cluster:
        node = cluster.node("n")
        node.register()
        done, bad = cluster.submit(), cluster.submit(max_retries=0)
        child, hopeless = (
            cluster.submit(after=(f"ok:{done}",)),
            cluster.submit(after=(f"ok:{bad}",)),
        )
        later = cluster.submit(after=(f"ok:{child}",))
        engine = cluster.service.engine
        cluster.do(lambda: setattr(engine.parts.rounds.backend, "_settle", lambda: False))
        complete(cluster, node, done)
        fail(cluster, node, bad)
        assert cluster.job(child).state == "waiting"
        assert cluster.job(hopeless).state == "waiting"
        with busy_driver(cluster):  # as a crash would leave it
            shutil.copytree(tmp_path / "first", tmp_path / "second")
    with engine_nodes(tmp_path / "second") as cluster:
        node = cluster.node("n", "two.1")
        cluster.until(lambda: cluster.job(hopeless).state == "dropped", "the end of the child")
        node.register()
        run(cluster, node, child)
        assert cluster.job(later).reason == f"waits for job {child} to complete"
        assert not in_core(cluster, later)
        complete(cluster, node, child)
        run(cluster, node, later)
        assert cluster.job(later).starts == 1


def test_child_may_be_admitted_before_its_parent(tmp_path: Path) -> None:
    """Rows of a submission may be written beside the driver, which admits them later than those that join
    its own commit."""
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n", devices=3)
        node.register()
        submissions = cluster.service.submissions
        admit, deferred = submissions._admit, list[JobRow]()
        submissions._admit = deferred.extend
        parent = cluster.submit()
        submissions._admit = admit
        children = [cluster.submit(after=(f"{word}:{parent}",)) for word in ("ok", "any")]
        run(cluster, node, cluster.submit())
        assert {cluster.job(child).state for child in children} == {"waiting"}
        assert not any(in_core(cluster, child) for child in children)
        cluster.do(lambda: admit(deferred))
        complete(cluster, node, parent)
        cluster.until(lambda: all(in_core(cluster, child) for child in children), "the release")


def test_wait_for_others_counts_neither_as_unfair_nor_as_time_before_the_deadline(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        first = cluster.submit()
        then = cluster.submit(after=(f"ok:{first}",), slo_s=1000.0)
        cluster.do(lambda: None)
        state = cluster.service.engine.state
        cluster.do(lambda: setattr(state.registry.jobs[then], "submitted_s", state.now_s() - 600))
        complete(cluster, node, first)
        run(cluster, node, then)

        def of_core() -> tuple[float, float]:
            """Seconds until its deadline, and its rate alone, as the core has them."""
            assert state.scheduler is not None
            ledger = state.scheduler.data.ledger
            at = ledger.row(JobId(then))
            left_s = float(ledger.jobs.deadline_s[at]) - state.now_s()
            return left_s, float(ledger.isolated.isolated_rate[at])

        cluster.until(lambda: cluster.do(of_core)[1] > 0, "a solve with it")
        left_s, _ = cluster.do(of_core)
        assert cluster.job(then).deadline_left_s == pytest.approx(left_s, abs=60)
        assert 200 < left_s < 400
        attempt = cluster.job(then).attempt
        node.end(then, attempt, completed=True, exit_code=0, step=1_000_000, loaded_step=0)
        cluster.until(lambda: cluster.job(then).state == "completed", "its end")
        rho = cluster.job(then).rho
        assert rho is not None
        assert rho * 1_000_000 < 500  # alone it takes a million seconds


def test_what_if_counts_held_jobs_apart(tmp_path: Path) -> None:

    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("n")
        node.register()
        first = cluster.submit()
        held = cluster.submit(after=(f"ok:{first}",))
        run(cluster, node, first)
        answer = compared(cluster, WhatIf())
        assert f"job {held} waits for other jobs to end: no end is forecast" in answer.notes
        assert held not in answer.now.finish_s
        spec = JobSpec(command=("x",), total_steps=1, after=(f"ok:{first}",))
        with pytest.raises(ConfigError, match=r"^add_jobs\[0\]: after: cannot be part of a"):
            cluster.service.what_if(ADMIN, WhatIf(add_jobs=(spec,)))
