import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.estimation.fairlead_estimator import FairleadEstimator
from fairlead.estimation.messages import Measurement
from fairlead.estimation.pairs import Pairs
from fairlead.estimation.settings import EstimatorSettings
from fairlead.model.arrays import Floats
from fairlead.model.cluster import SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

SLOTS = (SlotType("x"), SlotType("y"))
N = 8


def truth(seed: int = 0) -> Throughputs:
    """Eight kinds that slow each other by their sensitivity and pressure, and a little by chance."""
    rng = np.random.default_rng(seed)
    suffers, presses = -rng.uniform(0, 0.5, N), -rng.uniform(0, 0.5, N)
    log = suffers[:, None, None] + presses[None, :, None] + rng.normal(-0.1, 0.03, (N, N, 2))
    rate = np.exp(rng.normal(1, 1, (N, 2)))
    pair = rate[:, None, :] * np.exp(np.minimum(log, -0.01))
    return Throughputs(SLOTS, tuple(JobType.parse(f"k{i}", 1) for i in range(N)), rate, pair)


def slowing(table: Throughputs, a: int, b: int) -> Floats:
    assert table.colocated_rate is not None
    got: Floats = np.log(table.colocated_rate[a, b] / table.rate[a])
    return got


def test_what_the_table_has_is_believed_and_what_was_measured_outweighs_it() -> None:
    table = truth()
    pairs = Pairs(table, table)
    one, two = pairs.rows([JobType.parse("k0", 1)], [JobType.parse("k1", 1)])
    assert pairs.slowing(one, two)[0][0] == pytest.approx(slowing(table, 0, 1))
    for _ in range(5):
        pairs.learn(one, two, np.array([1]), np.array([-1.0]), np.array([0.0025]))
    mean, sd = pairs.slowing(one, two)
    assert mean[0, 1] == pytest.approx(-1.0, abs=0.12)
    assert mean[0, 0] == pytest.approx(slowing(table, 0, 1)[0])
    assert sd[0, 1] < sd[0, 0]


def test_a_kind_that_was_measured_with_a_few_is_completed_for_all() -> None:
    """Of the last kind the table knows nothing; it was seen beside three others, and they beside it."""
    table = truth()
    keep = np.arange(N - 1)
    assert table.colocated_rate is not None
    known = Throughputs(
        SLOTS,
        table.job_types[:-1],
        table.rate[:-1],
        table.colocated_rate[np.ix_(keep, keep)].copy(),
    )
    pairs = Pairs(table, known)
    number, _ = pairs.rows(list(table.job_types), [])
    mine, others = np.repeat(number[-1], 4), number[3:-1]
    before = pairs.slowing(mine, others)[1]
    for b in range(3):
        for first, second in ((N - 1, b), (b, N - 1)):
            for slot in range(2):
                seen = slowing(table, first, second)[slot]
                at = (number[[first]], number[[second]], np.array([slot]))
                pairs.learn(*at, np.array([seen]), np.array([0.0025]))
    mean, sd = pairs.slowing(mine, others)
    true = np.array([slowing(table, N - 1, b) for b in range(3, N - 1)])
    assert np.abs(mean - true).mean() < 0.1
    assert (sd < before).all()
    assert (np.abs(mean - true) < 4 * sd).all()


def test_an_attempt_that_failed_is_not_made_again() -> None:
    table = truth()
    pairs = Pairs(table, table)
    one, two = pairs.rows([JobType.parse("k0", 1)], [JobType.parse("k1", 1)])
    pairs.refuse(one, two, np.array([0]))
    names, rate = np.array([0, 2]), table.rate[:2]
    pair, colocated_rate = pairs.announce(
        names, [JobType.parse("k0", 1), JobType.parse("k1", 1)], rate, np.zeros(0, np.int64)
    )
    assert pair.tolist() == [[0, 2]]
    assert colocated_rate[0, 0].tolist() == [0.0, 0.0]
    known = table.colocated_rate
    assert known is not None
    assert colocated_rate[0, 1] == pytest.approx([known[0, 1, 1], known[1, 0, 1]])
    again = pairs.announce(
        names, [JobType.parse("k0", 1), JobType.parse("k1", 1)], rate, np.zeros(0, np.int64)
    )
    assert not len(again[0])


def test_measured_pairs_reach_the_core() -> None:
    table = truth()
    mine = FairleadEstimator(EstimatorSettings(explore=0.0), table, 4.0, 0)
    jobs = [Job(JobId(i), f"k{i}", 1, 1e6) for i in range(3)]
    mine.submitted(jobs, None)
    mine.beliefs()
    seconds, none = np.full(2, 360.0), np.zeros(2, np.bool_)
    slot = np.zeros(2, np.int64)
    for i in range(3):
        alone = np.array([table.rate[i, 0] * 360.0])
        one = (np.array([i]), slot[:1], alone, seconds[:1], np.array([-1]), none[:1])
        mine.measured(Measurement(0.0, *one))
    half = table.rate[:2, 0] * 360.0 * 0.4
    for _ in range(4):
        mine.measured(
            Measurement(0.0, np.array([0, 1]), slot, half, seconds, np.array([1, 0]), none)
        )
    told = mine.beliefs()
    assert told is not None
    names = {int(n) for n in mine.jobs.beliefs.name[:2]}
    at = [i for i, pair in enumerate(told.pair.tolist()) if set(pair) == names]
    assert len(at) == 1
    colocated_rate = told.colocated_rate[at[0], 0]
    assert sorted(colocated_rate) == pytest.approx(sorted(table.rate[:2, 0] * 0.4), rel=0.15)


def test_a_table_without_pairs_says_nothing() -> None:
    table = Throughputs(
        SLOTS,
        job_types(
            ("k0", 1),
        ),
        np.ones((1, 2)),
    )
    pairs = Pairs(table, table)
    one, _ = pairs.rows([JobType.parse("k0", 1)], [])
    pairs.learn(one, one, np.array([0]), np.array([-1.0]), np.array([0.01]))
    assert not len(
        pairs.announce(np.array([0]), [JobType.parse("k0", 1)], np.ones((1, 2)), np.array([0]))[0]
    )
