"""A market in devices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.arrays import Floats
from fairlead.policies.solve.bilateral_trades import TradeMarket, trade


def market(held: list[list[float]], value: list[list[float]], most: float = 100.0) -> TradeMarket:
    h = np.array(held)
    return TradeMarket(h, np.array(value), np.full(len(h), most), np.zeros(h.shape[1]))


def worth(m: TradeMarket) -> Floats:
    return np.asarray((m.allocated * m.value).sum(axis=1))


def test_two_owners_trade_at_the_smaller_ratio_until_one_has_nothing_left() -> None:
    m = market([[6.0, 6.0], [6.0, 6.0]], [[4.0, 1.0], [2.0, 1.0]])
    assert trade(m) == 1
    assert m.allocated == pytest.approx(np.array([[9.0, 0.0], [3.0, 12.0]]))  # 3 fast for 6 slow
    assert worth(m) == pytest.approx(
        [36.0, 18.0]
    )  # from 30 and 18: the second ratio is the seller's


def test_the_price_is_the_second_largest_ratio() -> None:
    m = market([[4.0, 4.0]] * 3, [[4.0, 1.0], [2.0, 1.0], [1.0, 1.0]])
    trade(m)
    assert m.allocated == pytest.approx(np.array([[6.0, 0.0], [6.0, 2.0], [0.0, 10.0]]))
    assert worth(m) == pytest.approx([24.0, 14.0, 10.0])  # from 20, 12 and 8


def test_an_owner_that_can_use_no_more_devices_trades_one_for_one_or_not_at_all() -> None:
    m = market([[2.0, 2.0], [2.0, 2.0]], [[4.0, 1.0], [1.0, 2.0]], most=4.0)
    trade(m)
    assert m.allocated == pytest.approx(np.array([[4.0, 0.0], [0.0, 4.0]]))
    still = market([[2.0, 2.0], [2.0, 2.0]], [[4.0, 1.0], [2.0, 1.0]], most=4.0)
    assert trade(still) == 0


def test_free_devices_go_one_for_one_to_those_who_gain_most() -> None:
    held = np.array([[1.0, 3.0], [1.0, 3.0]])
    m = TradeMarket(held, np.array([[2.0, 1.0], [3.0, 1.0]]), np.full(2, 4.0), np.array([4.0, 0.0]))
    trade(m)
    assert m.allocated == pytest.approx(np.array([[2.0, 2.0], [4.0, 0.0]]))
    assert m.pool == pytest.approx(np.array([0.0, 4.0]))


def test_devices_that_are_worthless_to_one_are_not_kept_from_another() -> None:
    m = market([[2.0, 2.0], [2.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    trade(m)
    assert worth(m).sum() == pytest.approx(8.0)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_nobody_loses_nothing_is_lost_and_it_ends(seed: int, owners: int, types: int) -> None:
    rng = np.random.default_rng(seed)
    held = rng.uniform(0, 5, (owners, types)) * rng.integers(0, 2, (owners, types))
    value = rng.lognormal(0, 2, (owners, types)) * rng.integers(0, 4, (owners, types)).clip(0, 1)
    most = held.sum(axis=1) + rng.uniform(0, 3, owners) * rng.integers(0, 2)
    m = TradeMarket(held.copy(), value, most, rng.uniform(0, 2, types) * rng.integers(0, 2))
    total, before = held.sum(axis=0) + m.pool, worth(m)
    trade(m)
    assert m.allocated.sum(axis=0) + m.pool == pytest.approx(total)
    assert (worth(m) >= before * (1 - 1e-7) - 1e-7).all()
    assert (m.allocated.sum(axis=1) <= most * (1 + 1e-7) + 1e-7).all()
    assert m.allocated.min() >= 0
    assert m.pool.min() >= -1e-9
    assert trade(m) == 0
