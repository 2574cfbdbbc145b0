"""Jobs that are bound to devices, for what they have done is in the memory of processes there."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.job_types import job_types
from tests.scheduler.core.test_checkpoint import devices, moved, nodes, setup
from tests.scheduler.core.test_scheduler import handle_all, round_report, started_round, submit

from fairlead.errors import ProtocolError
from fairlead.model.cluster import Locality, SlotType
from fairlead.model.commands import StartRound
from fairlead.model.events import (
    DevicesBound,
    JobsReweighted,
    NodeLost,
    NodeRecovered,
    NodesAvoided,
    ProgressCorrected,
    RestartCostsLearned,
    RoundEnded,
    Stalled,
)
from fairlead.model.job import JobId, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.journal import decode, encode
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import build

ROUND_S = 360.0
RATE = 10.0  # steps/s
ANY_POLICY = [
    "las_aware",
    "las",
    "isolated",
    "fifo_perf",
    "gandiva",
    "tiresias",
    "total_throughput",
]


def bind(job: int, *where: tuple[str, int], time_s: float = 0.0) -> DevicesBound:
    return DevicesBound(time_s, JobId(job), where)


def bind_all(core: Scheduler, jobs: set[int], time_s: float) -> None:
    """As a server does: those of these jobs that run stay bound to where they run."""
    for job, where in devices(core).items():
        if job in jobs:
            core.handle(bind(job, *where, time_s=time_s))


def first_round(core: Scheduler) -> StartRound:
    assert core.data.round.in_force is not None
    return core.data.round.in_force


def next_round(core: Scheduler, running: StartRound, time_s: float) -> StartRound:
    return started_round(handle_all(core, round_report(running, time_s, 3600.0)))


def weigh(job: int, weight: float, time_s: float = 0.0) -> JobsReweighted:
    return JobsReweighted(time_s, np.array([job]), np.array([weight]))


def test_bound_jobs_take_turns_on_their_own_devices() -> None:
    core, jobs = build(setup(nodes(a=1, b=1, c=1, d=1))), set(range(1, 7))
    running = started_round(handle_all(core, submit(*jobs, steps=1e9)))
    places: dict[int, set[str]] = {job: set() for job in jobs}
    turns = Counter[int]()
    for k in range(1, 61):
        for job, [(node, _)] in devices(core).items():
            places[job].add(node)
            turns[job] += 1
        bind_all(core, jobs, k * ROUND_S)
        running = next_round(core, running, k * ROUND_S)
        assert len(running.job_groups) == 4, "no device is left idle"
        invariants.check(core)
    assert all(len(where) == 1 for where in places.values()), "nobody lost its work"
    assert min(turns.values()) >= 20, "nobody starves"


def test_others_make_room_for_a_bound_job() -> None:
    core = build(setup(nodes(a=1, b=1)))
    running = started_round(handle_all(core, submit(1, 2, 3, steps=1e9)))
    (waiting,) = {1, 2, 3} - set(devices(core))
    (stays, _) = devices(core)
    handle_all(
        core, bind(waiting, *devices(core)[stays]), weigh(stays, 100.0), weigh(waiting, 100.0)
    )
    own = devices(core)[stays]
    for k in range(1, 4):
        running = next_round(core, running, k * ROUND_S)
        if waiting in devices(core):
            break
    assert devices(core)[waiting] == own
    assert devices(core)[stays] != own, "it has moved"
    assert not running.kept.any()


def _goes_on(
    restart_s: float, work_s: float = 1e7, policy: str = "las_aware", start_s: float = 0.0
) -> tuple[int, str]:
    """After how many rounds, of at most 40, a bound job that is always owed more than the third one has
    devices, and whether it has its own ("stays") or others ("anew"). The job that holds its own, and is
    always chosen, loses so much by a start; the bound one has worked for so long there."""
    costs = RestartCosts(start_s)
    core = build(replace(setup(nodes(a=1, b=1), policy), restart_costs=costs))
    running = started_round(handle_all(core, submit(1, 2, 3, steps=1e9)))
    (waiting,) = {1, 2, 3} - set(devices(core))
    (stays, _) = devices(core)
    handle_all(
        core,
        bind(waiting, *devices(core)[stays]),
        ProgressCorrected(0.0, np.array([waiting]), np.array([RATE * work_s])),
        RestartCostsLearned(0.0, np.array([stays]), np.array([restart_s])),
        weigh(waiting, 100.0),
        weigh(stays, 100.0),
    )
    before = devices(core)
    for k in range(1, 41):
        running = next_round(core, running, k * ROUND_S)
        invariants.check(core)
        assert len(devices(core)) == 2, "no device is left idle"
        if waiting in devices(core):
            own = devices(core)[waiting] == before[stays]
            assert own == (waiting in core.data.bound_jobs.devices)
            return k, "stays" if own else "anew"
    assert devices(core) == before
    return 41, ""


def test_others_make_room_when_a_bound_job_is_owed_what_their_start_costs() -> None:
    hysteresis = DEFAULT.preemption_hysteresis
    soon, late = 1.0, 10 * ROUND_S / hysteresis
    assert _goes_on(soon) == (1, "stays")
    rounds, where = _goes_on(late)
    assert 9 <= rounds <= 12
    assert where == "stays"
    assert _goes_on(1e9) == (41, "")


@pytest.mark.parametrize("policy", ["las_aware", "isolated"])
def test_a_bound_job_begins_anew_when_it_is_owed_more_than_it_loses_by_that(policy: str) -> None:
    """However long others would lose by a move, and though that may grow while it waits."""
    assert _goes_on(1e9, 1.0, policy) == (1, "anew")
    for loses in ({"work_s": 10 * ROUND_S}, {"work_s": 1.0, "start_s": 9 * ROUND_S / 40}):
        rounds, where = _goes_on(1e9, policy=policy, **loses)
        assert 8 <= rounds <= 25
        assert where == "anew"
    assert _goes_on(1.0, 10 * ROUND_S, policy)[1] == "stays"


def test_nobody_starves_beside_a_job_that_loses_all_by_a_stop() -> None:
    """What that loses grows by a second each second, what a bound job is owed by less."""
    core, plain, lost_s = build(setup(nodes(a=2))), 4, 0.0
    running = started_round(handle_all(core, submit(1, 2, steps=1e9)))
    handle_all(core, submit(3, plain, steps=1e9, time_s=1.0))
    turns = Counter[int]()
    for k in range(1, 61):
        bind_all(core, {1, 2, 3}, k * ROUND_S)
        lost_s = lost_s + ROUND_S if plain in devices(core) else 0.0
        cost_s = np.array([lost_s / DEFAULT.preemption_hysteresis])
        core.handle(RestartCostsLearned(k * ROUND_S, np.array([plain]), cost_s))
        running = next_round(core, running, k * ROUND_S)
        invariants.check(core)
        turns.update(devices(core).keys())
    assert turns[plain] >= 50, "it is left where it is"
    assert min(turns.values()) >= 15, "the others take turns beside it"


def test_bound_to_nothing_it_runs_anywhere() -> None:
    core = build(setup(nodes(a=1, b=1)))
    running = started_round(handle_all(core, submit(1, 2, 3, steps=1e9)))
    (waiting,) = {1, 2, 3} - set(devices(core))
    (stays, other) = devices(core)
    before = devices(core)
    never = RestartCostsLearned(0.0, np.array([stays]), np.array([1e9]))
    works = ProgressCorrected(0.0, np.array([waiting]), np.array([1e8]))
    handle_all(core, bind(waiting, *before[stays]), works, never, weigh(waiting, 100.0))
    running = next_round(core, running, ROUND_S)
    assert devices(core) == before
    core.handle(bind(waiting))
    next_round(core, running, 2 * ROUND_S)
    assert devices(core)[waiting] == before[other]


@pytest.mark.parametrize(
    ("policy", "least"), [("las_aware", 39), ("total_throughput", 39), ("isolated", 29)]
)  # the last one gives shares of all types, whoever can use them
def test_a_bound_job_stays_on_its_type_and_gets_its_share_there(policy: str, least: int) -> None:
    core = build(setup(nodes(a=1, k=1), policy))
    running = started_round(handle_all(core, submit(1, 2, steps=1e9)))
    (slow,) = [job for job, [(node, _)] in devices(core).items() if node == "k"]
    turns = Counter[tuple[int, str]]()
    for k in range(1, 41):
        core.handle(bind(slow, ("k", 0), time_s=k * ROUND_S))
        running = next_round(core, running, k * ROUND_S)
        turns.update((job, node) for job, [(node, _)] in devices(core).items())
    assert turns[slow, "a"] == 0
    assert turns[slow, "k"] >= 19, "what it is due on the other type it gets on its own"
    assert turns[3 - slow, "a"] >= least


def test_a_bound_job_is_in_no_pair() -> None:
    core = build(setup(nodes(a=1), "las_packed"))
    running = started_round(handle_all(core, submit(1, 2, 3, steps=1e9)))
    assert running.job_groups.min() >= 0, "jobs are packed here"
    core.handle(bind(1, ("a", 0)))
    alone = 0
    for k in range(1, 13):
        n = len(running.job_groups)
        steps, ran = np.full((n, 2), 3600.0), np.zeros((n, 2), np.int64)
        time_s = k * ROUND_S
        report = RoundEnded(time_s, running.round, steps, np.full(n, time_s), ran, np.zeros(n))
        running = started_round(handle_all(core, report))
        invariants.check(core)
        groups = running.job_groups.tolist()
        assert [1, 2] not in groups
        assert [1, 3] not in groups
        alone += [1, -1] in groups
    assert alone >= 3


def test_a_bound_job_waits_for_its_node_and_leaves_it_when_it_is_free_to() -> None:
    core = build(setup(nodes(a=1, b=1)))
    running = started_round(handle_all(core, submit(1, steps=1e9)))
    [(node, _)] = devices(core)[1]
    core.handle(bind(1, (node, 0)))
    handle_all(core, NodeLost(10.0, node))
    running = started_round(handle_all(core, round_report(running, 10.0, 0.0, outcome=2)))
    assert devices(core) == {}
    running = started_round(handle_all(core, NodeRecovered(50.0, node)))
    assert devices(core) == {1: [(node, 0)]}
    assert not running.kept.any(), "it has to start"
    handle_all(core, NodeLost(60.0, node), bind(1, time_s=60.0))
    handle_all(core, round_report(running, 60.0, 0.0, outcome=2))
    assert devices(core) == {1: [("b" if node == "a" else "a", 0)]}


def test_it_is_bound_also_to_a_node_that_it_avoids() -> None:
    core = build(setup(nodes(a=1, b=1)))
    running = started_round(handle_all(core, submit(1, steps=1e9)))
    was = devices(core)
    core.handle(bind(1, *was[1]))
    core.handle(NodesAvoided(5.0, JobId(1), (was[1][0][0],)))
    next_round(core, running, ROUND_S)
    assert devices(core) == was


def test_devices_that_are_gone_bind_to_nothing() -> None:
    core = build(setup(nodes(a=1)))
    core.handle(submit(1, steps=1e9))
    for where in ((("gone", 0),), (("a", 1),), (("a", 0), ("a", 0), ("a", 7)), (("a", -1),)):
        core.handle(bind(1, *where))
        assert core.data.bound_groups() == {}
    with pytest.raises(ProtocolError, match="job 7: cannot bind it to devices, it is not in"):
        core.handle(bind(7, ("a", 0)))


def test_gangs_are_bound_to_all_their_devices() -> None:
    core = build(setup(nodes(a=2, b=2)))
    running = started_round(handle_all(core, submit(1, 2, 3, devices=2, steps=1e9)))
    where: dict[int, set[tuple[tuple[str, int], ...]]] = {}
    for k in range(1, 25):
        for job, places in devices(core).items():
            where.setdefault(job, set()).add(tuple(places))
        bind_all(core, {1, 2, 3}, k * ROUND_S)
        running = next_round(core, running, k * ROUND_S)
        assert len(running.job_groups) == 2
    assert sorted(where) == [1, 2, 3]
    assert all(len(places) == 1 for places in where.values())


@pytest.mark.parametrize("policy", ["las_aware", "fifo_perf", "gandiva"])
def test_a_gang_that_is_scattered_gets_its_share(policy: str) -> None:
    """Planners reckon with few servers; this one's devices are on more than it needs."""
    table = Throughputs(
        (SlotType("v100"), SlotType("v100", Locality.SCATTERED)),
        job_types(("net", 1), ("net", 2)),
        np.array([[10.0, 0.0], [18.0, 18.0]]),
    )
    core = build(setup(nodes(a=1, d=2), policy, table))
    handle_all(core, submit(1, devices=2, steps=1e9))
    core.handle(bind(1, ("a", 0), ("d", 1)))
    running = started_round(handle_all(core, round_report(first_round(core), 10.0, 0.0)))
    assert devices(core) == {1: [("a", 0), ("d", 1)]}, "it is not consolidated"
    handle_all(core, submit(2, 3, 4, 5, steps=1e9, time_s=10.0))
    turns = Counter[int]()
    for k in range(1, 31):
        running = next_round(core, running, 10.0 + k * ROUND_S)
        invariants.check(core)
        turns.update(list(devices(core)))
        assert devices(core).get(1, [("a", 0), ("d", 1)]) == [("a", 0), ("d", 1)]
    assert turns[1] >= 6


def test_bindings_survive_a_change_of_hands_and_are_forgotten_with_their_jobs() -> None:
    core = build(setup(nodes(b=1)))
    running = started_round(handle_all(core, submit(1, 2, steps=1e9)))
    core.handle(bind(1, ("b", 0)))
    core = moved(core, setup(nodes(a=1, b=1)))
    assert core.data.bound_jobs.devices == {1: (("b", 0),)}
    (group,) = core.data.bound_groups().values()
    assert group.devices.tolist() == [1]
    next_round(core, running, ROUND_S)
    assert devices(core)[1] == [("b", 0)]
    assert core.data.round.in_force is not None
    handle_all(core, round_report(core.data.round.in_force, 2 * ROUND_S, 1e9))
    assert not core.data.bound_jobs


def test_the_journal_has_them() -> None:
    event = bind(3, ("a", 0), ("b", 1), time_s=2.5)
    assert decode(encode(event)) == event


@pytest.mark.parametrize("policy", ANY_POLICY)
def test_no_bound_job_ever_runs_elsewhere(policy: str) -> None:
    draw = random.Random(policy)
    core = build(setup(nodes(a=2, b=2, k=3), policy))
    bound: dict[int, list[tuple[str, int]]] = {}
    jobs, down, now_s = 0, set[str](), 0.0
    for _ in range(150):
        now_s += ROUND_S
        if draw.random() < 0.3 and jobs < 25:
            jobs += 1
            size = draw.choice([1, 1, 2])
            handle_all(core, submit(jobs, devices=size, steps=40_000, time_s=now_s))
        node = draw.choice("abk")
        if draw.random() < 0.1:
            up = node in down
            handle_all(core, (NodeRecovered if up else NodeLost)(now_s, node))
            down ^= {node}
        running = core.data.round.in_force
        if running is None or not core.data.round.active:
            handle_all(core, Stalled(now_s))
            continue
        for job, where in devices(core).items():
            assert bound.get(job, where) == where
            if job % 3 and (job in bound or draw.random() < 0.5):
                bound[job] = where
                core.handle(bind(job, *where, time_s=now_s))
        handle_all(core, round_report(running, now_s, 1800.0))
        invariants.check(core)
    assert len(bound) >= 5
