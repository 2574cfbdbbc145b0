import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.errors import ConfigError
from fairlead.estimation.fairlead_estimator import FairleadEstimator
from fairlead.estimation.messages import Measurement
from fairlead.estimation.settings import EstimatorSettings
from fairlead.model.arrays import Floats
from fairlead.model.cluster import SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

SLOTS = (SlotType("fast"), SlotType("mid"), SlotType("slow"))
RATES = {
    ("a", 1): [8.0, 4.0, 2.0],
    ("b", 1): [30.0, 15.0, 5.0],
    ("c", 1): [3.0, 2.0, 1.0],
    ("d", 1): [50.0, 20.0, 10.0],
}
TABLE = Throughputs(SLOTS, job_types(*RATES), np.array(list(RATES.values())))


def estimator(
    table: Throughputs = TABLE, devices: float = 10.0, **settings: float
) -> FairleadEstimator:
    return FairleadEstimator(EstimatorSettings(**{"explore": 0.0, **settings}), table, devices, 0)  # type: ignore[arg-type]


def job(number: int, family: str = "a", user: str = "ann") -> Job:
    return Job(JobId(number), family, 1, 1e6, tenant=user)


def report(
    rows: list[tuple[int, int, float]], partner: dict[int, int] | None = None
) -> Measurement:
    """rows: job, slot, steps/s."""
    jobs, slot, rate = (np.array(column) for column in zip(*rows, strict=True))
    with_whom = np.array([(partner or {}).get(j, -1) for j in jobs.tolist()])
    seconds = np.full(len(jobs), 360.0)
    return Measurement(
        0.0, jobs, slot, rate * seconds, seconds, with_whom, np.zeros(len(jobs), np.bool_)
    )


def rate(of: FairleadEstimator, number: int) -> Floats:
    told = of.rates(number)
    assert told is not None
    return told.posterior


def test_a_job_of_the_catalogue_goes_by_its_kind() -> None:
    mine = estimator()
    mine.submitted([job(1), job(2)], None)
    told = mine.beliefs()
    assert told is not None
    assert len(set(told.name.tolist())) == 1
    assert told.rate[0] == pytest.approx([8.0, 4.0, 2.0], rel=0.02)
    assert mine.beliefs() is None


def test_a_user_estimate_moves_little_of_what_the_table_knows_and_all_of_what_it_does_not() -> None:
    mine = estimator()
    unknown = TABLE.learned(
        job_types(
            ("x", 1),
        ),
        SLOTS,
        np.ones((1, 3)),
    )
    mine.table(unknown)
    mine.submitted([job(1), job(2, "x")], np.array([[16.0, 8.0, 4.0], [16.0, 8.0, 4.0]]))
    assert rate(mine, 1) == pytest.approx([8.0, 4.0, 2.0], rel=0.12)
    assert rate(mine, 2) == pytest.approx([16.0, 8.0, 4.0], rel=0.25)


def test_a_measurement_on_one_type_tells_of_the_others_through_their_ratio() -> None:
    mine = estimator()
    mine.table(
        TABLE.learned(
            job_types(
                ("x", 1),
            ),
            SLOTS,
            np.ones((1, 3)),
        )
    )
    mine.submitted([job(2, "x")], None)
    mine.measured(report([(2, 2, 7.0)]))
    believed = rate(mine, 2)
    assert believed[2] == pytest.approx(7.0, rel=0.02)
    assert 14.0 < believed[1] < 22.0  # others: 2 to 3 times as fast
    assert 22.0 < believed[0] < 45.0


def test_jobs_tell_of_others_of_their_kind() -> None:
    mine = estimator(known=0.0)
    mine.submitted([job(1, "b"), job(2, "b"), job(3, "b")], None)
    mine.measured(report([(1, 0, 30.0), (2, 2, 5.0)]))
    mine.ended(np.array([1, 2]))
    assert rate(mine, 3)[[0, 2]] == pytest.approx([30.0, 5.0], rel=0.1)


def test_a_type_that_nobody_knew_gets_the_ratio_that_other_jobs_show_there() -> None:
    """No table has rates on the new type; two models are measured there and elsewhere, a third follows."""
    new = (*SLOTS, SlotType("new"))
    mine = estimator(unseen=True)
    mine.table(Throughputs(new, TABLE.job_types, np.column_stack([TABLE.rate, np.zeros(4)])))
    mine.submitted([job(i, family) for i, family in enumerate("abc")], None)
    before = rate(mine, 2)[3]
    for _ in range(2):
        mine.measured(report([(0, 3, 24.0), (1, 3, 90.0)]))
    assert rate(mine, 2)[3] == pytest.approx(9.0, rel=0.35)  # three times the fast one
    assert abs(np.log(before / 9.0)) > abs(np.log(rate(mine, 2)[3] / 9.0))


def test_a_gross_lie_is_dropped_with_the_first_measurement() -> None:
    mine = estimator(known=0.0)
    mine.submitted([job(1, "a")], np.array([[800.0, 400.0, 200.0]]))
    assert rate(mine, 1)[0] > 300
    mine.measured(report([(1, 2, 2.0)]))
    assert rate(mine, 1)[0] < 20
    told = mine.rates(1)
    assert told is not None
    assert told.user_estimate[2] == pytest.approx(200.0)
    assert told.measured[2] == pytest.approx(2.0)


def test_a_user_who_always_doubles_is_seen_through() -> None:
    mine, rng = estimator(known=0.0), np.random.default_rng(1)
    for number in range(40):
        true = np.exp(rng.normal(1, 1)) * np.array([4.0, 2.0, 1.0])
        mine.table(
            mine._table.learned(
                job_types(
                    (f"f{number}", 1),
                ),
                SLOTS,
                true[None],
            )
        )
        mine.submitted([job(number, f"f{number}")], 2 * true[None])
        if number < 39:
            mine.measured(report([(number, slot, true[slot]) for slot in (number % 3,)]))
    assert rate(mine, 39) == pytest.approx(true, rel=0.25)


def test_what_changes_for_good_is_followed_and_noise_is_not() -> None:
    mine, rng = estimator(), np.random.default_rng(0)
    mine.submitted([job(1)], None)
    for _ in range(10):
        mine.measured(report([(1, 0, 8.0 * np.exp(rng.normal(0, 0.05)))]))
    assert rate(mine, 1)[0] == pytest.approx(8.0, rel=0.05)
    mine.measured(report([(1, 0, 4.0)]))
    assert rate(mine, 1)[0] == pytest.approx(4.0, rel=0.1)


def test_the_noise_of_rounds_is_learned() -> None:
    mine, rng = estimator(), np.random.default_rng(0)
    mine.submitted([job(i) for i in range(20)], None)
    for _ in range(20):
        noisy = 8.0 * np.exp(rng.normal(0, 0.15, 20))
        mine.measured(report([(i, 0, float(noisy[i])) for i in range(20)]))
    assert mine.noise.sigma == pytest.approx(0.15, rel=0.15)


def test_where_a_job_cannot_run_nothing_is_believed_unless_asked_for() -> None:
    holes = Throughputs(
        SLOTS, (*TABLE.job_types, JobType.parse("x", 1)), np.vstack([TABLE.rate, [6.0, 0.0, 2.0]])
    )
    for unseen, least in ((False, 0.0), (True, 1.0)):
        mine = estimator(holes, unseen=unseen)
        mine.submitted([job(1, "x")], None)
        assert (rate(mine, 1)[1] > 0) == (least > 0)


def test_exploration_costs_no_more_devices_than_allowed() -> None:
    mine = estimator(devices=100.0, known=0.0, explore=0.02)
    plain = estimator(devices=100.0, known=0.0)
    for one in (mine, plain):
        one.submitted([job(i, "abcd"[i % 4]) for i in range(50)], None)
        one.beliefs()
        one.measured(report([(0, 0, 8.0)]))
        one.beliefs()
    assert 1 <= (mine.jobs.beliefs.explored_slot >= 0).sum() <= 2
    assert not (plain.jobs.beliefs.explored_slot >= 0).any()


def test_only_what_is_new_is_announced() -> None:
    mine = estimator()
    mine.submitted([job(1), job(2)], None)
    first = mine.beliefs()
    assert first is not None
    mine.measured(report([(1, 0, 8.1)]))
    assert mine.beliefs() is None  # as believed
    mine.measured(report([(1, 1, 6.0)]))
    told = mine.beliefs()
    assert told is not None
    assert 1 in told.jobs.tolist()
    named = dict(zip(told.belief.tolist(), told.rate, strict=True))
    mine_now = named[int(told.name[told.jobs.tolist().index(1)])]
    assert mine_now[1] == pytest.approx(6.0, rel=0.1)


def test_what_was_learned_is_kept_over_a_restart_and_over_other_slot_types() -> None:
    mine = estimator(known=0.0)
    mine.submitted([job(1, "b"), job(2, "a")], None)
    mine.measured(report([(1, 0, 30.0), (2, 2, 2.0)]))
    again = estimator(known=0.0)
    again.load_state_dict(mine.state_dict())
    again.submitted([job(9, "b")], None)
    assert rate(again, 9)[0] == pytest.approx(30.0, rel=0.05)
    fewer = TABLE.columns(SLOTS[:2])
    again.table(fewer)
    told = again.beliefs()
    assert told is not None
    assert told.rate.shape[1] == 2
    assert told.rate[0, 0] == pytest.approx(30.0, rel=0.05)


def test_a_job_that_adapts_begins_anew_as_its_new_kind() -> None:
    rows = np.array([[8.0, 4.0, 2.0], [4.0, 2.0, 1.0]])
    kinds = (("n (batch size 16)", 1), ("n (batch size 32)", 1))
    mine = estimator(Throughputs(SLOTS, job_types(*kinds), rows))
    mine.submitted([job(1, "n (batch size 16)")], None)
    mine.measured(report([(1, 0, 5.0)]))
    mine.adapted(np.array([1]), np.array([32]))
    assert rate(mine, 1)[0] == pytest.approx(4.0, rel=0.35)


def test_two_rounds_on_each_type_are_enough_whatever_users_say() -> None:
    rng = np.random.default_rng(0)
    families = [f"f{i}" for i in range(40)]
    speed = np.exp(
        rng.normal(1, 1.5, (40, 1)) + np.array([2.0, 1.0, 0.0]) + rng.normal(0, 0.3, (40, 3))
    )
    mine = estimator(
        Throughputs(SLOTS, tuple(JobType.parse(f, 1) for f in families), speed), known=0.0
    )
    exaggerating = np.where(rng.random(20) < 0.3, 2.0, 1.0)
    jobs = [job(i, families[i], f"u{i % 20}") for i in range(40)]
    user_estimates = (
        speed * np.exp(rng.normal(0, 0.7, (40, 3))) * exaggerating[np.arange(40) % 20, None]
    )
    mine.submitted(jobs, user_estimates)
    before = np.median(np.abs(np.array([rate(mine, i) for i in range(40)]) / speed - 1))
    for _ in range(2):
        for slot in range(3):
            noisy = speed[:, slot] * np.exp(rng.normal(0, 0.05, 40))
            mine.measured(report([(i, slot, float(noisy[i])) for i in range(40)]))
    after = np.array([rate(mine, i) for i in range(40)])
    assert np.median(np.abs(after / speed - 1)) < 0.1 < before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"known": "2"}, "known must be a number from 0 to 1, got '2'"),
        ({"explore": "x"}, "explore must be a number"),
        ({"unseen": "yes"}, "unseen takes no value"),
        ({"rank": "1"}, "'rank' is not an option"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EstimatorSettings.of(options)


def test_a_right_user_estimate_of_a_job_that_brings_rates_is_not_made_worse_by_others_of_its_name() -> (
    None
):
    """Jobs without a family were all taken for one kind: 20 was believed to be 7.3, then 4.3."""
    slow, fast = "job [0123abcd]", "job [4567cdef]"
    table = Throughputs(
        TABLE.slots,
        (*TABLE.job_types, JobType.parse(slow, 1), JobType.parse(fast, 1)),
        np.vstack([TABLE.rate, np.full((2, len(TABLE.slots)), 1.0)]),
    )
    believed = estimator()
    believed.table(table)
    for number in range(3):
        believed.submitted([job(number, slow)], np.full((1, len(TABLE.slots)), 4.3))
        for _ in range(4):
            believed.measured(report([(number, 0, 4.3)]))
    believed.submitted([job(9, fast)], np.full((1, len(TABLE.slots)), 20.0))
    assert rate(believed, 9) == pytest.approx(20.0, rel=0.1)
    believed.submitted([job(10, slow)], np.full((1, len(TABLE.slots)), 4.3))
    assert rate(believed, 10)[0] == pytest.approx(4.3, rel=0.05)


def test_rates_that_a_job_brings_outweigh_the_table_for_its_family() -> None:
    own = "a [0123abcd]"
    table = Throughputs(
        TABLE.slots,
        (*TABLE.job_types, JobType.parse(own, 1)),
        np.vstack([TABLE.rate, 5.0 * TABLE.rate[:1]]),
    )
    believed = estimator()
    believed.table(table)
    believed.submitted([job(1, own)], 5.0 * TABLE.rate[:1])
    assert rate(believed, 1) == pytest.approx(5.0 * TABLE.rate[0], rel=0.15)
