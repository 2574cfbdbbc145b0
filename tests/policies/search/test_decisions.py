"""Who goes on in a search, who is favoured, who stops."""

from dataclasses import replace

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


def complete(*value: float) -> Curve:
    return replace(curve(*value), is_complete=True)


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
    flat, good = curve(*[0.1] * 12), [complete(0.5, 0.5)] * 4
    assert CurveFit().judge(flat, (), METRIC).reason
    for rule in (CurveFit(min_points=13), CurveFit(min_progress=0.37)):
        assert not rule.judge(flat, (), METRIC).reason
    assert not MedianStop().judge(curve(0.1, 0.1), good, METRIC).reason, "four are too few"
    assert MedianStop(min_trials=4).judge(curve(0.1, 0.1), good, METRIC).reason
    assert not MedianStop(0.07, min_trials=4).judge(curve(0.1, 0.1), good, METRIC).reason


def test_the_median_rule_stops_the_worse_half() -> None:
    others = [complete(0.1 * k, 0.1 * k) for k in range(1, 6)]
    assert MedianStop().judge(curve(0.1, 0.25), others, METRIC).reason
    assert not MedianStop().judge(curve(0.1, 0.35), others, METRIC).reason
    running = [curve(0.1 * k, 0.1 * k) for k in range(1, 6)]
    assert not MedianStop().judge(curve(0.1, 0.25), running, METRIC).reason


@pytest.mark.parametrize(("value", "stops"), [(0.75, False), (0.5, True)])
def test_halving_keeps_the_best_third_at_each_rung(value: float, stops: bool) -> None:
    others = [curve(0.1, 0.1, 0.1 * k) for k in range(1, 9)]
    verdict = Asha().judge(curve(0.1, 0.1, value), others, METRIC)
    assert (bool(verdict.reason), verdict.rungs) == (stops, 0 if stops else 1)
    passed = replace(curve(0.1, 0.1, value, 0.1), rungs=1)
    assert Asha().judge(passed, others, METRIC) == ("", 1), "it is judged once at each"


def test_rungs_that_are_passed_are_part_of_a_decision() -> None:
    plan = SearchPlan(metric=METRIC, parallel=2, rule=Asha())
    made = decide(plan, {1: curve(0.1, 0.1, 0.5), 2: curve(0.1, 0.1, 0.4), 3: curve(0.1)})
    assert (made.stopped, made.rungs) == ((2,), {1: 1, 3: 0})


def test_small_values_are_as_good_as_large_ones() -> None:
    """A loss that falls from 2 to 0 has the chance of an accuracy that rises from 0 to 1."""
    loss = SearchMetric(target=0.4, start=2.0, limit=0.0, name="loss", maximize=False)
    accuracy = SearchMetric(target=0.8)
    for rises in (curve(0.1, 0.3, 0.4, 0.5), curve(0.05, 0.0, 0.05), curve(0.5, 0.8, 0.1)):
        falls = replace(rises, value=2.0 - 2.0 * rises.value)
        chance = chance_of_target(rises, accuracy)
        assert chance_of_target(falls, loss) == pytest.approx(chance)
        steps = replace(falls, progress=falls.progress * 500)
        assert chance_of_target(steps, loss, end=500) == pytest.approx(chance)
        assert loss.is_reached(falls) is accuracy.is_reached(rises) is (chance == 1.0)


def test_why_a_trial_is_stopped_by_its_curve() -> None:
    flat = Curve(np.arange(1.0, 11), np.full(10, 2.0))
    loss = SearchMetric(target=0.4, start=2.0, limit=0.0, name="loss", maximize=False)
    reason = CurveFit(end=30).judge(flat, (), loss).reason
    assert reason.startswith(
        "loss was 2 at step 10; the probability that it reaches 0.4 by step 30 is 0.0"
    )
    assert reason.endswith(", below 0.1")


@pytest.mark.parametrize("value", [1e308, -1e308, 1e9, -5.0])
def test_a_value_out_of_bounds_is_an_error_among_others(value: float) -> None:
    chance = chance_of_target(curve(0.1, 0.3, 0.5, 0.6, min(value, 0.7)), METRIC)
    assert 0.0 <= chance <= 1.0
    loss = SearchMetric(target=0.4, start=2.0, limit=0.0, maximize=False)
    assert 0.0 <= chance_of_target(curve(2.0, max(value, 1.0)), loss) <= 1.0


def test_a_curve_of_many_points_says_no_more_than_one_of_a_hundred() -> None:
    long = Curve(np.arange(1.0, 1001), np.full(1000, 0.6))
    few = Curve(long.progress[::10], long.value[::10])
    chances = [chance_of_target(one, METRIC, end=2000) for one in (long, few)]
    assert chances[0] == pytest.approx(chances[1], rel=0.2)
