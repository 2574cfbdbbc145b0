"""Nodes that fall silent, and nodes that are not well: nothing new goes there, and nothing runs twice."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.server_nodes import (
    ADMIN,
    LEASE_S,
    WAIT_S,
    EngineNodes,
    engine_nodes,
)

from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.store.failures import Backoff


def _state(cluster: EngineNodes, name: str, wanted: str) -> Callable[[], bool]:
    return lambda: cluster.view(name).state == wanted


def test_a_silent_node_gets_nothing_new_and_loses_nothing_by_a_hiccup(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=30.0) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        job = cluster.submit()
        cluster.begin(one, job)
        two.register()
        other = cluster.submit()
        cluster.begin(two, other)
        cluster.silence(one)
        cluster.until(_state(cluster, "one", "suspect"))
        cluster.until(lambda: "one" in cluster.service.engine.state.lost_nodes)
        more = cluster.submit()
        rounds = cluster.service.status(ADMIN).round
        cluster.until(lambda: cluster.service.status(ADMIN).round > rounds + 1)
        assert more not in one.jobs
        view = cluster.job(job)
        assert (view.state, view.attempt) == ("running", 1), (
            "neither told to stop nor started elsewhere"
        )
        assert view.reason.startswith("node one has been silent for ")
        assert "its leases end in " in view.reason
        cluster.service.cancel(ADMIN, more)
        cluster.until(lambda: cluster.job(more).state == "cancelled")
        cluster.nodes.append(one)
        cluster.until(_state(cluster, "one", "up"))
        rounds = cluster.service.status(ADMIN).round
        cluster.until(lambda: cluster.service.status(ADMIN).round > rounds + 1)
        view = cluster.job(job)
        assert view.attempt == 1, "it runs on where it was"
        assert view.reason == ""
        assert one.jobs == {job}


def test_a_job_of_a_silent_node_is_said_to_wait_for_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit(grace_s=60.0)
        cluster.begin(one, job)
        cluster.silence(one)
        cluster.until(lambda: "its leases are over" in cluster.job(job).reason)
        view, told = cluster.job(job), cluster.service.explain(ADMIN, job)
        assert "unless it is back its jobs start elsewhere in " in view.reason
        assert view.measured_rate is None, "nobody knows"
        assert told.why_here.startswith("It ran on 1 x v100 of one when that was last heard of: ")


def test_after_a_restart_of_the_server_no_job_is_said_not_to_have_begun(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit()
        cluster.begin(one, job)
        cluster.until(lambda: cluster.job(job).started_s is not None)
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        told = cluster.service.explain(ADMIN, job).why_here
        assert told.startswith("It ran on 1 x v100 of one when that was last heard of: ")
        assert "node one has not registered since the server was started" in told
        assert "It joined" not in told
        again = cluster.node("one")
        again.statuses = one.statuses
        again.register()
        again.say()
        told = cluster.service.explain(ADMIN, job).why_here
        assert told.startswith("It runs on 1 x v100 of one.")
        assert "It joined" not in told


def test_a_node_that_dies_with_an_order_that_it_never_took_up_gives_it_back(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=2 * WAIT_S) as cluster:
        one = cluster.node("one")
        one.register()
        cluster.silence(one)
        job = cluster.submit()
        cluster.until(lambda: cluster.job(job).attempt == 1, "the order to the dead node")
        two = cluster.node("two")
        two.register()
        cluster.until(
            lambda: job in two.jobs, "the order to another: there is no lease to wait for"
        )
        starts = cluster.service.attempts(ADMIN, job)
        assert sum("one" in attempt.node for attempt in starts) == 1
        assert one.leased == set()


def test_what_waits_for_a_silent_node_says_so_until_that_is_over(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=3.0) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit()
        cluster.begin(one, job)
        cluster.silence(one)
        cluster.service.pause(ADMIN, job)  # so that it is told to stop, and does not hear of it
        cluster.until(lambda: "one" in cluster.service.engine.state.lost_nodes)
        cluster.service.resume(ADMIN, job)
        found = cluster.until(
            lambda: cluster.job(job).reason if "waits for" in cluster.job(job).reason else ""
        )
        assert found.startswith("waits for node one, silent for ")
        assert "its lease ends in " in found
        two = cluster.node("two")
        two.register()
        cluster.until(lambda: job in two.jobs)
        assert cluster.view("one").state == "lost"
        assert cluster.job(job).reason == ""


def test_a_gang_with_a_silent_node_gives_up_its_devices_elsewhere(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        two.register()
        gang = cluster.submit(scale_factor=2)
        cluster.begin(one, gang)
        cluster.begin(two, gang)
        cluster.silence(one)
        other = cluster.submit()
        cluster.until(lambda: two.jobs == {other}, "the device of the gang on the other node")
        view = cluster.job(gang)
        assert view.reason.startswith("waits for node one, silent for ")
        assert view.attempt == 1, "it may still run on the silent node"
        assert cluster.job(other).state == "running"


def test_what_runs_on_an_unhealthy_node_runs_on_and_nothing_follows_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit()
        cluster.begin(one, job)
        cluster.do(lambda: cluster.service.engine.parts.nodes.service.cordon("one", "it eats jobs"))
        other = cluster.submit()
        rounds = cluster.service.engine.state.fleet.monotonic()
        cluster.until(lambda: cluster.service.engine.state.fleet.monotonic() > rounds + 3 * LEASE_S)
        view = cluster.job(job)
        assert (view.state, view.attempt) == ("running", 1)
        assert view.reason == "its node one is unhealthy: it eats jobs"
        assert one.jobs == {job}
        assert one.statuses[job, 1].state == "running"
        one.end(job, 1, exit_code=0, completed=True, loaded_step=0, step=1_000_000)
        cluster.until(lambda: cluster.job(job).state == "completed")
        assert one.jobs == set(), "the other one waits"
        cluster.service.undrain(ADMIN, "one")
        cluster.until(lambda: one.jobs == {other})


def test_a_start_that_its_node_cannot_begin_says_why_and_goes_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    why = "/agent/starts: No space left on device"
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit()
        key = cluster.until(lambda: next(iter(one.leased & one.statuses.keys()), None))
        for _ in range(3):
            one.statuses[key] = AttemptStatus(
                job=job, attempt=key[1], state="starting", reason=why, obstacle=why
            )
            one.say()
        reason = f"node one cannot start it: {why}"
        cluster.until(lambda: cluster.job(job).reason == reason)
        assert cluster.view("one").reason == f"cannot start jobs: {why}"
        assert cluster.view("one").state == "up"
        told = cluster.service.explain(ADMIN, job)
        assert f"Node one cannot start it: {why}." in told.why_here
        message = f"node one cannot start job {job}: {why}"
        cluster.until(lambda: message in caplog.messages, "the log of it")  # its thread may be late
        two = cluster.node("two")
        two.register()
        cluster.do(
            lambda: cluster.service.engine.parts.nodes.service.cordon("one", "its disk is full")
        )
        cluster.until(lambda: job in two.jobs, "the start on the other node")
        cluster.until(lambda: "cannot start" not in cluster.view("one").reason)
        assert "cannot start" not in cluster.job(job).reason
        assert caplog.messages.count(message) == 1


def test_all_jobs_of_a_node_that_was_silent_for_a_while_run_on(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, lease_s=60.0) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        jobs = [cluster.submit(unmanaged=True) for _ in range(2)]
        for job in jobs:
            cluster.begin(one, job)
        cluster.silence(one)
        cluster.until(lambda: "one" in cluster.service.engine.state.lost_nodes)
        pinned = cluster.service.engine.parts.jobs.pinned
        cluster.until(lambda: set(pinned.nodes) == set(jobs))
        cluster.nodes.append(one)
        cluster.until(_state(cluster, "one", "up"))
        rounds = cluster.service.status(ADMIN).round
        cluster.until(lambda: cluster.service.status(ADMIN).round > rounds + 1)
        assert [cluster.job(job).attempt for job in jobs] == [1, 1]
        assert one.jobs == set(jobs)


def test_who_is_let_go_shares_no_device_with_who_was_given_it_before_the_next_solve(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, engine = cluster.node("one"), cluster.service.engine
        one.register()
        job = cluster.submit()
        cluster.begin(one, job)
        cluster.do(lambda: engine.parts.nodes.service.cordon("one", "it eats jobs"))
        two = cluster.node("two")
        two.register()
        others = {cluster.submit(weight=50.0) for _ in range(2)}
        cluster.until(lambda: all(cluster.job(other).attempt for other in others), "turns on two")
        cluster.do(
            lambda: setattr(engine.parts.rounds.solves, "ask", lambda _: None)
        )  # no solve ever ends now
        cluster.service.undrain(ADMIN, "one")

        def wanted() -> list[int]:
            return [assignment.job for assignment in one.report().desired]

        cluster.until(lambda: others.intersection(wanted()))
        assert len(wanted()) == 1, "one job per device"
        cluster.until(lambda: one.jobs & others and job not in one.jobs)


def test_a_job_that_fails_on_a_cordoned_node_is_tried_on_another(tmp_path: Path) -> None:
    """Its wait may be over before the round is: the core held it for its node alone until then."""
    with engine_nodes(tmp_path, round_s=60.0, early_round_end=True) as cluster:
        one, two, engine = (
            cluster.node("one"),
            cluster.node("two", devices=2),
            cluster.service.engine,
        )
        cluster.silence(two)
        one.register()
        job = cluster.submit()
        cluster.begin(one, job)
        two.register()
        cluster.nodes.append(two)
        other = cluster.submit()  # its round goes on all the while
        cluster.begin(two, other)
        engine.parts.jobs.retries.backoff = Backoff(2.0, 2.0)
        cluster.do(lambda: engine.parts.nodes.service.cordon("one", "it eats jobs"))
        pinned = engine.parts.jobs.pinned
        cluster.until(lambda: job in pinned.nodes)
        one.end(job, 1, exit_code=1, reason="exit code 1")
        cluster.until(lambda: cluster.job(job).retry_in_s is not None)
        cluster.until(lambda: job in two.jobs, "the next try")
        assert other in two.jobs
