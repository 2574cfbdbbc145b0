"""Elastic jobs: how many devices they have is decided round by round."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.job_types import job_types
from tests.scheduler.core.test_checkpoint import devices, moved, nodes
from tests.scheduler.core.test_scheduler import handle_all, round_report, started_round

from fairlead.errors import AllocationError, ProtocolError
from fairlead.model.cluster import SlotType
from fairlead.model.commands import StartRound
from fairlead.model.events import (
    Event,
    JobsCancelled,
    JobsPaused,
    JobsSubmitted,
    NodeLost,
    NodeRecovered,
)
from fairlead.model.job import Job, JobId
from fairlead.model.plan import RoundPlan
from fairlead.model.throughputs import Throughputs
from fairlead.policies import registry
from fairlead.policies.rounds_only import RoundsOnlyPlanner
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.core.snapshots import take_snapshot
from fairlead.scheduler.mechanism import planner_calls
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup, build, planner_of

TABLE = Throughputs(
    (SlotType("k80"), SlotType("v100")),
    job_types(("net", 1), ("net", 2), ("net", 4)),
    np.array([[4.0, 10.0], [7.0, 18.0], [12.0, 30.0]]),
)
NUMBERS = (1, 2, 4)


def core_of(policy: str = "sia", **sizes: int) -> Scheduler:
    """v100 nodes, and k80 nodes where the name begins with k."""
    return build(setup_of(policy, **sizes))


def setup_of(policy: str = "sia", **sizes: int) -> Setup:
    return Setup(
        version="0",
        cluster=nodes(**sizes),
        throughputs=TABLE,
        policy=policy,
        settings=DEFAULT,
        seed=0,
    )


def submit(*jobs: int, numbers: tuple[int, ...] = NUMBERS, time_s: float = 0.0) -> Event:
    made = tuple(Job(JobId(j), "net", 1, 1e6, devices=numbers) for j in jobs)
    return JobsSubmitted(time_s, made)


def numbers_of(round_: StartRound) -> dict[int, int]:
    """job -> devices."""
    counts = np.diff(round_.offsets).tolist()
    return dict(zip(round_.job_groups[:, 0].tolist(), counts, strict=True))


def test_a_job_grows_and_shrinks_as_others_come_and_go() -> None:
    core = core_of(a=4)
    first = started_round(handle_all(core, submit(1)))
    assert numbers_of(first) == {1: 4}
    assert core.data.ledger.groups.rate[0, :, 0].tolist() == [30.0]
    handle_all(core, submit(2, time_s=100.0))
    second = started_round(handle_all(core, round_report(first, 360.0, 3600.0)))
    assert numbers_of(second) == {1: 2, 2: 2}
    assert not second.kept.any()
    third = started_round(handle_all(core, round_report(second, 720.0, 3600.0)))
    assert numbers_of(third) == {1: 2, 2: 2}
    assert third.kept.all()
    ended = replace(round_report(third, 1000.0, 1e6), time_s=1080.0)
    ended.steps[third.job_groups[:, 0] == 2] = 0.0
    fourth = started_round(handle_all(core, ended))
    assert numbers_of(fourth) == {2: 4}
    invariants.check(core)


def test_a_job_keeps_its_number_under_a_policy_that_decides_no_numbers() -> None:
    core = core_of("las", a=4)
    assert numbers_of(started_round(handle_all(core, submit(1)))) == {1: 1}


def test_a_policy_of_shares_that_knows_rates_decides_numbers() -> None:
    core = core_of("las_aware", a=4)
    assert numbers_of(started_round(handle_all(core, submit(1)))) == {1: 4}


def test_more_jobs_than_devices_have_one_each_and_the_rest_wait() -> None:
    core = core_of(a=2, k=1)
    first = started_round(handle_all(core, submit(*range(1, 6))))
    assert sorted(numbers_of(first).values()) == [1, 1, 1]


def test_numbers_are_a_jobs_own() -> None:
    core = core_of(a=4)
    events = (submit(1, numbers=(1, 2)), submit(2, numbers=()))
    first = started_round(handle_all(core, *events[:1]))
    assert numbers_of(first) == {1: 2}
    handle_all(core, events[1])
    second = started_round(handle_all(core, round_report(first, 360.0, 3600.0)))
    assert numbers_of(second) == {1: 2, 2: 1}


def test_another_scheduler_goes_on_with_the_numbers() -> None:
    core = core_of(a=4)
    first = started_round(handle_all(core, submit(1)))
    handle_all(core, submit(2, time_s=10.0))
    other = moved(core, setup_of(a=4))
    assert devices(other) == devices(core)
    for one in (core, other):
        second = started_round(handle_all(one, round_report(first, 360.0, 3600.0)))
        assert numbers_of(second) == {1: 2, 2: 2}
    assert devices(other) == devices(core)
    last = moved(other, setup_of(a=4))
    third = started_round(handle_all(last, round_report(second, 720.0, 3600.0)))
    assert numbers_of(third) == {1: 2, 2: 2}
    assert third.kept.all()


def test_a_job_that_was_paused_comes_back_on_what_is_best_then() -> None:
    core = core_of(a=4)
    first = started_round(handle_all(core, submit(1, 2)))
    assert numbers_of(first) == {1: 2, 2: 2}
    handle_all(core, JobsPaused(10.0, np.array([1]), paused=True))
    second = started_round(handle_all(core, round_report(first, 20.0, 100.0)))
    assert numbers_of(second) == {2: 4}
    handle_all(core, JobsPaused(30.0, np.array([1]), paused=False))
    third = started_round(handle_all(core, round_report(second, 380.0, 100.0)))
    assert numbers_of(third) == {1: 2, 2: 2}


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((2, 4), "begins on 1 devices, and may have"),
        ((1, 3), "no rate for 'net' at scale factor 3"),
    ],
)
def test_numbers_that_cannot_be_are_refused(numbers: tuple[int, ...], said: str) -> None:
    core = core_of(a=4)
    with pytest.raises(ProtocolError, match=said):
        core.handle(submit(1, numbers=numbers))
    assert not core.data.elastic
    assert core.data.ledger.jobs.n == 0


def test_what_is_known_of_a_job_goes_with_it() -> None:
    core = core_of(a=4)
    first = started_round(handle_all(core, submit(1)))
    handle_all(core, round_report(first, 360.0, 1e6))
    assert not core.data.elastic


class Own(RoundsOnlyPlanner):
    """From outside: one job, on the devices that it is told."""

    name = "own"

    def __init__(self, scale: list[int]) -> None:
        self.scale = scale

    def plan(self, snapshot: object, state: object) -> tuple[RoundPlan, object]:
        return RoundPlan(np.array([0]), np.array([0]), scale=np.array(self.scale)), state


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ([3], "job 1: cannot have 3 devices, only 1, 2, 4"),
        ([4, 4], "scale must have 1 rows, got 2"),
        ([4], "v100: 4 devices used of 3"),
    ],
)
def test_an_installed_planner_that_plans_what_cannot_be(scale: list[int], said: str) -> None:
    core = core_of(a=3)
    handle_all(core, submit(1))
    with pytest.raises(AllocationError, match=said):
        planner_calls.plan(Own(scale), take_snapshot(core.data, 0.0), None)


def test_an_installed_planner_decides_numbers() -> None:
    core = core_of(a=4)
    handle_all(core, submit(1))
    made, _ = planner_calls.plan(Own([2]), take_snapshot(core.data, 0.0), None)
    assert made.scale is not None
    assert made.scale.tolist() == [2]


class _World:
    """A core with jobs that come, go, are paused and cancelled, on nodes that come and go."""

    def __init__(self, policy: str) -> None:
        made = registry.make(policy, seed=0, profile="default")
        planner = planner_of(made, policy, 0, DEFAULT)
        cluster = nodes(a=2, b=2, k=2)
        self.core = Scheduler(cluster, TABLE, planner, DEFAULT, preempted_return=True)
        self.cluster = cluster
        self.now_s = 0.0
        self.jobs: dict[int, tuple[int, ...]] = {}
        self.paused: set[int] = set()
        self.lost: set[str] = set()

    def do(self, action: str, number: int) -> None:
        """number: chooses among what there is."""
        self.now_s += 10.0
        open_jobs = sorted(self.core.data.ledger.jobs.id.tolist())
        if action == "submit":
            job = len(self.jobs)
            self.jobs[job] = [(1,), (2,), (1, 2), (1, 2, 4), (2, 4)][number % 5]
            first = self.jobs[job][number % len(self.jobs[job])]
            made = Job(JobId(job), "net", first, 1e6, devices=self.jobs[job])
            self.handle(JobsSubmitted(self.now_s, (made,)))
        elif action == "end round":
            self.end_round(number)
        elif action == "resume" and self.paused:
            job = sorted(self.paused)[number % len(self.paused)]
            self.paused.discard(job)
            if JobId(job) in self.core.data.paused_jobs or JobId(job) in self.core.data.ledger:
                self.handle(JobsPaused(self.now_s, np.array([job]), paused=False))
        elif action == "lose" or action == "find":
            name = self.cluster.nodes[number % 3].name
            if (name in self.lost) == (action == "find"):
                self.lost ^= {name}
                event = NodeLost if action == "lose" else NodeRecovered
                self.handle(event(self.now_s, name))
        elif open_jobs and action == "pause":
            job = open_jobs[number % len(open_jobs)]
            self.paused.add(job)
            self.handle(JobsPaused(self.now_s, np.array([job]), paused=True))
        elif open_jobs and action == "cancel":
            self.handle(JobsCancelled(self.now_s, (JobId(open_jobs[number % len(open_jobs)]),)))

    def end_round(self, number: int) -> None:
        """One of the jobs that ran completes now and then."""
        running = self.core.data.round
        if not running.active:
            return
        assert running.in_force is not None
        report = round_report(running.in_force, self.now_s, 10.0)
        if number % 3 == 0 and len(report.steps):
            report.steps[number % len(report.steps)] = 1e6
        self.handle(report)

    def handle(self, event: Event) -> None:
        for command in handle_all(self.core, event):
            if isinstance(command, StartRound):
                self.check(command)
        invariants.check(self.core)

    def check(self, round_: StartRound) -> None:
        used = round_.devices.tolist()
        assert len(used) == len(set(used)), "a device has two jobs"
        lost = [self.cluster.nodes[n].name in self.lost for n in self.cluster.device_node[used]]
        assert not any(lost)
        for job, count in numbers_of(round_).items():
            assert count in self.jobs[job]


@pytest.mark.parametrize("policy", ["sia", "pollux", "elastic_srpt", "las_aware"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_device_has_two_jobs_whatever_happens(policy: str, data: st.DataObject) -> None:
    world = _World(policy)
    actions = [
        "submit",
        "submit",
        "end round",
        "end round",
        "pause",
        "resume",
        "cancel",
        "lose",
        "find",
    ]
    for _ in range(data.draw(st.integers(1, 25))):
        world.do(data.draw(st.sampled_from(actions)), data.draw(st.integers(0, 30)))


def test_a_paused_job_does_not_come_back_to_devices_of_another_number() -> None:
    core = core_of(a=4)
    first = started_round(handle_all(core, submit(1, 2)))
    handle_all(core, JobsPaused(10.0, np.array([1]), paused=True))
    second = started_round(handle_all(core, round_report(first, 20.0, 100.0)))
    handle_all(core, JobsCancelled(30.0, (JobId(2),)))
    handle_all(core, round_report(second, 40.0, 100.0))
    third = started_round(handle_all(core, JobsPaused(50.0, np.array([1]), paused=False)))
    assert numbers_of(third) == {1: 4}
    assert sorted(third.devices.tolist()) == [0, 1, 2, 3]
