from collections import Counter

import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.study import ParameterRange, PrunerSpec, StudySpec
from fairlead.cluster.searching.pruners import TrialCurve, bracket_of, judge


def study(pruner: PrunerSpec, **more: object) -> StudySpec:
    given: dict[str, object] = {
        "metric": "loss",
        "parameters": {"x": ParameterRange(low=0.0, high=1.0)},
        "job": JobSpec(command=("x",), total_steps=1),
        "trials": 10,
        "pruner": pruner,
    }
    return StudySpec(**(given | more))  # type: ignore[arg-type]


def curve(*values: float, first: int = 1, **more: object) -> TrialCurve:
    return TrialCurve(range(first, first + len(values)), values, **more)  # type: ignore[arg-type]


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
    negated = {n: curve(*(-v for v in one.values), is_complete=True) for n, one in done.items()}
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
    first = TrialCurve([7, 14], [9.0, 1.0], rungs=1)
    assert judge(wanted, 1, {0: first, 1: TrialCurve([9], [5.0])}) == ("", 0)
    assert judge(wanted, 1, {0: first, 1: TrialCurve([9, 11], [5.0, 2.0])}).reason


def test_asha_agrees_with_optuna() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    wanted = study(PrunerSpec("asha", min_step=1, reduction=3))
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    theirs = optuna.create_study(pruner=pruner)
    curves: dict[int, TrialCurve] = {}
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
