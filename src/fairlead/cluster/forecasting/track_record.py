"""The track record of forecasts: each is noted, and held against what comes of it."""

import contextlib
from collections import deque

from fairlead.cluster.forecasting.calibration import (
    Calibrated,
    ForecastKind,
    IntervalCalibration,
    Pending,
    RawForecast,
)
from fairlead.cluster.forecasting.forecast_outcomes import Outcomes
from fairlead.errors import StoreError
from fairlead.model.commands import EndJobs, JobEnd


class TrackRecord:
    """Corrects forecasts by those of the past. ``ended`` and ``interrupted`` may be called by any thread, the
    rest by one."""

    def __init__(self, round_s: float, outcomes: Outcomes) -> None:
        """round_s: length of a round; outcomes: where what was learned is kept."""
        self._calibration = IntervalCalibration(round_s)
        self._outcomes = outcomes
        self._pending = Pending()
        self._ended: deque[tuple[int, float | None]] = deque()

    def load(self) -> None:
        """Take up what earlier forecasts were worth."""
        with contextlib.suppress(StoreError):
            for outcome in self._outcomes.all():
                self._calibration.learn(outcome)

    def calibrated(self, kind: ForecastKind, left_s: float, running: bool) -> Calibrated:
        """A forecast of so many seconds, corrected. running: whether the job holds devices."""
        return self._calibration.of(kind, left_s, running)

    def note(
        self, job: int, now_s: float, kind: ForecastKind, left_s: float, running: bool
    ) -> None:
        """Keep what is forecast of a job at this time, to hold it against what will be."""
        made = RawForecast(
            made_s=now_s,
            kind=kind,
            running=running,
            left_s=left_s,
            interval=self.calibrated(kind, left_s, running),
        )
        self._pending.add(job, made)

    def ended(self, command: EndJobs) -> None:
        """Jobs have left the core: noted, and looked at later."""
        for job, end, end_s in zip(
            command.jobs.tolist(), command.end.tolist(), command.end_s.tolist(), strict=True
        ):
            self._ended.append((job, end_s if end == JobEnd.COMPLETED else None))

    def interrupted(self, job: int) -> None:
        """A person has stopped a job: what was forecast of it says nothing about forecasts."""
        self._ended.append((job, None))

    def learn(self) -> None:
        """Hold what was forecast against the ends that were noted."""
        found = []
        while self._ended:
            job, end_s = self._ended.popleft()
            if end_s is None:
                self._pending.forget(job)
            else:
                found += self._pending.ended(job, end_s)
        for outcome in found:
            self._calibration.learn(outcome)
        if found:
            with contextlib.suppress(StoreError):  # a full disk costs a little of what was learned
                self._outcomes.add(found)
