"""What the core is told to believe of single jobs, and of pairs of them."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.job_types import job_types
from tests.scheduler.core import test_checkpoint
from tests.scheduler.core.test_checkpoint import (
    TWO,
    moved,
    nodes,
    setup,
)
from tests.scheduler.core.test_scheduler import handle_all, started_round
from tests.small import core

from fairlead.errors import ProtocolError
from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.cluster import SlotType
from fairlead.model.events import (
    JobsPaused,
    JobsSubmitted,
    JobTypesLearned,
    RatesLearned,
    RequirementsChanged,
    RoundEnded,
)
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.plan import Change
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.core.snapshots import make_snapshot
from fairlead.scheduler.mechanism.settings import GAVEL

NET = (JobType("net"),)


@pytest.fixture(autouse=True, params=["stated", "by class"])
def pairs_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever way the table keeps rates of pairs, what is believed is the same."""
    if request.param == "by class":
        by_class = replace(TWO, colocated_rate=None, classed=TWO.pair_rates_by_class())
        monkeypatch.setattr(sys.modules[__name__], "TWO", by_class)
        monkeypatch.setattr(test_checkpoint, "TWO", by_class)


def scheduler(policy: str = "las_packed") -> Scheduler:
    return core(nodes(a=2, k=2), TWO, policy)


def submit(*jobs: int, time_s: float = 0.0) -> JobsSubmitted:
    return JobsSubmitted(time_s, tuple(Job(JobId(j), "net", 1, 1e6) for j in jobs))


def learned(
    jobs: dict[int, int],
    beliefs: dict[int, list[float]],
    pairs: dict[tuple[int, int], list[list[float]]] | None = None,
    time_s: float = 0.0,
    **more: Any,
) -> RatesLearned:
    pairs = pairs or {}
    values: dict[str, Any] = {
        "jobs": np.array(list(jobs), np.int64),
        "name": np.array(list(jobs.values()), np.int64),
        "belief": np.array(list(beliefs), np.int64),
        "job_types": NET,
        "job_type": np.zeros(len(beliefs), np.int64),
        "rate": np.array(list(beliefs.values()), np.float64).reshape(-1, 2),
        "pair": np.array(list(pairs), np.int64).reshape(-1, 2),
        "colocated_rate": np.array(list(pairs.values()), np.float64).reshape(-1, 2, 2),
    }
    return RatesLearned(time_s=time_s, **(values | more))


def alone(s: Scheduler, job: int) -> list[float]:
    """What policies are shown."""
    shown = make_snapshot(s.data, s.data.now_s)
    at = shown.jobs.tolist().index(job)
    assert shown.solo_rate[at].tolist() == shown.job_type_rate[shown.job_type[at]].tolist()
    return list(shown.solo_rate[at].tolist())


def colocated_rate(s: Scheduler, one: int, two: int) -> list[float]:
    shown = make_snapshot(s.data, s.data.now_s)
    assert shown.colocated_rate is not None
    a, b = (shown.job_type[shown.jobs.tolist().index(job)] for job in (one, two))
    return list(shown.colocated_rate[a, b].tolist())


def test_jobs_go_by_what_is_believed_of_them_from_their_submission_on() -> None:
    s = scheduler()
    assert s.handle(learned({1: 0}, {0: [2.0, 20.0]})) == []
    handle_all(s, submit(1, 2))
    assert alone(s, 1) == [2.0, 20.0]
    assert alone(s, 2) == [4.0, 10.0]
    handle_all(s, learned({1: -1, 2: 0}, {}, time_s=1.0))
    assert alone(s, 1) == [4.0, 10.0]
    assert alone(s, 2) == [2.0, 20.0]


def test_all_jobs_of_a_belief_follow_it() -> None:
    s = scheduler()
    s.handle(learned({1: 0, 2: 0}, {0: [2.0, 20.0]}))
    handle_all(s, submit(1, 2))
    s.data.planning.changed = Change.NOTHING
    handle_all(s, learned({}, {0: [1.0, 5.0]}, time_s=1.0))
    assert alone(s, 1) == alone(s, 2) == [1.0, 5.0]
    assert s.data.planning.changed & Change.REQUIREMENTS
    assert s.data.ledger.jobs.job_class[0] == s.data.ledger.jobs.job_class[1]


def test_a_belief_changes_what_policies_do() -> None:
    s = core(nodes(a=1, k=1), TWO, "max_sum_throughput_perf")
    s.handle(learned({1: 0}, {0: [0.0, 30.0]}))
    assert started_round(handle_all(s, submit(1, 2))).slot.tolist() in ([1, 0], [0, 1])
    jobs = s.data.round.in_force
    assert jobs is not None
    where = dict(zip(jobs.job_groups[:, 0].tolist(), jobs.slot.tolist(), strict=True))
    assert where == {1: 1, 2: 0}


def test_pairs_that_nobody_names_follow_from_those_of_their_kinds() -> None:
    s = scheduler()
    s.handle(learned({1: 0, 2: 1}, {0: [2.0, 20.0], 1: [4.0, 0.0]}))
    handle_all(s, submit(1, 2, 3))
    assert colocated_rate(s, 3, 3) == [3.0, 8.0]
    assert colocated_rate(s, 1, 3) == [1.5, 16.0]
    assert colocated_rate(s, 3, 1) == [3.0, 8.0]
    nowhere = (
        16.0 if TWO.classed is None else 0.0
    )  # by class, neither runs where the other does not
    assert colocated_rate(s, 1, 2) == [1.5, nowhere]
    assert colocated_rate(s, 2, 1) == [3.0, 0.0]


def test_what_is_said_of_a_pair_holds_until_one_of_it_is_another() -> None:
    s = scheduler()
    both = {0: [2.0, 20.0], 1: [4.0, 10.0]}
    s.handle(learned({1: 0, 2: 1}, both, {(1, 0): [[1.0, 1.5], [5.0, 6.0]]}))
    handle_all(s, submit(1, 2, 3))
    assert (colocated_rate(s, 2, 1), colocated_rate(s, 1, 2)) == ([1.0, 5.0], [1.5, 6.0])
    handle_all(s, learned({}, {2: [1.0, 1.0]}))
    assert colocated_rate(s, 2, 1) == [1.0, 5.0]
    handle_all(s, learned({}, {}, {(0, 1): [[0.0, 0.0], [9.0, 7.0]]}))
    assert (colocated_rate(s, 2, 1), colocated_rate(s, 1, 2)) == ([0.0, 7.0], [0.0, 9.0])
    handle_all(s, learned({}, {1: [4.0, 10.0]}))
    assert colocated_rate(s, 2, 1) == [3.0, 8.0]


def test_units_that_are_pairs_follow() -> None:
    s = core(nodes(a=2, k=2), TWO, "las_packed", GAVEL)
    handle_all(s, submit(1, 2))
    s.handle(learned({1: 0, 2: 1}, {0: [2.0, 20.0], 1: [4.0, 10.0]}, {(0, 1): [[1, 2], [3, 4]]}))
    (pair,) = np.flatnonzero(s.data.ledger.groups.members[:, 1] >= 0).tolist()
    assert s.data.ledger.groups.rate[pair].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_policies_that_do_not_pack_keep_no_pairs() -> None:
    s = scheduler("las_aware")
    assert s.data.beliefs.known.pair_rates is None
    s.handle(learned({1: 0}, {0: [2.0, 20.0]}))
    handle_all(s, submit(1, 2))
    assert s.data.throughputs.pair_rates is None
    assert s.data.beliefs.known.pair_rates is None
    assert alone(s, 1) == [2.0, 20.0]


def test_held_jobs_follow_too() -> None:
    s = scheduler()
    handle_all(s, submit(1), JobsPaused(0.0, np.array([1]), True))
    round_ = s.data.round.in_force
    assert round_ is not None
    n = len(round_.job_groups)
    steps, outcome = np.zeros(round_.job_groups.shape), np.zeros(round_.job_groups.shape, np.int64)
    handle_all(s, RoundEnded(1.0, round_.round, steps, np.full(n, 1.0), outcome, np.zeros(n)))
    handle_all(s, learned({1: 3}, {3: [2.0, 20.0]}, time_s=1.0))
    handle_all(s, JobsPaused(2.0, np.array([1]), False))
    assert alone(s, 1) == [2.0, 20.0]


def test_kinds_that_are_learned_later_leave_beliefs_as_they_are() -> None:
    s = scheduler()
    s.handle(learned({1: 0}, {0: [2.0, 20.0]}))
    handle_all(s, submit(1, 2))
    slots = (SlotType("k80"), SlotType("v100"))
    handle_all(
        s,
        JobTypesLearned(
            1.0, job_types(("own", 1), ("net", 1)), slots, np.array([[7.0, 7.0], [8.0, 5.0]])
        ),
    )
    handle_all(s, JobsSubmitted(1.0, (Job(JobId(3), "own", 1, 1e6),)))
    assert [alone(s, job) for job in (1, 2, 3)] == [[2.0, 20.0], [8.0, 5.0], [7.0, 7.0]]
    assert colocated_rate(s, 1, 2) == [0.75, 32.0]  # as much slower as the table now has it


def test_a_job_that_adapts_goes_by_its_new_kind_until_something_is_said() -> None:
    small, large = job_types(("net (batch size 8)", 1), ("net (batch size 16)", 1))
    table = Throughputs(
        (SlotType("v100"),),
        (small, large),
        np.array([[10.0], [6.0]]),
    )
    s = core(nodes(a=1), table, "las_aware")
    adaptation = Adaptation(Mode.SCHEDULE, 80, 1000.0, ((0, 8), (10, 16)))
    s.handle(
        learned(
            {1: 0},
            {0: [1.0, 1.0]},
            job_types=(small,),
            rate=np.array([[9.0]]),
            colocated_rate=np.zeros((0, 1, 2)),
        )
    )
    handle_all(
        s, JobsSubmitted(0.0, (Job(JobId(1), small.name, 1, 10_000.0, adaptation=adaptation),))
    )
    change = (np.array([1]), np.array([16]), np.array([5000.0]), np.array([50.0]))
    nothing = np.zeros((0, 1, 2))
    for message, rate in ((None, 6.0), (5.5, 5.5)):
        round_ = s.data.round.in_force
        assert round_ is not None
        s.handle(RequirementsChanged(round_.time_s + 360.0, *change))
        if message is not None:
            handle_all(
                s,
                learned(
                    {1: 4},
                    {4: [0, 0]},
                    job_types=(large,),
                    rate=np.array([[message]]),
                    colocated_rate=nothing,
                ),
            )
        time_s = round_.time_s + 360.0
        report = (
            np.full((1, 1), 10.0),
            np.array([time_s]),
            np.zeros((1, 1), np.int64),
            np.zeros(1),
        )
        handle_all(s, RoundEnded(time_s, round_.round, *report))
        assert alone(s, 1) == [rate]


def test_another_scheduler_takes_beliefs_over() -> None:
    s = scheduler()
    s.handle(learned({1: 0, 2: 5}, {0: [2.0, 20.0], 5: [1.0, 9.0]}, {(0, 5): [[1, 2], [3, 4]]}))
    handle_all(s, submit(1, 2, 3), learned({7: 5}, {}))
    new = moved(s, setup(nodes(a=2, k=2), "las_packed"))
    for other in (1, 2, 3):
        assert alone(new, other) == alone(s, other)
        for one in (1, 2, 3):
            assert colocated_rate(new, one, other) == colocated_rate(s, one, other)
    handle_all(new, submit(7, time_s=1.0))
    assert alone(new, 7) == [1.0, 9.0]
    again = take_checkpoint(new.data)
    assert again.beliefs is not None
    assert again.beliefs.number.tolist() == [0, 5]


def test_beliefs_that_no_job_goes_by_are_not_handed_on() -> None:
    """Their job types need not be in the other's table."""
    s = scheduler()
    slots = (SlotType("k80"), SlotType("v100"))
    handle_all(
        s,
        JobTypesLearned(
            0.0,
            job_types(
                ("own", 1),
            ),
            slots,
            np.array([[7.0, 7.0]]),
        ),
    )
    s.handle(learned({1: 0, 2: 1}, {0: [1.0, 1.0], 1: [2.0, 2.0]}))
    s.handle(learned({}, {2: [3.0, 3.0]}, job_types=(JobType("own"),)))
    handle_all(s, submit(1, 2))
    new = moved(s, setup(nodes(a=2, k=2), "las_packed"))
    assert sorted(new.data.beliefs.row) == [0, 1]
    assert [alone(new, job) for job in (1, 2)] == [[1.0, 1.0], [2.0, 2.0]]


def test_beliefs_outlive_a_change_of_the_cluster_and_of_the_policy() -> None:
    """On slot types of which nothing was believed a job is as its job type."""
    small = core(nodes(a=2), TWO, "las_aware")
    small.handle(
        learned({1: 0}, {0: [0, 0]}, rate=np.array([[20.0]]), colocated_rate=np.zeros((0, 1, 2)))
    )
    handle_all(small, submit(1, 2))
    new = moved(small, setup(nodes(a=2, k=2), "las_packed"))
    assert alone(new, 1) == [4.0, 20.0]
    assert colocated_rate(new, 1, 2) == [3.0, 16.0]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (learned({1: 0}, {}), "belief 0: no event has said what it is"),
        (learned({}, {0: [1.0, -1.0]}), "a rate must be a number >= 0, got -1.0"),
        (learned({}, {0: [1.0, np.nan]}), "a rate must be a number >= 0, got nan"),
        (learned({}, {-1: [1.0, 1.0]}), "must be >= 0 and differ"),
        (
            learned({}, {0: [1.0, 1.0]}, job_types=(JobType("who"),)),
            "no rate for 'who' at scale factor 1",
        ),
        (learned({}, {0: [1.0, 1.0]}, rate=np.ones((1, 3))), r"rate has shape \(1, 3\)"),
        (learned({}, {}, {(0, 1): [[1, 1], [1, 1]]}), "belief 0: no event has said"),
    ],
)
def test_beliefs_that_cannot_be_are_refused(event: RatesLearned, words: str) -> None:
    s = scheduler()
    handle_all(s, submit(1))
    before = alone(s, 1)
    with pytest.raises(ProtocolError, match=words):
        s.handle(event)
    assert alone(s, 1) == before
    invariants.check(s)
