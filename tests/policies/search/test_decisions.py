"""Who goes on in a search, who is favoured, who stops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.arrays import Floats
from fairlead.policies.search.decide import SearchPlan, decide
from fairlead.policies.search.learning_curve import Curve, SearchMetric, chance_of_target
from fairlead.policies.search.stopping import Asha, CurveFit, MedianStop

METRIC = SearchMetric(target=0.8, start=0.1)


def curve(*value: float) -> Curve:
    """Points after every 3 %."""
    return Curve(0.03 * np.arange(1.0, len(value) + 1), np.array(value))


def rising(gain: float, time: float, points: int) -> Curve:
    progress: Floats = 0.03 * np.arange(1.0, points + 1)
    return Curve(progress, 0.1 + gain * (1 - np.exp(-progress / time)))


def test_a_curve_that_rises_has_a_chance_and_a_flat_one_has_none() -> None:
    good, flat = rising(0.85, 0.2, 8), rising(0.0, 0.2, 8)
    assert chance_of_target(good, METRIC) > 0.6
    assert chance_of_target(flat, METRIC) < 0.1
    assert chance_of_target(rising(0.4, 0.1, 8), METRIC) < 0.1


def test_the_target_once_reached_is_certain() -> None:
    assert chance_of_target(curve(0.1, 0.85, 0.3), METRIC) == 1.0


def test_a_longer_flat_curve_has_a_smaller_chance() -> None:
    chances = [chance_of_target(rising(0.0, 1.0, points), METRIC) for points in (1, 4, 8, 16)]
    assert chances == sorted(chances, reverse=True)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=33), st.floats(0.05, 0.99))
def test_a_chance_is_a_probability(value: list[float], target: float) -> None:
    assert 0.0 <= chance_of_target(curve(*value), SearchMetric(target, 0.0)) <= 1.0 + 1e-9


def test_trials_without_promise_stop_and_the_best_are_favoured() -> None:
    plan = SearchPlan(metric=METRIC, parallel=4, favoured=1, rule=CurveFit())
    running = {3: rising(0.85, 0.2, 8), 5: rising(0.0, 1.0, 8), 7: rising(0.9, 0.1, 4), 9: curve()}
    made = decide(plan, running)
    assert made.stopped == (5,)
    assert made.favoured == (7,)
    assert made.reached is None


def test_only_trials_with_news_are_stopped() -> None:
    plan = SearchPlan(metric=METRIC, parallel=2, rule=CurveFit())
    flat = {1: rising(0.0, 1.0, 8), 2: rising(0.0, 1.0, 8)}
    assert decide(plan, flat, fresh=[2]).stopped == (2,)


def test_a_search_without_a_rule_stops_nobody_but_sees_the_target() -> None:
    plan = SearchPlan(metric=METRIC, parallel=2)
    assert decide(plan, {1: rising(0.0, 1.0, 30)}).stopped == ()
    assert decide(plan, {1: curve(0.1), 2: curve(0.1, 0.8)}).reached == 2


def test_no_trial_is_judged_too_early() -> None:
    assert not CurveFit(min_points=4).stops(curve(0.1, 0.1, 0.1), (), METRIC)
    assert not MedianStop().stops(curve(0.1, 0.1), [curve(0.5, 0.5)] * 4, METRIC)


def test_the_median_rule_stops_the_worse_half() -> None:
    others = [curve(0.1 * k, 0.1 * k) for k in range(1, 6)]
    assert MedianStop().stops(curve(0.1, 0.25), others, METRIC)
    assert not MedianStop().stops(curve(0.1, 0.35), others, METRIC)


@pytest.mark.parametrize(("value", "stops"), [(0.75, False), (0.5, True)])
def test_halving_keeps_the_best_third_at_each_rung(value: float, stops: bool) -> None:
    others = [curve(0.1, 0.1, 0.1 * k) for k in range(1, 9)]
    mine = curve(0.1, 0.1, value)
    assert Asha(first=0.09, eta=3.0).stops(mine, others, METRIC) is stops
    assert not Asha(first=0.09, eta=3.0).stops(curve(0.1, 0.1, value, 0.1), others, METRIC)
