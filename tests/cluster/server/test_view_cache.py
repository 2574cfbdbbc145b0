"""What people are shown: counts that are kept, and views that are published."""

import random
from collections import Counter
from typing import Any

import pytest

from fairlead.cluster.front.messages import PublishedNodeView, PublishedStatus
from fairlead.cluster.front.view_cache import STATUS_TIMEOUT_S, ViewCache
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    JobState,
    NodeView,
    ParkedView,
    StatusView,
    TenantView,
)
from fairlead.cluster.server.tally import (
    CountedJob,
    CountedNode,
    Tally,
)

ADMIN, APE = Caller("root", "", "admin"), Caller("ann", "apes", "user")


def test_counts_are_those_of_whoever_counts_anew() -> None:
    rng = random.Random(1)
    tally, jobs = Tally(), dict[int, CountedJob]()
    for _ in range(3000):
        number = rng.randrange(40)
        if rng.random() < 0.3:
            jobs.pop(number, None)
            tally.note_job(number, None)
            continue
        state: JobState = rng.choice(["waiting", "running", "preempted", "paused"])
        standing: JobState = rng.choice([state, "completed"])
        jobs[number] = CountedJob(
            rng.choice("ab"), state, standing, rng.random(), rng.randrange(1, 9)
        )
        tally.note_job(number, jobs[number])
    assert +tally.states == Counter(job.displayed_state for job in jobs.values())
    assert tally.displayed == {
        number: job.displayed_state
        for number, job in jobs.items()
        if job.displayed_state != job.state
    }
    for name in "ab":
        mine = [job for job in jobs.values() if job.tenant == name]
        counted = tally.tenants[name]
        assert +counted.states == Counter(job.state for job in mine)
        assert counted.jobs == len(mine)
        assert counted.running == sum(job.state == "running" for job in mine)
        assert counted.devices == sum(job.devices for job in mine if job.state == "running")
        assert counted.weight == pytest.approx(sum(job.weight for job in mine))


def test_devices_are_counted_by_type() -> None:
    tally = Tally()
    tally.note_node("a", CountedNode("v100", 8, 8, 3))
    tally.note_node("b", CountedNode("v100", 4, 0, 0))
    tally.note_node("c", CountedNode("k80", 2, 2, 0))
    tally.note_node("a", CountedNode("v100", 8, 8, 5))
    assert tally.devices == {"k80": (2, 2, 0), "v100": (12, 8, 5)}
    tally.note_node("c", None)
    assert tally.devices == {"v100": (12, 8, 5)}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def tenant(name: str, jobs: int) -> TenantView:
    return TenantView(
        name=name, jobs=jobs, running=0, done=0, devices=0, share_promised=0.5, share_received=0.5,
        device_s=1.0, lost_device_s=0.0, mean_rho=None,
    )  # fmt: skip


def status(**more: Any) -> StatusView:
    return StatusView(
        version="1", now_s=50.0, policy="las", profile="default", round=3, round_s=60.0,
        round_ends_in_s=4.0, jobs={"running": 2}, devices={}, solve="ok", solve_s=None, decide_s=None,
        journal_records=1, tenants=(tenant("apes", 1), tenant("bees", 2), tenant("cats", 4)),
    )  # fmt: skip


def test_a_status_says_how_old_it_is_when_the_driver_stands_still() -> None:
    clock = Clock()
    shown = ViewCache(lambda _: 0.0, clock)
    assert shown.is_stale
    assert shown.status(ADMIN) is None
    shown.take(PublishedStatus(status=status(), at=100.0))
    clock.now += 1.0
    new = shown.status(ADMIN)
    assert new is not None
    assert (new.now_s, new.round_ends_in_s, new.age_s) == (51.0, 3.0, None)
    clock.now += STATUS_TIMEOUT_S + 6.0
    assert shown.is_stale
    old = shown.status(ADMIN)
    assert old is not None
    assert (old.now_s, old.round_ends_in_s, old.age_s) == (60.0, 0.0, 10.0)


def test_silent_nodes_are_seen_while_the_driver_stands_still() -> None:
    clock, seen = Clock(), {"a": 99.0, "b": 99.0, "c": 99.0}
    shown = ViewCache(seen.__getitem__, clock, timeout_s=lambda: 4.0)
    shown.take(PublishedStatus(status=status(), at=100.0))
    for name in seen:
        view = NodeView(
            name=name, accelerator="v100", devices=1, state="drained" if name == "c" else "up",
            host="h", simulated_devices=True, last_seen_s=1.0, jobs=((),), state_since_s=5.0,
        )  # fmt: skip
        shown.take(PublishedNodeView(node=name, view=view, at=100.0))
    assert [(n.state, n.age_s) for n in shown.nodes(ADMIN)] == [
        ("up", None),
        ("up", None),
        ("drained", None),
    ]
    assert shown.failed_nodes(ADMIN) == []
    clock.now += 20.0
    seen["a"] = clock.now
    assert [(n.name, n.state) for n in shown.failed_nodes(APE)] == [("b", "suspect")]
    a, b, c = shown.nodes(ADMIN)
    assert (a.state, a.age_s, a.last_seen_s) == ("up", 20.0, 0.0)
    assert (b.state, b.reason, b.state_since_s) == ("suspect", "silent for 21 s", 17.0)
    assert (c.state, c.reason) == ("drained", "")


def test_users_are_shown_no_parked_jobs_of_others() -> None:
    clock = Clock()
    shown = ViewCache({"n": 98.0}.__getitem__, clock)

    def views(age_s: float) -> tuple[ParkedView, ...]:
        return tuple(
            ParkedView(job=job, attempt=3, memory_bytes=job * 1000, age_s=age_s) for job in (1, 2)
        )

    parked = views(1.5)
    view = NodeView(
        name="n", accelerator="v100", devices=2, state="up", host="h", simulated_devices=True,
        last_seen_s=50.0, jobs=((), ()), parked=parked,
    )  # fmt: skip
    shown.take(PublishedNodeView(node="n", view=view, at=90.0, owners={1: "apes", 2: "bees"}))
    clock.now = 95.0
    assert shown.nodes(APE)[0].parked == views(6.5)[:1], "as long as it is now"
    assert shown.nodes(ADMIN)[0].parked == views(6.5)


def test_users_are_shown_their_own_tenant_and_jobs() -> None:
    clock = Clock()
    shown = ViewCache({"n": 98.0}.__getitem__, clock)
    shown.take(PublishedStatus(status=status(), at=100.0))
    mine = shown.status(APE)
    assert mine is not None
    assert [(one.name, one.jobs) for one in mine.tenants] == [("apes", 1), ("others", 6)]
    view = NodeView(
        name="n", accelerator="v100", devices=2, state="up", host="h", simulated_devices=True,
        last_seen_s=50.0, jobs=((1,), (2,)), state_since_s=5.0,
        reason="job 1 cannot start: x; job 2 cannot start: y",
    )  # fmt: skip
    shown.take(PublishedNodeView(node="n", view=view, at=90.0, owners={1: "apes", 2: "bees"}))
    (node,) = shown.nodes(APE)
    assert node.jobs == ((1,), (-1,))
    assert node.reason == "job 1 cannot start: x; a job cannot start: y"
    assert (node.last_seen_s, node.state_since_s) == (2.0, 15.0)
    assert shown.nodes(ADMIN)[0].jobs == ((1,), (2,))
    shown.take(PublishedNodeView(node="n", view=None))
    assert shown.nodes(ADMIN) == []
