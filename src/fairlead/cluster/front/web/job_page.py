"""The page of a job."""

import time

from fairlead.analysis.report.markup import Html, join, tag
from fairlead.analysis.report.metric_catalogue import counted
from fairlead.cluster.front.facade import Facade, NotFoundError
from fairlead.cluster.front.web import charts, tables
from fairlead.cluster.front.web.curves import metrics_section
from fairlead.cluster.front.web.forecasts import Forecasts
from fairlead.cluster.front.web.layout import (
    FAST,
    SLOW,
    Page,
    Section,
    button,
    note,
    old_state,
    scroll,
)
from fairlead.cluster.front.web.markup import address, count, link, name, strip_escapes
from fairlead.cluster.front.web.page_request import PageRequest
from fairlead.cluster.front.web.usage_section import usage_section
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import (
    ENDED_STATES,
    NO_END,
    AttemptView,
    Explanation,
    JobView,
)
from fairlead.errors import FairleadError
from fairlead.model.duration_text import DASH, ago, duration

ATTEMPTS = 50  # newest attempts in the table
EXPLANATION_TITLE = "Why, and until when"
EVENTS = 200  # newest events in the list
CHUNK_BYTES = 1 << 20  # bytes of a log that are asked for at a time
TAIL = 64_000  # characters of a log that the page begins with


def job_page(forecasts: Forecasts, facade: Facade, ask: PageRequest) -> Page:
    """The page at ``/jobs/{job}``. The forecast takes a while: the page comes first and asks for it then."""
    job = facade.job(ask.caller, ask.job)
    sections: list[Section] = []
    now_s = facade.status(ask.caller).now_s
    if ask.wants(FAST):
        sections.append(facts(job, ask.caller, now_s))
    if not {"part", "all"} & ask.query.keys():
        sections.append(_later(job))
    elif ask.wants(SLOW):
        sections.append(_story(forecasts, ask.caller, job, now_s))
    if ask.wants(FAST):
        attempts = facade.attempts(ask.caller, job.id)
        sections += [attempts_section(job, attempts, now_s), *tracebacks(attempts)]
    if ask.wants(SLOW):
        sections.append(metrics_section(facade.metrics(ask.caller, job.id)))
        sections.append(usage_section(facade.usage(ask.caller, job.id), now_s))
    if ask.wants(""):
        sections.append(log_section(job, *tail(facade, ask.caller, job.id)))
    title = f"Job {job.id}" + (f" {job.name}" if job.name else "")
    return Page(title, f"Job {job.id} of {job.tenant}: {job.state}", sections, here="/jobs")


def facts(job: JobView, caller: Caller, now_s: float) -> Section:
    """Return the section on what and where the job is, and what may be done with it."""
    reason = tag("p", job.reason) if job.reason else None
    explanation = tag("dl", *(_fact(*fact) for fact in _facts(job, now_s)), class_="facts")
    title = f"Job {job.id}: {job.name or job.family or 'without a name'}"
    late = job.deadline in ("past", "missed")
    mark = join("deadline: ", tables.deadline_mark(job)) if late else None
    buttons = tag("div", *_buttons(job, caller), class_="actions")
    tools = join(tables.state(job.state), tag("span", mark) if late else None, buttons)
    body = join(old_state([job.age_s]), reason, tables.progress(job), explanation)
    return Section("facts", title, body, FAST, tools=tools)


def _fact(title: str, value: object) -> Html:
    return tag("div", tag("dt", title), tag("dd", value))


def _facts(job: JobView, now_s: float) -> list[tuple[str, object]]:
    ended = now_s if job.ended_s is None else job.ended_s
    started = (
        "not yet" if job.started_s is None else f"after {duration(job.started_s - job.submitted_s)}"
    )
    return [
        ("Tenant and user", join(name(job.tenant), " · ", name(job.user))),
        ("Family", name(job.family)),
        ("Devices", f"{job.scale_factor}, weight {job.weight:g}"),
        ("Runs on", tables.place(job)),
        ("Left if it keeps its devices", duration(tables.left_s(job))),
        (
            "Steps in its newest checkpoint",
            "none" + _starts_over(job) if job.starts_over else count(job.saved_step),
        ),
        ("In the system for", duration(ended - job.submitted_s)),
        ("First step", started),
        ("On devices for", duration(job.run_s)),
        ("Overhead", duration(job.overhead_s)),
        (f"Steps {'lost' if job.gave_up else 'done again'}", count(job.lost_steps)),
        ("Starts", f"{job.starts}: {job.preemptions} preempted, {job.failures} failed"),
        (
            "Steps per second, measured",
            DASH if job.measured_rate is None else f"{job.measured_rate:.4g}",
        ),
        ("Steps per second, believed", _rates(job)),
        ("Deadline", _deadline(job, now_s)),
        ("Array", _array(job)),
        ("After", ", ".join(job.after) or DASH),
        ("Search", _trial(job)),
    ]


def _starts_over(job: JobView) -> str:
    unless = ", unless it is parked" if job.is_suspended else ""
    return f": it starts again from zero when it is stopped{unless}" if job.ended_s is None else ""


def _array(job: JobView) -> object:
    """Which task of which array a job is, with a link to all of them."""
    if job.array is None:
        return DASH
    tasks = link(address("/jobs", array=job.array), f"array {job.array}")
    return join(f"task {job.array_index} of ", tasks, f", which has {count(job.array_count or 0)}")


def _trial(job: JobView) -> object:
    """Which trial of which search a job is, and its parameters."""
    if job.search is None:
        return DASH
    parameters = ", ".join(f"{key} = {value}" for key, value in job.parameters.items())
    search = link(f"/searches/{job.search}", f"search {job.search}")
    return join(f"trial {job.trial} of ", search, f": {parameters}")


def _deadline(job: JobView, now_s: float) -> str | Html:
    """The deadline as a time, and how the job stands to it."""
    if job.slo_s is None:
        return DASH
    at = time.gmtime(time.time() + job.submitted_s + job.slo_s - now_s)
    standing = tables.deadline_mark(job)
    more = join(": ", standing) if standing != DASH else None
    return join(f"{time.strftime('%Y-%m-%d %H:%M:%S', at)} UTC", more)


def _rates(job: JobView) -> str:
    if not job.rate_known:
        return "not known: neither stated nor measured"
    return ", ".join(f"{kind} {rate:.4g}" for kind, rate in sorted(job.rates.items())) or DASH


def may_change(caller: Caller, job: JobView) -> bool:
    """An administrator may change all jobs, a user those of their tenant."""
    return caller.role == "admin" or (caller.role == "user" and caller.tenant == job.tenant)


def _buttons(job: JobView, caller: Caller) -> list[Html]:
    if job.state in ENDED_STATES or not may_change(caller, job):
        return []
    here = f"/jobs/{job.id}"
    change = ("resume", "Resume") if job.state == "paused" else ("pause", "Pause")
    ask = f"Cancel job {job.id}? It cannot be taken back."
    return [button(f"{here}/{change[0]}", change[1]), button(f"{here}/cancel", "Cancel", ask)]


def attempts_section(job: JobView, attempts: list[AttemptView], now_s: float) -> Section:
    """Return the section with place, time and cost of each attempt."""
    shown = attempts[-ATTEMPTS:]
    picture = scroll("Timeline", charts.timeline(attempts, job.submitted_s, now_s))
    parts = [picture]
    if attempts:
        parts.append(
            note("Darker: handover of the devices, starting and loading; saving and stopping.")
        )
        parts.append(tables.attempts_table(shown, now_s))
    if len(shown) < len(attempts):
        parts.append(note(f"The newest {len(shown)} of {len(attempts)} attempts."))
    return Section("attempts", "Attempts and what they cost", join(*parts), FAST)


def _later(job: JobView) -> Section:
    """Return the section that stands in for the story until that is there."""
    whole = address(f"/jobs/{job.id}", all=1)
    without = tag("noscript", link(whole, "Show why it is here and when it will end"))
    # Only a script would ever put something else in its place.
    waiting = tag("p", "The forecast is being made.", class_="note", data_later=True, hidden=True)
    return Section("story", EXPLANATION_TITLE, join(waiting, without), SLOW)


def _story(forecasts: Forecasts, caller: Caller, job: JobView, now_s: float) -> Section:
    """The story, or why there is none now: the rest of the page does not depend on it."""
    try:
        explanation = forecasts.of(caller, job)
    except NotFoundError:
        raise
    except FairleadError as problem:
        return Section("story", EXPLANATION_TITLE, note(f"No forecast: {problem}"), SLOW)
    return attempt_history(explanation, now_s)


def attempt_history(explanation: Explanation, now_s: float) -> Section:
    """Return the section on why it is where it is, when it will end, and what happened to it."""
    events = explanation.events[-EVENTS:]
    items = (
        tag("li", tag("time", ago(time_s, now_s)), " ", words) for time_s, words in reversed(events)
    )
    parts = [tag("p", explanation.why_here), tag("p", *_finish(explanation))]
    if events:
        parts.append(tag("h3", "Events, newest first"))
        parts.append(tag("ul", *items, class_="events", tabindex="0", aria_label="Events"))
    return Section("story", EXPLANATION_TITLE, join(*parts), SLOW)


def _finish(explanation: Explanation) -> tuple[object, ...]:
    if explanation.job.state in ENDED_STATES:
        return (f"It has ended: {explanation.job.state}.",)
    if explanation.no_end:
        return (f"No end is forecast: {NO_END[explanation.no_end]}.",)
    if explanation.forecast_kind == "none yet":
        return ("The forecast is being made.",)
    if not explanation.forecasts:
        return ("No forecast: it takes no part now.",)
    if explanation.finish_s is None:
        return (f"No end within the horizon of {counted(explanation.forecasts, 'forecast')}.",)
    low, high = explanation.finish_low_s, explanation.finish_high_s
    between = (
        ""
        if low is None or high is None
        else f", {explanation.interval_words} between {duration(low)} and {duration(high)}"
    )
    when = tag("strong", f"in {duration(explanation.finish_s)}")
    return ("Expected to finish ", when, f"{between}{_worth(explanation)}.")


def _worth(explanation: Explanation) -> str:
    """Return how the forecast was made."""
    age = (
        ""
        if explanation.forecast_age_s is None
        else f", made {duration(explanation.forecast_age_s)} ago"
    )
    coarse = ""
    if explanation.forecast_kind == "coarse":
        exact_s = explanation.forecast_exact_s or 0.0
        coarse = f"; coarse beyond {duration(exact_s)}" if exact_s >= 1 else "; coarse"
    assumed = f"; {explanation.calibration_words}" if explanation.calibration_words else ""
    return f" ({counted(explanation.forecasts, 'forecast')}{age}{coarse}{assumed})"


def tracebacks(attempts: list[AttemptView]) -> list[Section]:
    """Return the section with all that is known of the last attempt that failed or hung; [] = none has."""
    last = next((attempt for attempt in reversed(attempts) if attempt.traceback), None)
    if last is None:
        return []
    text = tag(
        "pre", strip_escapes(last.traceback), class_="log", tabindex="0", aria_label="Traceback"
    )
    where = note(f"Attempt {last.attempt}, on {last.node}: {last.why or 'it runs'}.")
    return [Section("traceback", "The last failure", join(where, text), FAST)]


def tail(facade: Facade, caller: Caller, job: int) -> tuple[str, str]:
    """The end of a job's output, and the cursor after it."""
    return facade.log(caller, job, "tail", TAIL)


def log_section(job: JobView, text: str, cursor: str) -> Section:
    """The newest output; the page's script appends what comes later."""
    box = tag(
        "pre",
        strip_escapes(text) or "No output yet.",
        id="log",
        tabindex="0",
        role="log",
        aria_label="Output of the job",
        data_log=f"/jobs/{job.id}/tail",
        data_cursor=cursor,
        data_empty=None if text else "1",
    )
    return Section("output", "Output", box)
