"""The deadlines of jobs, judged by forecasts."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fairlead.cluster.forecasting.forecast import ForecastRun
from fairlead.cluster.forecasting.forecaster import JobForecast
from fairlead.cluster.protocol.api_models import FORECAST_OUTCOMES, INTERVAL_WORDS, JobView
from fairlead.cluster.protocol.deadlines import deadline_sentence, forecast_standing
from fairlead.cluster.store.rows import JobRow
from fairlead.model.duration_text import duration
from fairlead.model.job import Job

CLOSE = 0.15  # part of the time to an end by which forecasts are often off
NAMED = 10  # jobs whose deadlines the answer to a question names


def with_deadline(job: JobView, forecast: JobForecast | None) -> JobView:
    """The job, with what its forecast says of its deadline; as it is where that is known without one."""
    if job.deadline != "open" or job.deadline_left_s is None or forecast is None:
        return job
    given = forecast.interval
    if given is None:
        return replace(job, deadline="forecast late")
    ends = (given.left_s, given.low_s, given.high_s)
    return replace(job, deadline=forecast_standing(job.deadline_left_s, *ends))


def forecast_sentence(job: JobView, forecast: JobForecast | None) -> str:
    """Return the sentence of an explanation on a job's deadline; "" = it has none."""
    given = None if forecast is None else forecast.interval
    if given is None:
        return deadline_sentence(job)
    often = INTERVAL_WORDS[given.outcomes >= FORECAST_OUTCOMES]
    return deadline_sentence(job, given.left_s, given.low_s, given.high_s, often)


def deadlines_of(rows: Iterable[JobRow], now_s: float, added: Iterable[Job]) -> dict[int, float]:
    """Job -> seconds until its deadline. added: those that would be submitted now."""
    found = {row.id: row.deadline_s - now_s for row in rows if row.deadline_s is not None}
    return found | {int(job.id): job.slo_s for job in added if job.slo_s is not None}


def deadline_notes(
    now: ForecastRun, then: ForecastRun, left_s: Mapping[int, float]
) -> tuple[str, ...]:
    """Which jobs would be done on the other side of their deadlines. left_s: of jobs with a deadline."""
    sentences = []
    for job, deadline_s in sorted(left_s.items()):
        before, after = _late_s(now, job, deadline_s), _late_s(then, job, deadline_s)
        if after is None or deadline_s < 0 or (before is not None and (before > 0) == (after > 0)):
            continue
        if after > 0:
            by = f" by {duration(after)}" if after < float("inf") else ""
            as_it_is = "" if before is None else ", which it meets as it is"
            sentences.append(f"job {job} would miss its deadline{by} then{as_it_is}")
        else:
            as_it_is = "" if before is None else ", which it misses as it is"
            risk = " (at risk)" if -after < CLOSE * (deadline_s + after) else ""
            by = duration(-after)
            sentences.append(f"job {job} would meet its deadline by {by} then{risk}{as_it_is}")
    more = len(sentences) - NAMED
    rest = (f"and so on for {more:,} more jobs with deadlines",) if more > 0 else ()
    return (*sentences[:NAMED], *rest)


def _late_s(run: ForecastRun, job: int, deadline_s: float) -> float | None:
    """Return how long after its deadline a job ends, negative = before; None = no end of it is forecast."""
    if job in run.unfinished:
        return float("inf")
    finish_s = run.finish_s.get(job)
    return None if finish_s is None else finish_s - deadline_s
