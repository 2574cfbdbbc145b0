"""Moves between accelerator types that gain nothing are not made."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.job_types import job_types
from tests.scheduler.core.test_checkpoint import devices, setup
from tests.scheduler.core.test_scheduler import handle_all, round_report, started_round, submit

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.cluster import Cluster, Node, SlotType
from fairlead.model.events import JobsCancelled, JobsPaused, JobsSubmitted, NodeLost
from fairlead.model.job import Job, JobId
from fairlead.model.plan import BasePolicy
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.setup import build

TYPES = ("k80", "p100", "v100")
POLICIES = ("finish_time_fairness_perf", "las_aware", "las")


def three_types(policy: str, rates: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Scheduler:
    cluster = Cluster(tuple(Node(name, name, 2) for name in TYPES))
    slots = tuple(SlotType(name) for name in TYPES)
    return build(
        setup(
            cluster,
            policy,
            Throughputs(
                slots,
                job_types(
                    ("net", 1),
                ),
                np.array([rates]),
                None,
            ),
        )
    )


def places(
    core: Scheduler, rounds: int, *jobs: int, cost_s: float = 1.0
) -> list[dict[int, list[tuple[str, int]]]]:
    """Where jobs are, round by round."""
    current, found = started_round(handle_all(core, submit(*jobs))), []
    for number in range(1, rounds + 1):
        found.append(devices(core))
        core.data.ledger.jobs.restart_s[:] = cost_s
        current = started_round(handle_all(core, round_report(current, 360.0 * number, 360.0)))
        invariants.check(core)
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("jobs", [(1,), (1, 2, 3), (1, 2, 3, 4, 5, 6)])
def test_jobs_that_all_run_stay_where_they_are_if_types_are_alike(
    policy: str, jobs: tuple[int, ...]
) -> None:
    first, *others = places(three_types(policy), 12, *jobs)
    assert all(other == first for other in others)


ARRIVING = ("las_aware", "las", "makespan_aware", "nash", "water_filling_aware", "srtf")


@pytest.mark.parametrize("policy", ARRIVING)
@pytest.mark.parametrize("arrivals", ["a bb b", "a aa a", "b a a b", "a b ab ab"])
def test_jobs_stay_while_others_come_and_all_run(policy: str, arrivals: str) -> None:
    """Two kinds of jobs, each as fast on every type. Whoever comes takes what is free."""
    nodes = (Node("one", "v100", 2), Node("two", "k80", 2), Node("three", "p100", 2))
    slots = tuple(SlotType(name) for name in TYPES)
    kinds = job_types(("a", 1), ("b", 1))
    rates = Throughputs(slots, kinds, np.array([[1.0] * 3, [4.0] * 3]), None)
    core = build(setup(Cluster(nodes), policy, rates))
    where: dict[int, list[tuple[str, int]]] = {}
    current, n = None, 0
    for number, batch in enumerate(arrivals.split() + [""] * 6):
        jobs = tuple(Job(JobId(n + k), name, 1, 1e7) for k, name in enumerate(batch))
        n += len(jobs)
        if jobs:
            commands = handle_all(core, JobsSubmitted(360.0 * number, jobs))
            current = current or started_round(commands)
        assert current is not None
        core.data.ledger.jobs.restart_s[:] = 1.0
        current = started_round(
            handle_all(core, round_report(current, 360.0 * (number + 1), 360.0))
        )
        now = devices(core)
        assert {job: now[job] for job in where} == where
        where = now
        invariants.check(core)
    assert len(where) == n


@dataclass
class FirstOnK80(BasePolicy):
    """The first job has all its time on the k80, the others have theirs on v100."""

    weighs_prices: bool
    name: str = "first_on_k80"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        share = np.zeros((len(snapshot.jobs), 2))
        share[0, 0], share[1:, 1] = 1.0, 1.0
        return Allocation(snapshot.jobs[:, None].copy(), share, SolveReport("closed-form"))


@pytest.mark.parametrize("weighs_prices", [False, True])
def test_only_a_policy_that_weighs_prices_moves_a_job_to_a_cheaper_device(
    weighs_prices: bool,
) -> None:
    """Its shares have it there, as one of many optima may have."""
    nodes = (Node("one", "v100", 1), Node("two", "v100", 1), Node("three", "k80", 1))
    rates = Throughputs(
        (SlotType("k80"), SlotType("v100")), job_types(("a", 1)), np.ones((1, 2)), None
    )
    cluster = Cluster(nodes, {"v100": 2.48, "k80": 0.45})
    core = build(setup(cluster, "first_on_k80", rates), FirstOnK80(weighs_prices))
    jobs = tuple(Job(JobId(i), "a", 1, 1e7) for i in range(3))
    current = started_round(handle_all(core, JobsSubmitted(0.0, jobs)))
    core.data.ledger.jobs.restart_s[:] = 1.0
    before = devices(core)
    assert before[0] == [("three", 0)]
    handle_all(core, JobsPaused(200.0, np.array([0]), True))
    handle_all(core, round_report(current, 360.0, 360.0))
    assert devices(core) == {1: before[0] if weighs_prices else before[1], 2: before[2]}


@pytest.mark.parametrize("policy", ["las", "las_aware"])
@pytest.mark.parametrize("lost", range(4))
def test_who_goes_on_after_the_loss_of_a_node_stays_where_it_is(policy: str, lost: int) -> None:
    """Two jobs more than devices, each as fast on every type: they take turns, and nobody moves to another
    type because it is owed time there."""
    nodes = tuple(Node(f"n{i}", ("v100", "k80")[i % 2], 2) for i in range(4))
    slots = (SlotType("v100"), SlotType("k80"))
    rates = Throughputs(slots, job_types(("a", 1)), np.ones((1, 2)), None)
    core = build(setup(Cluster(nodes), policy, rates))
    jobs = tuple(Job(JobId(i), "a", 1, 1e7) for i in range(8))
    current = started_round(handle_all(core, JobsSubmitted(0.0, jobs)))
    core.data.ledger.jobs.restart_s[:] = 1.0
    rounds = dict.fromkeys(range(8), 0)
    handle_all(core, NodeLost(180.0, f"n{lost}"))
    current = started_round(handle_all(core, round_report(current, 180.0, 180.0)))
    for number in range(1, 25):
        before = devices(core)
        current = started_round(
            handle_all(core, round_report(current, 180.0 + 360.0 * number, 360.0))
        )
        now = devices(core)
        assert {job: now[job] for job in now.keys() & before.keys()} == {
            job: before[job] for job in now.keys() & before.keys()
        }
        for job in now:
            rounds[job] += 1
        invariants.check(core)
    assert max(rounds.values()) - min(rounds.values()) <= 2, "all have had as much"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_no_job_of_any_size_moves_to_another_type_for_nothing(policy: str, seed: int) -> None:
    """Jobs of one and two devices come and go, as fast on every type. Some wait."""
    draw = np.random.default_rng(seed)
    nodes = tuple(Node(f"n{i}", TYPES[i % 3], int(draw.integers(1, 4))) for i in range(4))
    slots = tuple(SlotType(name) for name in TYPES)
    rates = Throughputs(slots, job_types(("a", 1), ("a", 2)), np.ones((2, 3)), None)
    core = build(setup(Cluster(nodes), policy, rates))
    size: dict[int, int] = {}
    for number in range(20):
        time_s = 360.0 * number
        if number == 0 or draw.random() < 0.4:
            new = {len(size) + k: int(draw.choice([1, 1, 2])) for k in range(2)}
            size |= new
            jobs = tuple(Job(JobId(job), "a", wide, 1e7) for job, wide in new.items())
            handle_all(core, JobsSubmitted(time_s, jobs))
        elif draw.random() < 0.2 and len(core.data.ledger.jobs.id) > 1:
            handle_all(
                core, JobsCancelled(time_s, (JobId(int(draw.choice(core.data.ledger.jobs.id))),))
            )
        core.data.ledger.jobs.restart_s[:] = 1.0
        before, current = devices(core), core.data.round.in_force
        assert current is not None
        handle_all(core, round_report(current, time_s + 360.0, 360.0))
        invariants.check(core)
        now = devices(core)
        waiting = [size[int(job)] for job in core.data.ledger.jobs.id if job not in now]
        for job in before.keys() & now.keys():
            assert not _moved_for_nothing(core, job, before, now, waiting), (number, job)


Places = dict[int, list[tuple[str, int]]]


def _moved_for_nothing(
    core: Scheduler, job: int, before: Places, now: Places, waiting: list[int]
) -> bool:
    """Is it on another type, and could be where it was with as many devices of each type in use? waiting:
    devices of each job that waits."""
    cluster = core.data.cluster
    type_of = {node.name: node.accelerator for node in cluster.nodes}
    old_type, new_type = (type_of[where[job][0][0]] for where in (before, now))
    if old_type == new_type:
        return False
    was = set(before[job])
    others = [set(where) for where in now.values() if was & set(where)]
    if not others:
        have = sum(node.devices for node in cluster.nodes if node.accelerator == new_type)
        used = sum(len(where) for where in now.values() if type_of[where[0][0]] == new_type)
        room = have - used + len(was)
        return all(wide > room for wide in waiting)
    return set.union(*others) == was


def test_what_a_job_has_counts_for_the_share_that_it_stands_for() -> None:
    core = three_types("finish_time_fairness_perf")
    places(core, 12, 1)
    received = (
        core.data.ledger.groups.received_s.sum() + np.abs(core.data.ledger.groups.deficit_s).sum()
    )
    assert received > 0
    owed = core.data.ledger.groups.deficit_s + 12 * 360.0 * core.data.ledger.groups.share
    assert (owed - core.data.ledger.groups.received_s).max() <= 360.0, "no debt grows up"


def test_jobs_take_turns_where_one_waits() -> None:
    core = three_types("las")
    rounds = places(core, 40, *range(1, 8))
    assert {job for where in rounds for job in where} == set(range(1, 8))


def test_a_job_moves_to_where_it_is_faster() -> None:
    core = three_types("finish_time_fairness_perf", (1.0, 1.0, 3.0))
    assert places(core, 4, 1)[-1] == {1: [("v100", 0)]}
