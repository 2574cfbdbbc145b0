"""Which trials of a search are stopped early: the rules of ``policies.search``, as a study asks for them.

Hyperband is here alone: brackets of ASHA that begin at different rungs, each with trials of its own (Li et
al., JMLR 2018).
"""

import zlib
from collections.abc import Mapping
from math import floor, log

from fairlead.cluster.protocol.study import PrunerSpec, StudySpec
from fairlead.policies.search.learning_curve import Curve, SearchMetric
from fairlead.policies.search.stopping import Asha, CurveFit, MedianStop, StoppingRule, Verdict


def judge(study: StudySpec, number: int, curves: Mapping[int, Curve]) -> Verdict:
    """Return whether a trial goes on. curves: of all trials of the search by number, this one among them;
    progress is in steps."""
    curve, bracket = curves[number], _bracket(study, number)
    rule = stopping_rule(study, bracket)
    if rule is None or not len(curve.value):
        return Verdict(rungs=curve.rungs)
    others = [
        one
        for other, one in curves.items()
        if other != number and _bracket(study, other) == bracket
    ]
    return rule.judge(curve, others, search_metric(study))


def stopping_rule(study: StudySpec, bracket: int = 0) -> StoppingRule | None:
    """The rule of a study; None = all trials go on. bracket: of hyperband, whose rule it is."""
    pruner = study.pruner
    if pruner.type == "median":
        return MedianStop(pruner.min_step, pruner.startup_trials)
    if pruner.type == "curve":
        assert pruner.max_step is not None
        return CurveFit(pruner.min_chance, pruner.min_points, pruner.min_step, pruner.max_step)
    if pruner.type in ("asha", "hyperband"):
        first = pruner.min_step * pruner.reduction**bracket
        return Asha(first, pruner.reduction, pruner.max_step)
    return None


def search_metric(study: StudySpec) -> SearchMetric:
    """Return what the trials of a study are after."""
    start, limit = study.metric_span
    maximize = study.direction == "maximize"
    return SearchMetric(study.target, start, limit, name=study.metric, maximize=maximize)


def promise(study: StudySpec, curve: Curve) -> float:
    """The probability that a trial with points reaches the target of a study with the pruner ``curve``; of
    others 0."""
    rule = stopping_rule(study)
    return rule.promise(curve, search_metric(study)) if isinstance(rule, CurveFit) else 0.0


def _bracket(study: StudySpec, number: int) -> int:
    """The bracket of a trial; 0 unless the pruner is hyperband."""
    is_hyperband = study.pruner.type == "hyperband"
    return bracket_of(study.pruner, study.seed, number) if is_hyperband else 0


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
