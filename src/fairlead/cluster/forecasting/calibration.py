"""The confidence in a forecast, from what earlier ones were worth.

The score of a forecast is log((time that the job really took from then on + a) / (time forecast + a)): for
long times the relative error, for short ones the error in seconds over the allowance a, which starts, stops
and the grid of rounds cost however short a job is. Intervals are split-conformal on the newest scores of like
forecasts (exact or coarse ones; near or far ones, near ones of jobs that ran or that waited), with the level
adapted online (adaptive conformal inference): misses widen it, hits narrow it. Until enough jobs have
ended, scores measured by ``benchmarks/forecast_coverage.py`` stand in for them.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
LEVEL_RANGE = (0.55, 0.98)  # between which it moves: a row of hits is often one sweep
NEAR_ROUNDS, FAR_ROUNDS = 4.0, 30.0  # forecasts of so many rounds: near, middle, far
ALLOWANCE_S = 10.0  # added to what is forecast and to what came of it, see the module
MIN_UPPER_S = 1.0  # upper bounds are no less
# Of the least that a job takes: its steps are known as of its last heartbeat, and its rate is a mean.
MIN_TIME_FACTOR = 0.85
MAX_SHIFT = 0.5  # the most that the median of scores may move a forecast by
# The least: the jobs that have ended so far are not those to come, so that what is right but for little is
# not made better by them. Coarse forecasts are wrong in the median as such.
MIN_SHIFT: Mapping[ForecastKind, float] = {"exact": 0.2, "coarse": 0.0}
# Median and standard deviation of scores at the beginning, by kind and whether the job runs; near, middle,
# far.
PRIOR: Mapping[tuple[ForecastKind, bool], Sequence[tuple[float, float]]] = {
    ("exact", True): ((0.0, 0.15), (0.0, 0.2), (0.0, 0.4)),
    ("exact", False): ((0.05, 0.25), (0.05, 0.25), (0.0, 0.4)),
    ("coarse", True): ((-0.4, 0.6), (-0.3, 0.6), (-0.1, 0.4)),
    ("coarse", False): ((-0.4, 0.6), (-0.3, 0.5), (-0.1, 0.4)),
}


class ForecastOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast about a job that has ended since. Times are in seconds from when it was made."""

    job: int
    made_s: float
    kind: ForecastKind
    running: bool  # did the job hold devices when it was made?
    left_s: float  # that was forecast, before it was calibrated
    low_s: float  # the interval that was given
    high_s: float
    actual_s: float

    @property
    def score(self) -> float:
        """See the module."""
        return float(np.log((self.actual_s + ALLOWANCE_S) / (self.left_s + ALLOWANCE_S)))

    @property
    def inside(self) -> bool:
        """Return whether the truth was in the interval."""
        return self.low_s <= self.actual_s <= self.high_s


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A forecast with its interval; seconds."""

    left_s: float
    low_s: float
    high_s: float
    error: float  # relative: half of such forecasts were further off
    outcomes: int = 0  # of like forecasts that it rests on, beside what is assumed at the beginning

    def no_sooner_than(self, least_s: float) -> "Calibrated":
        """For a job that takes so long at its best rate, as far as its rate and steps are known."""
        return replace(
            self,
            left_s=max(self.left_s, least_s),
            low_s=max(self.low_s, min(_scaled(least_s, MIN_TIME_FACTOR), least_s)),
            high_s=max(self.high_s, least_s),
        )


def _scaled(left_s: float, factor: float) -> float:
    """Return a forecast scaled by a factor, the exponential of a score; seconds, never negative."""
    return max((left_s + ALLOWANCE_S) * factor - ALLOWANCE_S, 0.0)


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
        self.level = min(max(level, LEVEL_RANGE[0]), LEVEL_RANGE[1])
        self.factors = None

    def work_out(self) -> tuple[float, float, float, float]:
        """Return the factors of a forecast, its low and its high bound, and its median relative error."""
        scores, tail = np.array([*self.prior, *self.scores]), (1 - self.level) / 2
        # Weibull's quantiles: a score to come is below the one at p with probability p exactly.
        low, high = np.quantile(scores, (tail, 1 - tail), method="weibull").tolist()
        center = float(np.clip(np.median(scores), -MAX_SHIFT, MAX_SHIFT))
        if abs(center) < self.least_shift:
            center = 0.0
        bounds = np.exp([center, min(low, center), max(high, center)]).tolist()
        return *bounds, float(np.median(np.abs(np.expm1(scores - center))))


class IntervalCalibration:
    """See the module. round_s: what near and far are measured by."""

    def __init__(self, round_s: float, known: Iterable[ForecastOutcome] = ()) -> None:
        self.round_s = round_s
        self._classes: dict[tuple[ForecastKind, bool, int], _Class] = {}
        for outcome in known:
            self.learn(outcome)

    def learn(self, outcome: ForecastOutcome) -> None:
        """A job has ended of which something had been forecast."""
        mine = self._class(outcome.kind, outcome.left_s, outcome.running)
        mine.learn(outcome.score, 0.0 if outcome.inside else 1.0)

    def of(self, kind: ForecastKind, left_s: float, running: bool) -> Calibrated:
        """A forecast of so many seconds, put right by how others were off."""
        mine = self._class(kind, left_s, running)
        if mine.factors is None:
            mine.factors = mine.work_out()
        center, low, high, error = mine.factors
        return Calibrated(
            left_s=_scaled(left_s, center),
            low_s=_scaled(left_s, low),
            high_s=max(_scaled(left_s, high), MIN_UPPER_S),
            error=error * (left_s + ALLOWANCE_S) / max(left_s, MIN_UPPER_S),
            outcomes=len(mine.scores),
        )

    def _class(self, kind: ForecastKind, left_s: float, running: bool) -> _Class:
        """Return the error class of a forecast. For far ends it does not matter whether the job runs now."""
        rounds = left_s / self.round_s
        at = 0 if rounds < NEAR_ROUNDS else 1 if rounds < FAR_ROUNDS else 2
        key = (kind, running and at < 2, at)
        if key not in self._classes:
            center, sd = PRIOR[kind, running][at]
            normal = NormalDist(center, sd)
            spots = ((i + 0.5) / PRIOR_WORTH for i in range(PRIOR_WORTH))
            prior = tuple(normal.inv_cdf(spot) for spot in spots)
            self._classes[key] = _Class(prior, MIN_SHIFT[kind])
        return self._classes[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawForecast:
    """A forecast of a job before calibration, and the interval that was given."""

    made_s: float  # time of the cluster's clock
    kind: ForecastKind
    running: bool  # did the job hold devices then?
    left_s: float  # before it was calibrated
    interval: Calibrated

    def outcome(self, job: int, ended_s: float) -> ForecastOutcome:
        """Return the outcome of the forecast: the job has ended at ``ended_s`` of the cluster's clock."""
        return ForecastOutcome(
            job=job,
            made_s=self.made_s,
            kind=self.kind,
            running=self.running,
            left_s=self.left_s,
            low_s=self.interval.low_s,
            high_s=self.interval.high_s,
            actual_s=ended_s - self.made_s,
        )


@dataclass(slots=True)
class Pending:
    """Forecasts about jobs that have not ended. Of one job only those count that see less than half of what
    the one before saw, of those made while it ran and of those made while it waited, so that all horizons
    count alike however often it is asked."""

    _made: dict[int, list[RawForecast]] = field(default_factory=dict)

    def add(self, job: int, forecast: RawForecast) -> None:
        """A forecast was made."""
        before = self._made.setdefault(job, [])
        similar = [one.left_s for one in before if one.running == forecast.running]
        if not similar or forecast.left_s < similar[-1] / 2:
            before.append(forecast)

    def ended(self, job: int, time_s: float) -> list[ForecastOutcome]:
        """Remove the forecasts of a job that has completed; return their outcomes.
        One made when its steps were done, and its end was not known yet, has none."""
        made = self._made.pop(job, [])
        return [one.outcome(job, time_s) for one in made if one.made_s < time_s]

    def forget(self, job: int) -> None:
        """A person has paused or cancelled it: no forecast is to blame."""
        self._made.pop(job, None)
