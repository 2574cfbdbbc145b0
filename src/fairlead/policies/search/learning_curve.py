"""The chance that a learning curve reaches a target, by what is known of it."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from fairlead.model.arrays import Floats

SIGMA = 0.05  # of a point around its curve, in units of the span between the start and the limit
# Grids of the prior: what part of the span a curve gains at last, when, and how suddenly.
_GAINS = np.linspace(0.0, 1.0, 21)
_TIMES = np.geomspace(0.01, 3.0, 16)
_POWERS = np.array([0.7, 1.0, 1.5, 2.5, 4.0])


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one trial, in order.

    progress: (points,) the part of the trial's mini-batches that was done, in (0, 1]. value: (points,) of
    the metric then; larger is better.
    """

    progress: Floats
    value: Floats


@dataclass(frozen=True, slots=True)
class SearchMetric:
    """What trials are after: a target, and the values between which the metric moves."""

    target: float
    start: float = 0.0  # that of a model that has learned nothing
    limit: float = 1.0  # that of a perfect one


def chance_of_target(curve: Curve, metric: SearchMetric) -> float:
    """Return the probability that the metric reaches its target by the end of the trial; 1 where it has.

    A curve is start + gain (1 - exp(-(progress / time)^power)) with normal errors; gain, time and power are
    uniform on grids beforehand (time on a logarithmic one), so that curves that rise late are expected too.
    """
    if (curve.value >= metric.target).any():
        return 1.0
    span = metric.limit - metric.start
    shape, final = _curves()
    grown = 1.0 - np.exp(-((curve.progress[:, None, None] / _TIMES[:, None]) ** _POWERS))
    value = (curve.value - metric.start) / span
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
