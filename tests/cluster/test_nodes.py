"""Nodes that are well, that are not, and that somebody says are not; see ``engine_nodes``."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.server_nodes import (
    ADMIN,
    LEASE_S,
    EngineNodes,
    PlayedNode,
    engine_nodes,
)

from fairlead.errors import ConfigError

ENDING = "its agent is being ended in order; its jobs save, and go elsewhere"


def test_a_cordoned_node_is_given_no_jobs_and_says_why(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        one.register()
        two.register()
        watch = cluster.service.engine.parts.nodes.service
        cluster.do(lambda: watch.cordon("one", "3 jobs failed there"))
        view = cluster.view("one")
        assert (view.state, view.reason) == ("unhealthy", "3 jobs failed there")
        assert view.state_since_s is not None
        first, second = cluster.submit(), cluster.submit()
        cluster.until(lambda: two.jobs & {first, second})
        assert one.jobs == set()
        cluster.do(lambda: watch.uncordon("one"))
        assert cluster.view("one").state == "up"
        cluster.until(lambda: one.jobs)


def test_a_cordon_outlives_the_server_and_an_administrator_ends_it(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        cluster.node("one").register()
        cluster.do(lambda: cluster.service.engine.parts.nodes.service.cordon("one", "it eats jobs"))
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one", "one.2")
        one.register()
        assert cluster.view("one").reason == "it eats jobs"
        cluster.service.undrain(ADMIN, "one")
        assert cluster.view("one").state == "up"


def _running(cluster: EngineNodes) -> tuple[PlayedNode, int]:
    """A node called one, and the job that it has begun with a lease."""
    one = cluster.node("one", "a.1")
    one.register(machine="m")
    job = cluster.submit(unmanaged=True)
    cluster.until(lambda: (job, 1) in one.leased)
    one.run(job, 1)
    one.say()
    return one, job


def test_a_node_whose_agent_ends_in_order_is_offline_and_not_lost(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, job = _running(cluster)
        two = cluster.node("two")
        two.register()
        one.end(job, 1, reason="agent leaves", exit_code=0)
        one.say(leaving=True)
        cluster.silence(one)
        cluster.until(lambda: cluster.view("one").state == "offline")
        assert cluster.view("one").reason.startswith("its agent was ended in order, 20")
        cluster.until(lambda: job in two.jobs)
        cluster.until(lambda: cluster.service.engine.state.fleet.nodes["one"].lost)
        cluster.until(lambda: cluster.view("one").last_seen_s > 1.0)  # type: ignore[operator]
        assert cluster.view("one").state == "offline", "nobody lost it"
    with engine_nodes(tmp_path) as cluster:
        assert cluster.view("one").state == "offline", "the next server knows"
        one = cluster.node("one", "c.1")  # of another directory: nobody has the name now
        one.register()
        assert cluster.view("one").state == "up"


def test_what_a_node_was_ordered_as_it_left_begins_elsewhere(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        cluster.silence(one)
        job = cluster.submit()
        cluster.until(
            lambda: job in cluster.service.engine.state.fleet.nodes["one"].desired.desired
        )
        one.say(leaving=True)
        two = cluster.node("two")
        two.register()
        cluster.until(lambda: job in two.jobs)
        assert cluster.view("one").state == "offline"
        cluster.service.remove_node(ADMIN, "one")
        assert [node.name for node in cluster.service.nodes(ADMIN)] == ["two"]


def test_a_node_whose_agent_is_being_ended_is_given_nothing_more(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, job = _running(cluster)
        two = cluster.node("two", devices=2)
        two.register()
        one.ending = True
        one.stopping(job, 1)
        cluster.until(lambda: cluster.view("one").state == "offline")
        assert cluster.view("one").reason == ENDING
        more = cluster.submit()
        cluster.until(lambda: more in two.jobs)
        assert (more, 1) not in one.statuses, "nothing new is ordered of it"
        cluster.until(lambda: job in two.jobs)
        assert cluster.job(job).failures == 0
        assert cluster.service.store.attempts(job)[0].why == "agent leaves"


def test_an_agent_that_registers_while_it_is_being_ended_is_given_nothing(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.ending = True
        one.register()
        assert cluster.view("one").state == "offline"
        job = cluster.submit()
        two = cluster.node("two")
        two.register()
        cluster.until(lambda: job in two.jobs)
        assert one.jobs == set()


def test_a_start_that_an_ending_agent_does_not_begin_is_no_failure(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        cluster.silence(one)
        job = cluster.submit()
        desired = cluster.service.engine.state.fleet.nodes["one"].desired
        cluster.until(lambda: job in {a.job for a in desired.published.desired})
        one.ending = True
        one.follows = desired.published.seq  # it has them, and holds nothing of them
        one.say()
        two = cluster.node("two")
        two.register()
        cluster.until(lambda: job in two.jobs)
        assert cluster.job(job).failures == 0
        first = cluster.service.store.attempts(job)[0]
        assert (first.end, first.why) == ("agent left", "agent leaves")


def test_a_gang_is_started_elsewhere_when_an_agent_of_it_is_being_ended(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, two = cluster.node("one"), cluster.node("two")
        for node in (one, two):
            node.register()
        job = cluster.submit(scale_factor=2)
        cluster.until(lambda: job in one.jobs and job in two.jobs)
        one.ending = True
        del one.statuses[job, 1]  # it has never begun it
        three = cluster.node("three")
        three.register()
        cluster.until(lambda: (job, 2) in two.statuses and (job, 2) in three.statuses)
        assert cluster.job(job).failures == 0


def _take_over(cluster: EngineNodes, old: PlayedNode, **more: Any) -> PlayedNode:
    """Another agent registers under the name of one that has fallen silent."""
    cluster.silence(old)
    new = cluster.node("one", "b.1")
    silence_s = cluster.service.engine.state.fleet.silence_s
    cluster.nodes.remove(new)
    cluster.until(lambda: cluster.view("one").last_seen_s > silence_s)  # type: ignore[operator]
    cluster.nodes.append(new)
    new.register(**more)
    return new


def test_a_name_that_is_taken_over_waits_for_what_the_old_agent_may_still_run(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        old, job = _running(cluster)
        granted = time.monotonic()
        new = _take_over(cluster, old)
        view = cluster.view("one")
        assert view.state == "waiting"
        assert "1 job(s) of the one before may still run there" in view.reason
        cluster.until(lambda: new.jobs)
        assert time.monotonic() > granted + LEASE_S + 0.5, "lease and grace"
        assert new.jobs == {job}
        assert (job, 2) in new.statuses, "another start, not the one that may still have run"
        assert cluster.view("one").state == "up"
        with pytest.raises(ConfigError, match="another agent has registered under this name"):
            old.register()


def test_who_has_made_sure_that_nothing_lives_need_not_wait(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        old, job = _running(cluster)
        new = _take_over(cluster, old, machine="m", cleared=("a.1",))
        assert cluster.view("one").state == "up"
        cluster.until(lambda: new.jobs == {job})


def test_a_restarted_server_still_waits_and_knows_who_was_superseded(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        old, job = _running(cluster)
        new = _take_over(cluster, old)
        assert cluster.view("one").state == "waiting"
    with engine_nodes(tmp_path) as cluster:
        old.cluster = new.cluster = cluster
        with pytest.raises(ConfigError, match="another agent has registered under this name"):
            old.register()
        new.register()
        assert cluster.view("one").state == "waiting"
        began = time.monotonic()
        cluster.nodes.append(new)
        cluster.until(lambda: new.jobs == {job})
        assert time.monotonic() - began > LEASE_S, "it cannot know when the lease was granted"


def test_a_node_whose_checks_fail_is_unhealthy_until_they_pass(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        recovery = cluster.service.engine.parts.nodes.service.recovery
        recovery.first_s = 3.0
        one.report(problems=("the disk is full",))
        cluster.nodes.remove(one)  # it says no more, and is not silent for long
        node = cluster.service.engine.state.fleet.nodes["one"]
        cluster.until(lambda: node.health.noted == "unhealthy")
        assert cluster.view("one").reason == "the disk is full"
        cluster.nodes.append(one)
        cluster.until(lambda: node.health.noted == "up", "recovery at once, the first time")
        cluster.nodes.remove(one)
        one.report(problems=("the disk is full",))
        cluster.until(lambda: node.health.noted == "unhealthy")
        began = time.monotonic()
        cluster.nodes.append(one)
        found = cluster.until(
            lambda: (
                cluster.view("one").reason if "was not well" in cluster.view("one").reason else ""
            )
        )
        assert found.endswith(" s if it stays so")
        cluster.until(lambda: cluster.view("one").state == "up")
        assert time.monotonic() - began > 2.5, "it relapsed, and so is not trusted at once"


def test_a_directory_that_hangs_is_the_matter_of_the_job_that_saves_there(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one, job = _running(cluster)
        problem = "checkpoint directory '/nfs/x': no answer for 40 s"
        one.run(job, 1, directory_problem=problem)
        cluster.until(lambda: cluster.job(job).reason == f"node one: {problem}")
        assert cluster.view("one").state == "up"
        one.run(job, 1)
        cluster.until(lambda: cluster.job(job).reason == "")


def test_an_agent_that_was_started_anew_and_has_checked_nothing_yet_makes_no_node_well(
    tmp_path: Path,
) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one", "one.1")
        one.register()
        cluster.silence(one)
        one.report(problems=("the disk is full",), dead=(0,))
        node = cluster.service.engine.state.fleet.nodes["one"]
        cluster.until(lambda: node.health.noted == "unhealthy")
        new = cluster.node("one", "one.2")
        cluster.silence(new)
        new.register()
        seq = new.seq + 3
        while new.seq < seq:
            new.report(health_known=False)
        cluster.until(lambda: node.observed.seq >= seq)
        assert (node.health.problems, node.health.dead) == (("the disk is full",), (0,))
        assert cluster.view("one").reason == "the disk is full"
        new.report()
        cluster.until(lambda: not node.health.problems)


def test_an_administrator_may_trust_a_node_that_relapsed(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        cluster.service.engine.parts.nodes.service.recovery.first_s = 1000.0
        cluster.nodes.remove(one)  # it says what is said here
        full = ("the disk is full",)
        cluster.until(lambda: one.report(problems=full) and _noted(cluster) == "unhealthy")
        cluster.until(lambda: one.report() and _noted(cluster) == "up")
        cluster.until(lambda: one.report(problems=full) and _noted(cluster) == "unhealthy")
        cluster.until(lambda: one.report() and "was not well" in cluster.view("one").reason)
        cluster.service.undrain(ADMIN, "one")
        cluster.until(lambda: one.report() and _noted(cluster) == "up")
        cluster.until(lambda: one.report(problems=full) and _noted(cluster) == "unhealthy")
        cluster.until(
            lambda: one.report() and _noted(cluster) == "up", "recovery at once, as the first time"
        )


def test_a_node_that_waits_after_a_relapse_is_not_shown_as_up(tmp_path: Path) -> None:
    """What is published between the news that it is well again and the next look at it says "up"."""
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        engine = cluster.service.engine
        published, settle = engine.parts.view_parts.published, engine.parts.nodes.service.settle
        engine.parts.nodes.service.recovery.first_s = 1000.0
        node = engine.state.fleet.nodes["one"]

        def working() -> list[int]:
            published.publish((), (), waits=False)
            return [count for _, count, _ in published.tally.devices.values()]

        def relapse() -> list[list[int]]:
            seen = []
            for _ in range(2):
                node.health.problems = ("the disk is full",)
                settle(node)
                node.health.problems = ()
                engine.state.changed_nodes.add("one")  # the news
                working()
                settle(node)
                seen.append(working())
            return seen

        cluster.silence(one)
        cluster.until(lambda: node.health.noted == "up")
        assert cluster.do(relapse) == [[1], [0]]


def _noted(cluster: EngineNodes) -> str:
    return cluster.service.engine.state.fleet.nodes["one"].health.noted


def test_a_cordoned_node_comes_back_by_a_test_start_that_works(tmp_path: Path) -> None:
    with engine_nodes(tmp_path) as cluster:
        one = cluster.node("one")
        one.register()
        membership = cluster.service.engine.parts.nodes.service
        membership.recovery.first_s = 0.5
        cluster.do(lambda: membership.cordon("one", "3 jobs failed there"))
        cluster.nodes.remove(one)
        first = _asked(one)
        assert first > 0
        one.report(checked=first, check_problem="command not found: 'python'")
        second = _asked(one, checked=first, check_problem="command not found: 'python'")
        assert second > first, "tried again"
        assert cluster.view("one").state == "unhealthy"
        one.report(checked=second)
        cluster.until(lambda: cluster.view("one").state == "up")
        cluster.until(lambda: one.report(checked=second).check is None, "the end of the test")


def _asked(node: PlayedNode, **message: object) -> int:
    """Report until a new test start is asked for; its number."""
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        check = node.report(**message).check
        if check is not None and check.number != message.get("checked"):
            return check.number
        time.sleep(0.05)
    raise AssertionError("no test start was asked for")
