"""One forecast of the present state for all who ask, made in the background and made anew as needed.

Nobody waits for it who can do without: ``latest`` is what there is. It is made when somebody has asked and it
is older than its own cost is worth, and now and then without being asked, so that what forecasts are worth
becomes known (``track_record``).
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from fairlead.cluster.forecasting.calibration import Calibrated, ForecastKind
from fairlead.cluster.forecasting.forecast import ForecastRun, median_s, running_jobs
from fairlead.cluster.forecasting.forecast_outcomes import Outcomes
from fairlead.cluster.forecasting.forecast_process import (
    ForecastError,
    ForecastProcess,
    ForecastTask,
)
from fairlead.cluster.forecasting.track_record import TrackRecord
from fairlead.errors import FairleadError

_log = logging.getLogger(__name__)
SEEDS = 3  # futures of a forecast, where there is time for them
CPU_S = 4.0  # of a forecast
MIN_INTERVAL_S = 2.0  # between two forecasts, and
INTERVAL_COST_FACTOR = 2.0  # as many times what one takes
# A question is asked of a forecast until so many times what another takes are over, or so many seconds
REUSE_COST_FACTOR = 5.0
MAX_AGE_S = 60.0
BACKGROUND_INTERVAL_S = 120.0  # between two that nobody asked for, and
BACKGROUND_COST_FACTOR = 50.0  # as many times what one takes


@dataclass(frozen=True, slots=True)
class MadeForecast:
    """A forecast, and when (monotonic) the state was copied that it is about."""

    at: float
    now_s: float  # that time on the cluster's clock
    task: ForecastTask
    jobs: frozenset[int]  # that it speaks of
    running: frozenset[int]  # those that held devices when the state was copied
    outcomes: tuple[ForecastRun, ...]
    cost_s: float
    final: bool  # False: a better one is being made
    coarse: ForecastRun  # the one without rounds, of the same state

    def is_good_at(self, asked: float) -> bool:
        """Return whether a question may be asked of it that came then (monotonic)."""
        return asked - self.at <= min(REUSE_COST_FACTOR * self.cost_s, MAX_AGE_S)

    @property
    def age_s(self) -> float:
        """Seconds since the state was copied."""
        return max(time.monotonic() - self.at, 0.0)

    def covers(self, job: int, changed_s: float) -> bool:
        """Return whether it knows a job as that is since ``changed_s``, of the cluster's time."""
        return job in self.jobs and self.now_s >= changed_s

    def left_s(self, job: int) -> float | None:
        """Seconds from the state to the end of a job; None: not within the horizon."""
        return median_s(self.outcomes, job)

    def kind_of(self, job: int) -> ForecastKind:
        """Return whether rounds were simulated up to the end of this job."""
        return kind_within(self.outcomes[0], self.left_s(job))


def kind_within(outcome: ForecastRun, left_s: float | None) -> ForecastKind:
    """Return whether rounds were simulated for so long or, where that is unknown, to the end of all jobs."""
    return "exact" if (np.inf if left_s is None else left_s) <= outcome.exact_s else "coarse"


@dataclass(frozen=True, slots=True)
class JobForecast:
    """The part of the latest forecast about one job, from now on."""

    kind: ForecastKind
    age_s: float
    exact_s: float | None  # for so long from now rounds were simulated; None = to the end
    forecasts: int
    interval: Calibrated | None  # None: it does not end within the horizon


class Forecaster:
    """See the module. Any thread may call it."""

    def __init__(
        self,
        copy: Callable[[], tuple[float, ForecastTask]],
        round_s: float,
        outcomes: Outcomes,
        process: ForecastProcess | None = None,
    ) -> None:
        """copy: the present state and its time, as a task for the process; may wait for the driver. process:
        None = one of its own; closed with this."""
        self.latest: MadeForecast | None = None
        self.track_record = TrackRecord(round_s, outcomes)
        self._copy = copy
        self._process = process or ForecastProcess("forecasts")
        self._changed = threading.Condition()
        self._requested = False
        self._closed = False
        self._failed = 0, ""  # how often, and why it did last
        self._began = time.monotonic()
        self._outdated = -float("inf")  # monotonic; people have changed jobs then
        self._early: MadeForecast | None = None  # the newest without rounds, shown or not
        self._last: MadeForecast | None = None  # that is final
        self._usual_s = float("inf")  # that it took
        self._tried = -float("inf")  # when the last one was ready, or had failed
        self._thread = threading.Thread(target=self._run, name="forecasts", daemon=True)

    def start(self) -> None:
        """Take up what earlier forecasts were worth, and begin."""
        self.track_record.load()
        self._thread.start()

    def close(self) -> None:
        """End, whatever is being computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._process.close()
        if self._thread.is_alive():
            self._thread.join(10.0)

    # --- who asks ------------------------------------------------------------------------------------

    def forecast_of(
        self,
        job: int,
        wait_s: float = 0.0,
        least_s: float = 0.0,
        *,
        changed_s: float = -np.inf,
    ) -> JobForecast | None:
        """Return the forecast of a job; None = nothing yet. Where a first or a better one can be expected
        within ``wait_s`` it is waited for. least_s: that the job takes from now on at its best rate; an old
        forecast is counted down by the clock, whatever the job does. changed_s: cluster's time; forecasts of
        states before it are about another situation of the job, and are none."""
        failures, _ = self._failed
        self._request()
        known = self._best(job, changed_s)
        vague = known is None or known.kind_of(job) == "coarse"
        if vague and self.latest is not None and self._usual_s < wait_s:
            until = time.monotonic() + wait_s
            with contextlib.suppress(ForecastError):
                self._wait(lambda one: one.final and one.covers(job, changed_s), until, failures)
            known = self._best(job, changed_s)
        return None if known is None else self._job_forecast(known, job, least_s)

    def at_once(
        self, job: int, least_s: float = 0.0, *, changed_s: float = -np.inf
    ) -> JobForecast | None:
        """Return the forecast that exists already, for lists, without waiting. If nothing is known of the job
        in its present state, a forecast is started."""
        known = self._best(job, changed_s)
        if known is None:
            self._request()
            return None
        return self._job_forecast(known, job, least_s)

    def _best(self, job: int, changed_s: float) -> MadeForecast | None:
        """The newest forecast that knows the job, an exact one before a coarse one: while one of a state
        into which somebody has submitted another job is being made, the last one will do."""
        made = [one for one in (self.latest, self._last) if one is not None]
        known = [one for one in made if one.covers(job, changed_s)]
        exact = [one for one in known if one.kind_of(job) == "exact"]
        return next(iter(exact or known), None)

    def _job_forecast(self, latest: MadeForecast, job: int, least_s: float) -> JobForecast:
        """Return the part of a forecast about a job that it knows, from now on."""
        age_s, kind, left_s = latest.age_s, latest.kind_of(job), latest.left_s(job)
        known_s = None
        if kind == "coarse":
            known_s = max(latest.outcomes[0].exact_s - age_s, 0.0)
        given = None
        if left_s is not None:
            left_s = max(left_s - age_s, least_s)
            then = self.track_record.calibrated(kind, left_s, job in latest.running)
            given = then.no_sooner_than(least_s)
        return JobForecast(kind, age_s, known_s, len(latest.outcomes), given)

    def error(self, latest: MadeForecast, run: ForecastRun) -> float:
        """Relative, of the median job of a forecast of that state: half of such forecasts were further
        off; 0 where no job ends."""
        errors = [
            self.track_record.calibrated(
                kind_within(run, left_s), left_s, job in latest.running
            ).error
            for job, left_s in run.finish_s.items()
        ]
        return median(errors) if errors else 0.0

    def recent(self, until: float) -> MadeForecast:
        """A forecast no older than it is worth to make another, nor than ``MAX_AGE_S``, and of the jobs as
        people want them now. Waits for it, and from the (monotonic) time ``until`` on for any of these, a
        coarse one too. Raises FairleadError."""
        asked, outdated = time.monotonic(), self._outdated

        def is_known(one: MadeForecast) -> bool:
            return one.at > outdated and (one.at >= asked or one.is_good_at(asked))

        latest = self.latest
        if latest is not None and latest.final and is_known(latest):
            return latest
        before, _ = self._failed
        self._request(now=True)

        def is_good(one: MadeForecast) -> bool:
            new = one.at >= asked or one.cost_s > MIN_INTERVAL_S
            return one.final and new and is_known(one)

        found = self._wait(is_good, until, before)
        if found is None or not is_known(
            found
        ):  # better a coarse one than none, or one of long ago
            found = self._wait(is_known, float("inf"), before)
        assert found is not None, "there is one, or the wait has failed"
        return found

    def _request(self, now: bool = False) -> None:
        with self._changed:
            self._requested = True
            if now:
                self._tried = -float("inf")
            self._changed.notify_all()

    def _wait(
        self, good: Callable[[MadeForecast], bool], until: float, failures: int
    ) -> MadeForecast | None:
        """The latest forecast once it is good, else the newest coarse one if that is; or the latest when the
        time is over. failures: that there were before it was wanted. Raises ForecastError where there is
        another."""
        with self._changed:
            while True:
                latest = self.latest
                left_s = until - time.monotonic()
                for one in (latest, self._early):
                    if one is not None and good(one):
                        return one
                if left_s <= 0:
                    return latest
                failed, problem = self._failed
                if self._closed or failed > failures:
                    raise ForecastError(problem or "no forecast could be made")
                self._changed.wait(min(left_s, 1.0))

    def outdate(self) -> None:
        """People have submitted, cancelled or changed jobs: no question is asked of a state of before."""
        self._outdated = time.monotonic()

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                self._make()
            except FairleadError as problem:
                self._fail(str(problem))
            except Exception:  # a defect here must not end all forecasts
                _log.exception("no forecast could be made")
                self._fail("")

    def _fail(self, problem: str) -> None:
        if problem and not self._closed:
            _log.info("no forecast: %s", problem)
        with self._changed:
            self._failed = self._failed[0] + 1, problem
            self._tried = time.monotonic()
            self._changed.notify_all()

    def _wait_until_due(self) -> bool:
        """Wait until another forecast is due; False at the end."""
        with self._changed:
            while not self._closed:
                left_s = self._due_s()
                if left_s <= 0:
                    return True
                self._changed.wait(left_s)
            return False

    def _due_s(self) -> float:
        cost_s = 0.0 if self.latest is None else self.latest.cost_s
        if self._requested:
            return (
                self._tried + max(MIN_INTERVAL_S, INTERVAL_COST_FACTOR * cost_s) - time.monotonic()
            )
        gap_s = max(BACKGROUND_INTERVAL_S, BACKGROUND_COST_FACTOR * cost_s)
        return max(self._tried, self._began) + gap_s - time.monotonic()

    def _make(self) -> None:
        self.track_record.learn()
        with self._changed:
            self._requested = False
        began = time.monotonic()
        now_s, task = self._copy()
        jobs = frozenset(task.state.ledger.jobs["id"].tolist()).union(task.query.paused_s)
        running = running_jobs(task.state)
        at_once: list[ForecastRun] = []

        def latest(outcomes: list[ForecastRun], final: bool) -> MadeForecast:
            cost_s, coarse = time.monotonic() - began, (at_once or outcomes)[0]
            return MadeForecast(
                at=began,
                now_s=now_s,
                task=task,
                jobs=jobs,
                running=running,
                outcomes=tuple(outcomes),
                cost_s=cost_s,
                final=final,
                coarse=coarse,
            )

        def early(coarse: list[ForecastRun]) -> None:
            at_once.extend(coarse)
            before, made = self.latest, latest(coarse, False)
            shown = before is None or before.outcomes[0].coarse or before.at <= self._outdated
            self._publish(made, shown=shown)

        found = latest(self._process.run(task, early=early), True)
        self._note(found)
        self._last, self._usual_s = found, found.cost_s
        self._tried = time.monotonic()
        self._publish(found)

    def _publish(self, made: MadeForecast, *, shown: bool = True) -> None:
        """shown: whether it takes the place of the last one for all who ask."""
        with self._changed:
            if shown:
                self.latest = made
            self._early = None if made.final else made
            self._changed.notify_all()

    def _note(self, latest: MadeForecast) -> None:
        """Keep what is forecast, to hold it against what will be. Of jobs that are held for now nobody knows
        how they go on."""
        for job in latest.jobs.difference(latest.task.query.paused_s):
            left_s = latest.left_s(job)
            if left_s is not None:
                kind = kind_within(latest.outcomes[0], left_s)
                runs = job in latest.running
                self.track_record.note(job, latest.now_s, kind, left_s, runs)
