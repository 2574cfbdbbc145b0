"""How sure a forecast is, from what earlier ones were worth.

The score of a forecast is log(time that the job really took from then on / time forecast). Intervals are
split-conformal on the newest scores of like forecasts, exact or coarse ones, near or far ones, with the
level adapted online (adaptive conformal inference): misses widen it, hits narrow it. Until enough jobs have
ended, scores measured by ``benchmarks/forecast_coverage.py`` stand in for them.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Literal, TypeAlias

import msgspec
import numpy as np

ForecastKind: TypeAlias = Literal["exact", "coarse"]

COVERAGE = 0.8  # that intervals aim at
NEWEST = 200  # scores of a class that count
PRIOR_WORTH = 20  # scores that what is assumed at the beginning is worth
# Of the level, by outcome: outcomes come late and together (a sweep of equal jobs ends at once), so that more
# overshoots.
LEARNING_RATE = 0.03
LEVELS = (0.6, 0.98)  # between which it moves: a row of hits is often one sweep
NEAR_ROUNDS, FAR_ROUNDS = 4.0, 30.0  # forecasts of so many rounds: near, middle, far
LEAST_S = 1.0  # what is shorter counts as this
SHIFT = 0.5  # the most that the median of scores may move a forecast by
# The least: the jobs that have ended so far are not those to come, so that what is right but for little is
# not made better by them. Coarse forecasts are wrong in the median as such.
LEAST_SHIFT: Mapping[ForecastKind, float] = {"exact": 0.2, "coarse": 0.0}
# Median and standard deviation of scores at the beginning: near, middle, far.
PRIOR: Mapping[ForecastKind, Sequence[tuple[float, float]]] = {
    "exact": ((0.05, 0.22), (0.05, 0.27), (0.0, 0.4)),
    "coarse": ((-0.4, 0.6), (-0.2, 0.5), (-0.1, 0.4)),
}


class ForecastOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast about a job that has ended since. Times are in seconds from when it was made."""

    job: int
    made_s: float
    kind: ForecastKind
    left_s: float  # that was forecast, before it was calibrated
    low_s: float  # the interval that was given
    high_s: float
    actual_s: float

    @property
    def score(self) -> float:
        """See the module."""
        return float(np.log(max(self.actual_s, LEAST_S) / max(self.left_s, LEAST_S)))

    @property
    def inside(self) -> bool:
        """Was the truth in the interval?"""
        return self.low_s <= self.actual_s <= self.high_s


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A forecast with its interval; seconds."""

    left_s: float
    low_s: float
    high_s: float
    error: float  # relative: half of such forecasts were further off


@dataclass(slots=True)
class _Class:
    """Like forecasts."""

    prior: tuple[float, ...]
    least_shift: float
    level: float = COVERAGE
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))
    factors: tuple[float, float, float, float] | None = None  # as of now; None = not worked out

    def learn(self, score: float, missed: float) -> None:
        """One more."""
        self.scores.append(score)
        level = self.level + LEARNING_RATE * (missed - (1 - COVERAGE))
        self.level = min(max(level, LEVELS[0]), LEVELS[1])
        self.factors = None

    def work_out(self) -> tuple[float, float, float, float]:
        """What to multiply a forecast with, for itself and its bounds, and its relative error."""
        scores = np.sort(np.array([*self.prior, *self.scores]))
        n, tail = len(scores), (1 - self.level) / 2
        low = float(scores[max(int(np.floor((n + 1) * tail)) - 1, 0)])
        high = float(scores[min(int(np.ceil((n + 1) * (1 - tail))) - 1, n - 1)])
        middle = float(np.clip(np.median(scores), -SHIFT, SHIFT))
        if abs(middle) < self.least_shift:
            middle = 0.0
        bounds = np.exp([middle, min(low, middle), max(high, middle)]).tolist()
        return *bounds, float(np.median(np.abs(np.expm1(scores - middle))))


class IntervalCalibration:
    """See the module. round_s: what near and far are measured by."""

    def __init__(self, round_s: float, known: Iterable[ForecastOutcome] = ()) -> None:
        self.round_s = round_s
        self._classes: dict[tuple[ForecastKind, int], _Class] = {}
        for outcome in known:
            self.learn(outcome)

    def learn(self, outcome: ForecastOutcome) -> None:
        """A job has ended of which something had been forecast."""
        mine = self._class(outcome.kind, outcome.left_s)
        mine.learn(outcome.score, 0.0 if outcome.inside else 1.0)

    def of(self, kind: ForecastKind, left_s: float) -> Calibrated:
        """A forecast of so many seconds, put right by how others were off."""
        mine = self._class(kind, left_s)
        if mine.factors is None:
            mine.factors = mine.work_out()
        middle, low, high, error = mine.factors
        return Calibrated(left_s * middle, left_s * low, max(left_s * high, LEAST_S), error)

    def _class(self, kind: ForecastKind, left_s: float) -> _Class:
        rounds = left_s / self.round_s
        at = 0 if rounds < NEAR_ROUNDS else 1 if rounds < FAR_ROUNDS else 2
        key = (kind, at)
        if key not in self._classes:
            middle, sd = PRIOR[kind][at]
            normal = NormalDist(middle, sd)
            spots = ((i + 0.5) / PRIOR_WORTH for i in range(PRIOR_WORTH))
            prior = tuple(normal.inv_cdf(spot) for spot in spots)
            self._classes[key] = _Class(prior, LEAST_SHIFT[kind])
        return self._classes[key]


@dataclass(slots=True)
class Pending:
    """Forecasts about jobs that have not ended. Of one job only those count that see less than half of what
    the one before saw, so that all horizons count alike however often it is asked."""

    _made: dict[int, list[tuple[float, ForecastKind, float, Calibrated]]] = field(
        default_factory=dict
    )

    def add(
        self, job: int, made_s: float, kind: ForecastKind, left_s: float, given: Calibrated
    ) -> None:
        """A forecast was made at a time of the cluster's clock."""
        before = self._made.setdefault(job, [])
        if not before or left_s < before[-1][2] / 2:
            before.append((made_s, kind, left_s, given))

    def ended(self, job: int, time_s: float) -> list[ForecastOutcome]:
        """What became of those about a job that has completed."""
        return [
            ForecastOutcome(
                job=job,
                made_s=made_s,
                kind=kind,
                left_s=left_s,
                low_s=given.low_s,
                high_s=given.high_s,
                actual_s=time_s - made_s,
            )
            for made_s, kind, left_s, given in self._made.pop(job, [])
        ]

    def forget(self, job: int) -> None:
        """A person has paused or cancelled it: no forecast is to blame."""
        self._made.pop(job, None)
