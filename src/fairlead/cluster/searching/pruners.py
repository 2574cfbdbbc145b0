"""Which trials of a search are stopped early, by the values that trials report at the same step.

- median: a trial whose best value so far is worse than the median of those that completed trials had at its
  step (Golovin et al. 2017, Google Vizier).
- asha: at rungs, steps that grow by a factor, only the best part of the trials that came there goes on (Li et
  al. 2020); each trial is judged when it comes, and waits for no other.
- hyperband: brackets of asha that begin at different rungs, each with trials of its own (Li et al. 2018).
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import floor, log
from statistics import median
from typing import NamedTuple

from fairlead.cluster.protocol.study import PrunerName, PrunerSpec, StudySpec


class TrialCurve(NamedTuple):
    """What a trial has reported of the search's metric."""

    steps: Sequence[int]  # ascending
    values: Sequence[float]
    is_complete: bool = False  # it has ended by itself
    rungs: int = 0  # that it has passed

    def at(self, step: int) -> float | None:
        """The value at a step, or the last one before it; None = there is none."""
        position = bisect_right(self.steps, step)
        return self.values[position - 1] if position else None

    def from_step(self, step: int) -> float | None:
        """The value at a step, or the first one behind it; None = there is none."""
        position = bisect_left(self.steps, step)
        return self.values[position] if position < len(self.steps) else None


class Verdict(NamedTuple):
    """What becomes of a trial. reason: why it is stopped, "" = it goes on."""

    reason: str = ""
    rungs: int = 0  # that it has passed


def judge(study: StudySpec, number: int, curves: Mapping[int, TrialCurve]) -> Verdict:
    """Whether a trial goes on. curves: of all trials of the search by number, this one among them."""
    curve = curves[number]
    if not curve.steps:
        return Verdict(rungs=curve.rungs)
    return _RULES[study.pruner.type](study, number, curves)


def _none(_study: StudySpec, number: int, curves: Mapping[int, TrialCurve]) -> Verdict:
    return Verdict(rungs=curves[number].rungs)


def _median(study: StudySpec, number: int, curves: Mapping[int, TrialCurve]) -> Verdict:
    curve, step = curves[number], curves[number].steps[-1]
    others = [one for other, one in curves.items() if other != number and one.is_complete]
    values = [value for one in others if (value := one.at(step)) is not None]
    if step < study.pruner.min_step or len(values) < study.pruner.startup_trials:
        return Verdict()
    best = min(curve.values, key=lambda value: study.sign * value)
    middle = median(values)
    if study.sign * best <= study.sign * middle:
        return Verdict()
    return Verdict(
        f"{study.metric} was {best:.4g} at best by step {step}, worse than the median of "
        f"{len(values)} trials there, {middle:.4g}"
    )


def _asha(study: StudySpec, number: int, curves: Mapping[int, TrialCurve]) -> Verdict:
    return _at_rungs(study, number, curves, study.pruner.min_step)


def _hyperband(study: StudySpec, number: int, curves: Mapping[int, TrialCurve]) -> Verdict:
    pruner = study.pruner
    bracket = bracket_of(pruner, study.seed, number)
    same = {
        other: one
        for other, one in curves.items()
        if bracket_of(pruner, study.seed, other) == bracket
    }
    return _at_rungs(study, number, same, pruner.min_step * pruner.reduction**bracket)


def bracket_of(pruner: PrunerSpec, seed: int, number: int) -> int:
    """The bracket of a trial: those that stop early get more trials, as in the paper."""
    brackets = 1 + floor(
        log(max((pruner.max_step or 1) / pruner.min_step, 1), pruner.reduction) + 1e-9
    )
    budgets = [
        -(-brackets * pruner.reduction**left // (left + 1)) for left in reversed(range(brackets))
    ]
    drawn = zlib.crc32(f"{seed} {number}".encode()) % sum(budgets)
    for bracket, budget in enumerate(budgets):
        drawn -= budget
        if drawn < 0:
            return bracket
    raise AssertionError("the budgets add up to more than was drawn")


def _at_rungs(
    study: StudySpec, number: int, curves: Mapping[int, TrialCurve], first: int
) -> Verdict:
    """Judge at each rung that a trial has come to since it was judged last. first: step of the first rung."""
    curve, pruner = curves[number], study.pruner
    rungs = curve.rungs
    while True:
        step = first * pruner.reduction**rungs
        mine = curve.from_step(step)
        if mine is None or (pruner.max_step is not None and step >= pruner.max_step):
            return Verdict(rungs=rungs)
        values = [value for one in curves.values() if (value := one.from_step(step)) is not None]
        values.sort(key=lambda value: study.sign * value)
        least = values[max(len(values) // pruner.reduction, 1) - 1]
        if study.sign * mine > study.sign * least:
            return Verdict(
                f"{study.metric} was {mine:.4g} at step {step}, not among the best of the {len(values)} "
                f"trials there, of which one in {pruner.reduction} goes on",
                rungs,
            )
        rungs += 1


_Rule = Callable[[StudySpec, int, Mapping[int, TrialCurve]], Verdict]
_RULES: Mapping[PrunerName, _Rule] = {
    "none": _none,
    "median": _median,
    "asha": _asha,
    "hyperband": _hyperband,
}
