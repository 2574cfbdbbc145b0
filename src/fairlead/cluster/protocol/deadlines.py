"""The standing of jobs to their deadlines, and words for it: the same for lists, pages and explanations."""

from fairlead.cluster.protocol.api_models import DeadlineState, JobState, JobView
from fairlead.model.duration_text import DASH, duration

AT_LEAST_S = 1.0  # differences below this are not said to be early or late
# A job may yet become so many times as fast as it was measured: rates of a few steps, or of a busy machine
RATE_MARGIN = 1.25


def missed(state: JobState, left_s: float) -> bool:
    """Return whether a job that has ended has missed its deadline. left_s: from its end to that, negative =
    after. What was dropped or killed is never done; who cancels a job in time wants it no more."""
    return state in ("dropped", "killed") or left_s < 0


def standing(state: JobState, left_s: float, ended: bool, least_s: float) -> DeadlineState:
    """Return how a job stands to its deadline, as far as that is known without a forecast. left_s: until the
    deadline from now or, of a job that has ended, from its end; least_s: that its steps take at its best
    rate."""
    if ended:
        if missed(state, left_s):
            return "missed"
        return "met" if state == "completed" else "withdrawn"
    if left_s < 0:
        return "past"
    return "out of reach" if least_s > left_s * RATE_MARGIN + AT_LEAST_S else "open"


def forecast_standing(
    left_s: float, finish_s: float | None, low_s: float | None, high_s: float | None
) -> DeadlineState:
    """Return the standing of a job with a forecast. finish_s: seconds from now, None = not within the
    horizon, which exceeds every deadline that matters; low_s, high_s: bounds of the interval of its end."""
    if finish_s is None or (finish_s if low_s is None else low_s) > left_s:
        return "forecast late"
    return "at risk" if (finish_s if high_s is None else high_s) > left_s else "forecast met"


def deadline_cell(job: JobView) -> str:
    """Return how a job stands to its deadline, in few words, for tables."""
    left_s = job.deadline_left_s
    if left_s is None:
        return DASH
    by = duration(abs(left_s))
    match job.deadline:
        case "met":
            return "met"
        case "missed":
            return f"missed by {by}" if left_s < 0 else "missed"
        case "withdrawn":
            return DASH
        case "past":
            return f"late by {by}"
        case "out of reach":
            return f"in {by}: cannot be met"
        case "forecast late":
            return f"in {by}: forecast late"
        case "at risk":
            return f"in {by}: at risk"
    return f"in {by}"


def deadline_sentence(
    job: JobView,
    finish_s: float | None = None,
    low_s: float | None = None,
    high_s: float | None = None,
    often: str = "8 of 10 times",
) -> str:
    """Return a sentence on a job's deadline; "" where it has none. finish_s: when its end is forecast,
    seconds from now; low_s, high_s: the interval of that, in which it ends so ``often``."""
    left_s = job.deadline_left_s
    if left_s is None:
        return ""
    by = duration(abs(left_s))
    if job.ended_s is not None:
        return _of_ended(job, left_s)
    if job.deadline == "past":
        ahead = "" if finish_s is None else f", and it is expected to end in {duration(finish_s)}"
        return f"Its deadline was {by} ago: it is late{ahead}."
    if job.deadline == "out of reach":
        return (
            f"Its deadline in {by} can no longer be met: the steps that are left take far longer than that "
            "even at the best rate that is known."
        )
    if job.deadline == "open":
        return f"Its deadline is in {by}; there is no forecast of whether it is met."
    if finish_s is None:
        return f"Its deadline in {by} is missed by the forecast: no end within its horizon."
    spare_s = left_s - finish_s
    close = abs(spare_s) < AT_LEAST_S
    expected = (
        "just when it is expected to end"
        if close
        else f"{duration(abs(spare_s))} {'after' if spare_s > 0 else 'before'} its expected end"
    )
    if job.deadline == "forecast met":
        return f"The forecast meets its deadline, which is in {by}, {expected}."
    if job.deadline == "forecast late":
        return f"It is forecast to miss its deadline, which is in {by}, {expected}."
    between = ""
    if low_s is not None and high_s is not None:
        between = f": {often} it ends between {duration(low_s)} and {duration(high_s)}"
    return f"It may miss its deadline, which is in {by}, {expected}{between}."


def _of_ended(job: JobView, left_s: float) -> str:
    by = duration(abs(left_s))
    if job.deadline == "met":
        return f"It met its deadline, {by} before it."
    if job.deadline == "withdrawn":
        return f"It was {job.state} {by} before its deadline."
    if left_s >= 0:
        return f"It missed its deadline: it was {job.state} {by} before it and is not done."
    how = "" if job.state == "completed" else f"it was {job.state} and is not done, "
    return f"It missed its deadline: {how}{by} late."
