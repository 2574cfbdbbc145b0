"""The chance that a learning curve reaches a target, by what is known of it."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from fairlead.model.arrays import Floats

SIGMA = 0.05  # of a point around its curve, in units of the span between the start and the limit
# Grids of the prior: what part of the span a curve gains at last, when, and how suddenly.
TOLERANCE = 1e-9  # of a progress
_GAINS = np.linspace(0.0, 1.0, 21)
_TIMES = np.geomspace(0.01, 3.0, 16)
_POWERS = np.array([0.7, 1.0, 1.5, 2.5, 4.0])
_MAX_POINTS = 100  # of a fit: errors of points that are closer are not independent
_OUTLIER = 1.0  # units of the span outside of it that a point counts at most


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one trial, in order.

    progress: (points,) how far the trial was, ascending: the part of its mini-batches, or their number; the
    same for all trials of a search. value: (points,) of the metric then. is_complete: whether the trial has
    ended by itself. rungs: those of ``Asha`` that it has passed.
    """

    progress: Floats
    value: Floats
    is_complete: bool = False
    rungs: int = 0

    def value_at(self, progress: float) -> float | None:
        """Return the value then, or the last one before; None = there is none."""
        points = int(self.progress.searchsorted(progress + TOLERANCE, "right"))
        return float(self.value[points - 1]) if points else None

    def value_from(self, progress: float) -> float | None:
        """Return the value then, or the first one after; None = there is none."""
        points = int(self.progress.searchsorted(progress - TOLERANCE))
        return float(self.value[points]) if points < len(self.value) else None


@dataclass(frozen=True, slots=True)
class SearchMetric:
    """The aim of trials: large or small values, a target, and the values between which the metric moves."""

    target: float | None = None  # None = the best that there is
    start: float = 0.0  # that of a model that has learned nothing
    limit: float = 1.0  # that of a perfect one
    name: str = "metric"
    maximize: bool = True

    def score(self, value: float) -> float:
        """Return a number that is the larger the better a value is."""
        return value if self.maximize else -value

    def best(self, curve: Curve) -> float:
        """Return the best value of a curve, which has points."""
        return float(curve.value.max() if self.maximize else curve.value.min())

    def is_reached(self, curve: Curve) -> bool:
        """Return whether a point of a curve is at the target or beyond it."""
        if self.target is None or not len(curve.value):
            return False
        return self.score(self.best(curve)) >= self.score(self.target)


def chance_of_target(curve: Curve, metric: SearchMetric, end: float = 1.0) -> float:
    """Return the probability that the metric reaches its target by the end of the trial; 1 where it has.
    metric: with a target. end: the progress then.

    A curve is start + gain (1 - exp(-(progress / time)^power)) with normal errors; gain, time and power are
    uniform on grids beforehand (time on a logarithmic one), so that curves that rise late are expected too.
    """
    assert metric.target is not None
    if metric.is_reached(curve):
        return 1.0
    span = metric.limit - metric.start
    shape, final = _curves()
    count = len(curve.value)
    kept = np.linspace(0, count - 1, min(count, _MAX_POINTS)).astype(np.int64)
    progress = curve.progress[kept, None, None] / end
    grown = 1.0 - np.exp(-((progress / _TIMES[:, None]) ** _POWERS))
    with np.errstate(over="ignore"):  # of values beyond all bounds
        value = ((curve.value[kept] - metric.start) / span).clip(-_OUTLIER, 1.0 + _OUTLIER)
    # (gains, times, powers): the sum of squared errors of a model, expanded so that no larger array is made
    squares = (
        (value**2).sum()
        - 2.0 * _GAINS[:, None, None] * np.einsum("p,ptq->tq", value, grown)
        + _GAINS[:, None, None] ** 2 * (grown**2).sum(axis=0)
    )
    likelihood = np.exp(-(squares - squares.min()) / (2.0 * SIGMA**2))
    good = final >= (metric.target - metric.start) / span
    assert shape == likelihood.shape
    return float(likelihood[good].sum() / likelihood.sum())


@cache
def _curves() -> tuple[tuple[int, ...], Floats]:
    """Return the shape of the grid, and the values of its curves at the end of a trial."""
    grown = 1.0 - np.exp(-((1.0 / _TIMES[:, None]) ** _POWERS))
    final = _GAINS[:, None, None] * grown
    return final.shape, final
