"""Rules that stop trials without promise."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, Protocol

from fairlead.policies.search.learning_curve import (
    TOLERANCE,
    Curve,
    SearchMetric,
    chance_of_target,
)


class Verdict(NamedTuple):
    """The decision on a trial. reason: why it is stopped, "" = it goes on."""

    reason: str = ""
    rungs: int = 0  # that it has passed


class StoppingRule(Protocol):
    """Judges a trial by its curve, which has points, and those of the others. A pure function."""

    def promise(self, curve: Curve, metric: SearchMetric) -> float:
        """Return a number by which trials are ranked, the largest first."""

    def judge(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> Verdict:
        """Return whether a trial is to be stopped. others: curves of all others, ended ones included."""


@dataclass(frozen=True, slots=True)
class CurveFit:
    """Stops a trial whose chance of reaching the target is below ``min_chance``, after ``min_points`` points
    and from ``min_progress`` on. end: progress of a whole trial. Source: Gandiva (OSDI'18), section 6.2."""

    min_chance: float = 0.1
    min_points: int = 3
    min_progress: float = 0.0
    end: float = 1.0

    def promise(self, curve: Curve, metric: SearchMetric) -> float:
        """The chance of reaching the target."""
        return chance_of_target(curve, metric, self.end)

    def judge(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> Verdict:  # noqa: ARG002
        """Return whether the chance is too small."""
        step, points = curve.progress[-1], len(curve.value)
        if points < self.min_points or step < self.min_progress - TOLERANCE:
            return Verdict()
        chance = chance_of_target(curve, metric, self.end)
        if chance >= self.min_chance:
            return Verdict()
        return Verdict(
            f"{metric.name} was {curve.value[-1]:.4g} at step {step:.15g}; the probability that it reaches "
            f"{metric.target:.4g} by step {self.end:.15g} is {chance:.2g}, below {self.min_chance:g}"
        )


@dataclass(frozen=True, slots=True)
class MedianStop:
    """Stops a trial whose best value is worse than the median of those that completed trials had at the same
    progress, once there are ``min_trials`` of them, and not before ``min_progress``. Source: Golovin et al.,
    Google Vizier, KDD'17, which takes the mean value of each up to there."""

    min_progress: float = 0.0
    min_trials: int = 5

    def promise(self, curve: Curve, metric: SearchMetric) -> float:
        """The best value so far."""
        return metric.score(metric.best(curve))

    def judge(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> Verdict:
        """Return whether the trial is worse than half of the others were."""
        step = float(curve.progress[-1])
        if step < self.min_progress - TOLERANCE:
            return Verdict()
        complete = [one for one in others if one.is_complete]
        values = [value for one in complete if (value := one.value_at(step)) is not None]
        if len(values) < self.min_trials:
            return Verdict()
        best, middle = metric.best(curve), median(values)
        if metric.score(best) >= metric.score(middle):
            return Verdict()
        return Verdict(
            f"{metric.name} was {best:.4g} at best by step {step:.15g}, worse than the median of "
            f"{len(values)} trials there, {middle:.4g}"
        )


@dataclass(frozen=True, slots=True)
class Asha:
    """Asynchronous successive halving: at each rung, a progress of ``first`` x ``eta``^k below ``end``, a
    trial goes on only if its value there is in the best 1/``eta`` of all that have got there; it is judged
    once at each, and waits for no other. Source: Li et al., ASHA, MLSys'20, whose trials are promoted; here
    those that would not be are stopped."""

    first: float = 0.09
    eta: float = 3.0
    end: float | None = None  # None = any rung counts

    def promise(self, curve: Curve, metric: SearchMetric) -> float:
        """The best value so far."""
        return metric.score(metric.best(curve))

    def judge(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> Verdict:
        """Return whether the trial is not among the best of a rung that it has come to since it was judged
        last."""
        rungs = curve.rungs
        while True:
            rung = self.first * self.eta**rungs
            mine = curve.value_from(rung)
            if mine is None or (self.end is not None and rung >= self.end - TOLERANCE):
                return Verdict(rungs=rungs)
            there = [
                metric.score(value)
                for one in (curve, *others)
                if (value := one.value_from(rung)) is not None
            ]
            there.sort(reverse=True)
            if metric.score(mine) < there[max(int(len(there) / self.eta), 1) - 1]:
                return Verdict(
                    f"{metric.name} was {mine:.4g} at step {rung:.15g}, not among the best of the "
                    f"{len(there)} trials there, of which one in {self.eta:g} goes on",
                    rungs,
                )
            rungs += 1


RULES: dict[str, StoppingRule] = {"curve": CurveFit(), "median": MedianStop(), "asha": Asha()}
