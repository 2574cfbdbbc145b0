import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.estimation.user_bias import (
    START_SD,
    TrustingEstimator,
    UserBias,
)
from fairlead.model.cluster import SlotType
from fairlead.model.job import Job, JobId
from fairlead.model.throughputs import Throughputs

ONE = np.zeros(1, np.int64)


def sd(users: UserBias, row: int = 0) -> float:
    shared, own = users.variance(np.array([row]))
    return float(np.sqrt(shared + own)[0])


def test_an_unknown_user_is_off_by_what_is_usual() -> None:
    users = UserBias()
    assert users.row("ann") == 0
    assert sd(users) == pytest.approx(START_SD)
    assert users.bias(ONE)[0] == 0.0


def test_bias_and_spread_of_a_user_are_learned() -> None:
    users, rng = UserBias(), np.random.default_rng(0)
    for name in ("careful", "exaggerates"):
        users.row(name)
    for _ in range(60):
        users.learn(np.array([0, 1]), np.array([rng.normal(0, 0.1), np.log(2)]), np.ones(2))
    assert users.bias(np.arange(2)) == pytest.approx([0.0, np.log(2)], abs=0.1)
    assert sd(users, 0) < 0.3


def test_many_user_estimates_at_once_are_worth_the_same_as_one_after_the_other() -> None:
    together, apart, off = UserBias(), UserBias(), np.array([0.3, -0.2, 0.9])
    for users in (together, apart):
        users.row("ann")
    together.learn(np.zeros(3, np.int64), off, np.ones(3))
    for one in off:
        apart.learn(ONE, np.array([one]), np.ones(1))
    assert together.state_dict()[0] == pytest.approx(apart.state_dict()[0])


def test_a_user_estimate_that_is_grossly_off_is_doubted() -> None:
    users = UserBias()
    users.row("ann")
    assert users.learn(ONE, np.array([4.0]), np.ones(1)).tolist() == [True]
    assert users.learn(ONE, np.array([1.0]), np.ones(1)).tolist() == [False]


def test_what_was_kept_is_taken_up() -> None:
    users, again = UserBias(), UserBias()
    users.row("ann")
    users.learn(ONE, np.array([0.5]), np.ones(1))
    again.load_state_dict(*users.state_dict())
    assert again.row("ann") == 0
    assert again.bias(ONE) == users.bias(ONE)


def test_whoever_trusts_believes_users_but_for_where_a_job_cannot_run() -> None:
    slots = (SlotType("x"), SlotType("y"), SlotType("z"))
    trusting = TrustingEstimator(
        Throughputs(
            slots,
            job_types(
                ("a", 1),
            ),
            np.array([[4.0, 2.0, 0.0]]),
        )
    )
    trusting.submitted([Job(JobId(3), "a", 1, 10.0)], np.array([[9.0, np.nan, 5.0]]))
    told = trusting.beliefs()
    assert told is not None
    assert told.rate.tolist() == [[9.0, 2.0, 0.0]]
    assert told.jobs.tolist() == [3]
    assert trusting.beliefs() is None
