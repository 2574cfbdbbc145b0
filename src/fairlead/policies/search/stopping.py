"""Rules that stop trials without promise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairlead.policies.search.learning_curve import Curve, SearchMetric, chance_of_target


class StoppingRule(Protocol):
    """Judges a trial by its curve and those of the others. A pure function."""

    def promise(self, curve: Curve, metric: SearchMetric) -> float:
        """Return a number by which trials are ranked, the largest first."""

    def stops(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> bool:
        """Return whether a trial is to be stopped. others: curves of all others, ended ones included."""


@dataclass(frozen=True, slots=True)
class CurveFit:
    """Stops a trial whose chance of reaching the target is below ``min_chance``, after ``min_points`` points.
    Source: Gandiva (OSDI'18), section 6.2."""

    min_chance: float = 0.1
    min_points: int = 3

    def promise(self, curve: Curve, metric: SearchMetric) -> float:
        """The chance of reaching the target."""
        return chance_of_target(curve, metric)

    def stops(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> bool:  # noqa: ARG002
        """Whether the chance is too small."""
        enough = len(curve.value) >= self.min_points
        return enough and chance_of_target(curve, metric) < self.min_chance


@dataclass(frozen=True, slots=True)
class MedianStop:
    """Stops a trial whose best value is below the median of the other trials' mean values up to the same
    progress, once ``min_trials`` of them have got there, and not before ``min_points`` points. Source:
    Golovin et al., Google Vizier, KDD'17."""

    min_points: int = 2
    min_trials: int = 5

    def promise(self, curve: Curve, metric: SearchMetric) -> float:  # noqa: ARG002
        """The best value so far."""
        return float(curve.value.max())

    def stops(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> bool:  # noqa: ARG002
        """Whether the trial is worse than half of the others were."""
        if len(curve.value) < self.min_points:
            return False
        upto = curve.progress[-1]
        means = [
            float(one.value[one.progress <= upto + 1e-9].mean())
            for one in others
            if len(one.progress) and one.progress[-1] >= upto - 1e-9
        ]
        return len(means) >= self.min_trials and bool(curve.value.max() < np.median(means))


@dataclass(frozen=True, slots=True)
class Asha:
    """Asynchronous successive halving: at each rung, ``first`` x ``eta``^k of the mini-batches, a trial goes
    on only if its value there is in the best 1/``eta`` of all that have got there. Source: Li et al., ASHA,
    MLSys'20, whose trials are promoted; here those that would not be are stopped."""

    first: float = 0.09
    eta: float = 3.0

    def promise(self, curve: Curve, metric: SearchMetric) -> float:  # noqa: ARG002
        """The best value so far."""
        return float(curve.value.max())

    def stops(self, curve: Curve, others: Sequence[Curve], metric: SearchMetric) -> bool:  # noqa: ARG002
        """Whether the newest point is the first of a rung, and not among its best."""
        rung = self.first
        while rung * self.eta <= curve.progress[-1] + 1e-9:
            rung *= self.eta
        mine = _value_at(curve, rung)
        if (
            mine is None
            or _value_at(Curve(curve.progress[:-1], curve.value[:-1]), rung) is not None
        ):
            return False
        there = [value for one in others if (value := _value_at(one, rung)) is not None]
        better = sum(value > mine for value in there)
        return better >= max(1.0, (len(there) + 1) / self.eta)


def _value_at(curve: Curve, rung: float) -> float | None:
    """Return the value at the first point at or after a rung; None before it."""
    at = np.flatnonzero(curve.progress >= rung - 1e-9)
    return float(curve.value[at[0]]) if len(at) else None


RULES: dict[str, StoppingRule] = {"curve": CurveFit(), "median": MedianStop(), "asha": Asha()}
