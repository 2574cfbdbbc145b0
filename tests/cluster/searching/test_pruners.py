import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import ParameterRange, PrunerSpec, StudySpec
from fairlead.cluster.searching.pruners import bracket_of, judge, search_metric, stopping_rule
from fairlead.policies.search.decide import SearchPlan, decide
from fairlead.policies.search.learning_curve import Curve


def study(pruner: PrunerSpec, **more: object) -> StudySpec:
    given: dict[str, object] = {
        "metric": "loss",
        "parameters": {"x": ParameterRange(low=0.0, high=1.0)},
        "job": JobSpec(command=("x",), total_steps=1),
        "trials": 10,
        "pruner": pruner,
    }
    return StudySpec(**(given | more))  # type: ignore[arg-type]


def curve(*values: float, rungs: int = 0, is_complete: bool = False) -> Curve:
    return at_steps(range(1, len(values) + 1), values, rungs=rungs, is_complete=is_complete)


def at_steps(
    steps: Sequence[int], values: Sequence[float], rungs: int = 0, is_complete: bool = False
) -> Curve:
    return Curve(np.array(steps, float), np.array(values, float), is_complete, rungs)


def test_without_a_pruner_all_go_on() -> None:
    curves = {0: curve(1.0, is_complete=True), 1: curve(1e9)}
    assert judge(study(PrunerSpec()), 1, curves).reason == ""


def test_a_trial_without_values_goes_on() -> None:
    wanted = study(PrunerSpec("median", startup_trials=1))
    assert judge(wanted, 1, {0: curve(1.0, is_complete=True), 1: curve()}).reason == ""


@pytest.mark.parametrize(
    ("mine", "stopped"),
    [
        ((3.0, 2.5), True),  # the median at step 2 is 2
        ((3.0, 2.0), False),
        ((1.5, 9.0), False),  # its best so far counts
        ((9.0,), False),  # at step 1 the median is 10
    ],
)
def test_median(mine: tuple[float, ...], stopped: bool) -> None:
    wanted = study(PrunerSpec("median", startup_trials=3))
    done = {n: curve(10.0, float(n), 0.0, is_complete=True) for n in (1, 2, 3)}
    assert bool(judge(wanted, 4, done | {4: curve(*mine)}).reason) == stopped
    assert not judge(wanted, 4, {1: done[1], 2: done[2], 4: curve(*mine)}).reason, "too few"
    late = study(PrunerSpec("median", startup_trials=3, min_step=5))
    assert not judge(late, 4, done | {4: curve(*mine)}).reason
    largest = study(PrunerSpec("median", startup_trials=3), direction="maximize")
    negated = {n: curve(*-one.value, is_complete=True) for n, one in done.items()}
    mirrored = negated | {4: curve(*(-v for v in mine))}
    assert bool(judge(largest, 4, mirrored).reason) == stopped


def test_the_median_is_of_trials_that_completed() -> None:
    wanted = study(PrunerSpec("median", startup_trials=1))
    assert not judge(wanted, 1, {0: curve(1.0), 1: curve(5.0)}).reason
    reason = judge(wanted, 1, {0: curve(1.0, is_complete=True), 1: curve(5.0)}).reason
    assert reason == "loss was 5 at best by step 1, worse than the median of 1 trials there, 1"


def test_at_a_rung_only_the_best_part_goes_on() -> None:
    wanted = study(PrunerSpec("asha", min_step=2, reduction=3))
    curves = {n: curve(9.0, float(n), rungs=1) for n in range(5)}
    assert judge(wanted, 5, curves | {5: curve(9.0, -1.0)}) == ("", 1)
    assert judge(wanted, 5, curves | {5: curve(9.0, 0.5)}) == ("", 1), "the second of six"
    verdict = judge(wanted, 5, curves | {5: curve(9.0, 1.5)})
    assert verdict.reason == (
        "loss was 1.5 at step 2, not among the best of the 6 trials there, of which one in 3 goes on"
    )
    assert judge(wanted, 5, curves | {5: curve(99.0)}) == ("", 0), "it has not come to a rung"
    passed = curves | {5: curve(9.0, 1.5, rungs=1)}
    assert judge(wanted, 5, passed) == ("", 1), "it is judged once at each"


def test_each_rung_is_judged_and_the_last_step_is_none() -> None:
    wanted = study(PrunerSpec("asha", min_step=1, reduction=2, max_step=4))
    good = curve(*[0.0] * 8, rungs=2)
    assert judge(wanted, 1, {0: good, 1: curve(*[0.0] * 8)}) == ("", 2)
    falls_behind = curve(0.0, 1.0, 0.0)
    assert judge(wanted, 1, {0: good, 1: falls_behind}).rungs == 1
    assert "at step 2" in judge(wanted, 1, {0: good, 1: falls_behind}).reason
    assert not judge(wanted, 1, {0: good, 1: curve(0.0, 0.0, 9.0, 9.0, 9.0)}).reason


def test_values_behind_a_rung_stand_for_those_at_it() -> None:
    wanted = study(PrunerSpec("asha", min_step=10, reduction=2))
    first = at_steps([7, 14], [9.0, 1.0], rungs=1)
    assert judge(wanted, 1, {0: first, 1: at_steps([9], [5.0])}) == ("", 0)
    assert judge(wanted, 1, {0: first, 1: at_steps([9, 11], [5.0, 2.0])}).reason


def test_asha_agrees_with_optuna() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    wanted = study(PrunerSpec("asha", min_step=1, reduction=3))
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    theirs = optuna.create_study(pruner=pruner)
    curves: dict[int, Curve] = {}
    decided: list[tuple[int, bool]] = []
    for number in range(40):
        trial, values, rungs = theirs.ask(), [], 0
        for step in range(1, 28):
            value = ((number * 37) % 41) + 10.0 / step + ((number * step * 13) % 7) / 3
            trial.report(value, step)
            values.append(value)
            curves[number] = curve(*values, rungs=rungs)
            mine, other = judge(wanted, number, curves), trial.should_prune()
            rungs = mine.rungs
            assert bool(mine.reason) == other, (number, step)
            if other:
                break
        decided.append((step, other))
        curves[number] = curve(*values, rungs=rungs, is_complete=not other)
        state = optuna.trial.TrialState.PRUNED if other else None
        theirs.tell(trial, None if other else values[-1], state=state)
    assert Counter(stopped for _, stopped in decided)[True] > 20


def test_brackets_of_hyperband_begin_at_different_rungs() -> None:
    pruner = PrunerSpec("hyperband", min_step=1, max_step=27, reduction=3)
    found = Counter(bracket_of(pruner, 0, number) for number in range(2_000))
    assert sorted(found) == [0, 1, 2, 3]
    assert found[0] > found[1] > found[2], "those that stop early have more trials"
    wanted = study(pruner)
    number = next(n for n in range(100) if bracket_of(pruner, 0, n) == 2)
    rival = next(n for n in range(number + 1, 200) if bracket_of(pruner, 0, n) == 2)
    other = next(n for n in range(100) if bracket_of(pruner, 0, n) == 0)
    curves = {number: curve(*[1.0] * 9, rungs=1), other: curve(*[0.0] * 9)}
    assert judge(wanted, rival, curves | {rival: curve(*[5.0] * 8)}) == ("", 0), (
        "rung 9 is the first"
    )
    assert judge(wanted, rival, curves | {rival: curve(*[5.0] * 9)}).reason
    assert judge(wanted, rival, curves | {rival: curve(*[0.5] * 9)}) == ("", 1), (
        "of its own bracket"
    )


@pytest.mark.parametrize("max_step", [1, 2, 1_000_000])
def test_any_trial_has_a_bracket(max_step: int) -> None:
    pruner = PrunerSpec("hyperband", min_step=1, max_step=max_step, reduction=2)
    for number in range(200):
        assert pruner.min_step * pruner.reduction ** bracket_of(pruner, 3, number) <= max_step


CURVE = PrunerSpec("curve", max_step=30, start=2.0)


def test_a_trial_that_will_not_reach_the_target_is_stopped() -> None:
    wanted = study(CURVE, target=0.5)
    flat, falling = [2.0] * 9, [2.0 * 0.8**step for step in range(1, 5)]
    assert not judge(wanted, 0, {0: curve(*falling)}).reason
    assert not judge(wanted, 0, {0: curve(*flat[:2])}).reason, "two points are too few"
    reason = judge(wanted, 0, {0: curve(*flat)}).reason
    assert reason.startswith(
        "loss was 2 at step 9; the probability that it reaches 0.5 by step 30 is "
    )
    for lenient in ({"min_chance": 0.0}, {"min_points": 10}, {"min_step": 10}):
        pruner = msgspec.structs.replace(CURVE, **lenient)
        assert not judge(study(pruner, target=0.5), 0, {0: curve(*flat)}).reason
    assert not judge(study(CURVE, target=1.99), 0, {0: curve(*flat, 1.9, 2.0)}).reason, (
        "it has been"
    )


@pytest.mark.parametrize(
    "pruner",
    [
        PrunerSpec("median", startup_trials=2),
        PrunerSpec("asha", min_step=2, reduction=2),
        CURVE,
    ],
    ids=lambda one: one.type,
)
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_simulated_and_live_searches_stop_the_same_trials(
    pruner: PrunerSpec, direction: str
) -> None:
    """Eight trials at a time report a point each in turn; forty of them. One that reaches the target ends."""
    sign = 1 if direction == "minimize" else -1
    target = None
    if pruner.type == "curve":
        pruner, target = msgspec.structs.replace(pruner, start=sign * 2.0, limit=0.0), sign * 0.4
    wanted = study(pruner, direction=direction, target=target)
    plan = SearchPlan(metric=search_metric(wanted), parallel=8, rule=stopping_rule(wanted))
    source = random.Random(0)
    lows = [source.uniform(0.2, 1.2) for _ in range(40)]
    curves: dict[int, Curve] = {}
    running: list[int] = []
    stopped = reached = 0
    for _ in range(400):
        running += range(len(curves), min(len(curves) + 8 - len(running), 40))
        for number in list(running):
            before = curves.get(number, curve())
            step = len(before.value) + 1
            loss = lows[number] + (2.0 - lows[number]) * 0.8**step + source.uniform(0, 0.02)
            curves[number] = curve(*before.value, sign * loss, rungs=before.rungs)
            ended = [one for other, one in curves.items() if other not in running]
            made = decide(plan, {n: curves[n] for n in running if n in curves}, ended, [number])
            verdict = judge(wanted, number, curves)
            assert made.stopped == ((number,) if verdict.reason else ())
            if made.reached is None and not verdict.reason:
                assert made.rungs == {number: verdict.rungs}
            stopped += bool(verdict.reason)
            reached += made.reached is not None
            if verdict.reason or made.reached is not None or step == 30:
                running.remove(number)
            is_complete = number not in running and not verdict.reason
            curves[number] = replace(curves[number], rungs=verdict.rungs, is_complete=is_complete)
    assert len(curves) == 40
    assert not running
    assert 5 < stopped < 40
    assert bool(reached) is (target is not None)
