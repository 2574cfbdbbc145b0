"""Who has just started, or is about to finish, keeps its devices, however its round ends; and nobody waits
for a round beside free devices."""

import time
from pathlib import Path

import pytest
from tests.cluster.server_nodes import (
    ADMIN,
    EngineNodes,
    PlayedNode,
    engine_nodes,
)

from fairlead.cluster.protocol.messages import Failure
from fairlead.cluster.server.live_round import MAX_ROUND_S
from fairlead.cluster.store.failures import Backoff
from fairlead.model.events import JobsSubmitted

FAMILY = "ResNet-50 (batch size 64)"  # slower when spread over servers
LONG_S = 240.0
SHORT_S = 5.0


def _attempt(node: PlayedNode, job: int) -> int:
    return max(attempt for number, attempt in node.statuses if number == job)


def _trains(node: PlayedNode, job: int, **more: object) -> None:
    node.run(job, _attempt(node, job), loaded_step=0, saved_step=0, **more)


def _where(cluster: EngineNodes, job: int) -> PlayedNode:
    return cluster.until(lambda: next((n for n in cluster.nodes if job in n.jobs), None))  # type: ignore[no-any-return]


def _fill(cluster: EngineNodes, jobs: set[int]) -> None:
    """The one node begins these jobs, and no round is cut any more."""
    (one,) = cluster.nodes
    state, clock = cluster.service.engine.state, cluster.service.engine.parts.rounds.clock
    cluster.until(lambda: one.jobs)
    if one.jobs != jobs:  # they did not come at once
        cluster.do(lambda: clock.end_round(state.now_s()))
    cluster.until(lambda: one.jobs == jobs)


def _next_rounds(cluster: EngineNodes, count: int) -> None:
    then = cluster.service.status(ADMIN).round
    cluster.until(lambda: cluster.service.status(ADMIN).round >= then + count)


def test_jobs_that_finish_are_not_moved_to_make_room_on_a_server(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        for name in ("one", "two"):
            cluster.node(name, devices=2).register()
        jobs = [cluster.submit(family=FAMILY, rates={}, total_steps=100) for _ in range(4)]
        node = {job: _where(cluster, job) for job in jobs}
        here = [job for job in jobs if node[job].name == "one"]
        there = [job for job in jobs if node[job].name == "two"]
        assert len(here) == len(there) == 2
        stay, leave = [here[0], there[0]], [here[1], there[1]]
        for job in stay:
            _trains(node[job], job, step=100, finishing=True)
        for job in leave:
            node[job].end(job, 1, exit_code=0, step=100, loaded_step=0, completed=True)
        cluster.until(lambda: all(cluster.job(job).state == "completed" for job in leave))
        assert [cluster.job(job).state for job in stay] == ["finishing"] * 2
        big = cluster.submit(family=FAMILY, rates={}, scale_factor=2)
        _where(cluster, big)
        _next_rounds(cluster, 2)
        assert [cluster.job(job).starts for job in stay] == [1, 1]
        assert [(job, 1) in node[job].statuses for job in stay] == [True, True]


def test_a_start_is_left_alone_until_it_has_trained_for_as_long_as_it_took(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        one = cluster.node("one", devices=2)
        young, first = cluster.submit(), cluster.submit()
        one.register()
        _fill(cluster, {young, first})
        urgent = [cluster.submit(weight=10_000.0) for _ in range(6)]

        def cut_by_pausing(job: int) -> int:
            """The job that has its place then."""
            cluster.service.pause(ADMIN, job)
            (new,) = cluster.until(lambda: one.jobs - {young, job}, "another job")
            cluster.until(lambda: not cluster.service.engine.state.solving)
            return int(new)

        holder = cut_by_pausing(first)
        for _ in range(2):
            holder = cut_by_pausing(holder)
            assert cluster.job(young).state == "running"
        assert (young, 1) in one.statuses
        began = time.monotonic()
        _trains(one, young, step=1)
        cluster.until(lambda: cluster.job(young).reason == "" and time.monotonic() > began + 0.3)
        engine = cluster.service.engine
        start = engine.state.registry.newest(young)
        assert start is not None
        cluster.until(lambda: not start.is_young(engine.state.clock.now_s(), 5 * LONG_S))
        cluster.service.pause(ADMIN, holder)
        cluster.until(lambda: cluster.job(young).state == "preempted")
        cluster.until(lambda: one.jobs <= set(urgent))


def test_nobody_waits_beside_a_free_device_for_a_job_that_starts(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S, early_round_end=True) as cluster:
        one = cluster.node("one", devices=2)
        short, young = (
            cluster.submit(),
            cluster.submit(),
        )  # the later one begins in the round that is cut
        one.register()
        _fill(cluster, {young, short})
        waits = cluster.submit()
        one.end(short, 1, exit_code=0, step=1_000_000, loaded_step=0, completed=True)
        began = time.monotonic()
        cluster.until(lambda: waits in one.jobs or time.monotonic() > began + LONG_S / 2)
        assert one.jobs == {young, waits}
        assert cluster.job(young).starts == 1


def test_a_job_that_comes_while_a_round_is_decided_is_looked_at(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S) as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        job = cluster.submit()
        cluster.until(lambda: one.jobs == {job})
        state, clock = cluster.service.engine.state, cluster.service.engine.parts.rounds.clock

        def end_then_submit() -> None:
            now = state.now_s()
            state.capacity_changed = False
            clock.end_round(now)
            state.emit(JobsSubmitted(now, ()))

        then = cluster.service.status(ADMIN).round
        cluster.do(end_then_submit)
        cluster.until(lambda: cluster.service.status(ADMIN).round > then)
        assert cluster.do(lambda: state.capacity_changed)


def test_nobody_waits_for_another_try_beside_a_free_device(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S, early_round_end=True) as cluster:
        cluster.service.engine.parts.jobs.retries.backoff = Backoff(0.2, 10.0)
        one = cluster.node("one", devices=2)
        slow, fails = cluster.submit(), cluster.submit()
        one.register()
        _fill(cluster, {slow, fails})
        failure = Failure(exit_code=3, message="exit code 3")
        one.end(fails, 1, exit_code=3, reason="exit code 3", failure=failure)
        began = time.monotonic()
        cluster.until(lambda: (fails, 2) in one.statuses or time.monotonic() > began + LONG_S / 2)
        assert one.jobs == {slow, fails}
        assert cluster.job(slow).starts == 1


@pytest.mark.parametrize(("policy", "devices"), [("las", 1), ("las", 2), ("fifo", 2)])
def test_no_slow_start_holds_up_a_round(tmp_path: Path, policy: str, devices: int) -> None:
    """Where all devices are held, or one is free; under a policy that leaves young starts alone, or not."""
    with engine_nodes(tmp_path, SHORT_S, early_round_end=devices > 1, policy=policy) as cluster:
        one = cluster.node("one", devices=devices)
        one.register()
        slow = cluster.submit()
        cluster.until(lambda: slow in one.jobs)
        began, then = time.monotonic(), cluster.service.status(ADMIN).round
        cluster.submit()
        cluster.until(lambda: cluster.service.status(ADMIN).round > then)
        if devices > 1:
            cluster.until(lambda: len(one.jobs) == devices)
        assert time.monotonic() - began < 20 * SHORT_S
        assert (slow, 1) in one.statuses


def test_who_had_no_share_yet_does_not_wait_for_the_next_round(tmp_path: Path) -> None:
    with engine_nodes(tmp_path, LONG_S, early_round_end=True, policy="fifo_packed") as cluster:
        one = cluster.node("one", devices=2)
        one.register()
        first = cluster.submit()
        cluster.until(lambda: first in one.jobs)
        began, second = time.monotonic(), cluster.submit()
        cluster.until(lambda: second in one.jobs or time.monotonic() > began + LONG_S / 2)
        assert one.jobs == {first, second}


def test_jobs_that_start_for_longer_than_five_rounds_do_not_preempt_each_other_for_ever(
    tmp_path: Path,
) -> None:
    """What a start took that was cut is known of the next one, which gets three times as long."""
    round_s = 0.5
    with engine_nodes(tmp_path, round_s) as cluster:
        one = cluster.node("one")
        job, _ = cluster.submit(), cluster.submit()
        one.register()

        def ended() -> int:
            return sum(a.ended_s is not None for a in cluster.service.attempts(ADMIN, job))

        cluster.until(lambda: ended() >= 2)
        first, second = cluster.service.attempts(ADMIN, job)[:2]
        assert first.ended_s is not None
        assert second.ended_s is not None
        before_s, after_s = first.ended_s - first.began_s, second.ended_s - second.began_s
        assert after_s > 2 * before_s > 2 * MAX_ROUND_S * round_s
