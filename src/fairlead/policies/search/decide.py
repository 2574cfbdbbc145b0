"""One decision of a search: who stops, who is favoured, and whether the target is reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.policies.search.learning_curve import Curve, SearchMetric
from fairlead.policies.search.stopping import StoppingRule


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchPlan:
    """The rules by which a search decides. favoured: trials that go before all others, those of most promise;
    rule: which trials stop, None = none does; parallel: trials at a time."""

    metric: SearchMetric
    parallel: int
    favoured: int = 0
    rule: StoppingRule | None = None


@dataclass(frozen=True, slots=True)
class SearchDecision:
    """Trials that stop, trials that are favoured, most promise first, and one that has reached the target.
    rungs: passed by each trial that was judged and goes on."""

    stopped: tuple[int, ...]
    favoured: tuple[int, ...]
    reached: int | None = None
    rungs: Mapping[int, int] = field(default_factory=dict)


def decide(
    plan: SearchPlan,
    running: Mapping[int, Curve],
    ended: Sequence[Curve] = (),
    fresh: Sequence[int] | None = None,
) -> SearchDecision:
    """Return what is to be done with the trials of a search. running: curves of those that have not ended,
    by number; a curve may be empty. fresh: those with points that were not decided about yet, which may be
    stopped; None = all."""
    for trial, curve in sorted(running.items()):
        if plan.metric.is_reached(curve):
            return SearchDecision((), (), trial)
    if plan.rule is None:
        return SearchDecision((), ())
    curves = {trial: curve for trial, curve in sorted(running.items()) if len(curve.value)}
    stopped, rungs = [], {}
    for trial in curves if fresh is None else [t for t in curves if t in fresh]:
        others = [*(one for other, one in curves.items() if other != trial), *ended]
        verdict = plan.rule.judge(curves[trial], others, plan.metric)
        if verdict.reason:
            stopped.append(trial)
        else:
            rungs[trial] = verdict.rungs
    left = [trial for trial in curves if trial not in stopped]
    promise = {trial: (plan.rule.promise(curves[trial], plan.metric),) for trial in left}
    best = most_promising(promise, plan.favoured)
    return SearchDecision(tuple(stopped), best, rungs=rungs)


def most_promising(promise: Mapping[int, tuple[float, ...]], count: int) -> tuple[int, ...]:
    """Return so many trials, or all, the largest promise first, then the smallest number."""
    return tuple(sorted(sorted(promise), key=promise.__getitem__, reverse=True)[:count])
