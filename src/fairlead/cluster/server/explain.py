"""The explanation of why a job is where it is, or not yet anywhere: a list of facts, each checked against the
present state.

Read from any thread without waiting for the driver: what the core decided is copied when it decides
(``decided``), and what nodes hold is looked up. What is past is told with its time, never as the present.
"""

from collections.abc import Iterator, Sequence

from fairlead.cluster.protocol.api_models import ENDED_STATES, AttemptView, JobView
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.server.attempts import holder
from fairlead.cluster.server.being_stopped import place, stop_sentences
from fairlead.cluster.server.explain_decision import pair_sentence, share_sentence
from fairlead.cluster.server.explain_placement import cannot_go_on, placed
from fairlead.cluster.server.explain_waiting import waiting
from fairlead.cluster.server.explanation_source import ExplanationSource, Reader
from fairlead.cluster.server.loaded_checkpoint import describe_accepted_loss
from fairlead.model.duration_text import duration

MIN_DEVIATION = 0.1  # relative difference of a stated rate from the measured one
ENDINGS = (AttemptEnd.FAILED, AttemptEnd.NODE_LOST)  # how starts end that somebody should hear of


def explanation_facts(
    source: ExplanationSource,
    job: JobView,
    attempts: Sequence[AttemptView] = (),
    tenant: str | None = None,
) -> list[str]:
    """Sentences, the most important first, for a job in any state. tenant: of the user who is told, None =
    may see all jobs."""
    reader = Reader(source, tenant)
    facts = [sentence for sentence in _facts(reader, job, attempts) if sentence]
    unsaved = job.save_failed and job.state not in ENDED_STATES
    if unsaved and not any(job.save_failed in sentence for sentence in facts):
        facts.append(save_failure(job, source.state.now_s()))
    facts += _beginnings(source, job, told=" ".join(facts))
    return facts


def _beginnings(source: ExplanationSource, job: JobView, *, told: str) -> Iterator[str]:
    """Which checkpoints it last began with, and the next one will, where that is worth a word."""
    if job.origin:
        yield f"It last {job.origin}."
    row = source.state.registry.jobs.get(job.id)
    accepted = "" if row is None else describe_accepted_loss(row)
    if accepted and accepted not in told:
        yield f"{accepted[:1].upper()}{accepted[1:]}: it begins with what is there."


def _facts(reader: Reader, job: JobView, attempts: Sequence[AttemptView]) -> Iterator[str]:
    source = reader.source
    if source.state.halted:
        yield f"Nothing is scheduled: {source.state.halted}."
        if job.state not in ENDED_STATES:
            yield f"In this older copy it is {job.state}; what has become of it since is not known here."
            return
    if source.state.commit_error:
        yield (
            "Nothing can be written down just now, so nothing new begins, and no end of an attempt is "
            f"booked: {source.state.commit_error}."
        )
    if job.state in ("completed", "cancelled"):
        how = f": it {job.reason}" if job.state == "completed" and job.reason else ""
        yield f"It is {job.state}{how}."
        yield from _remains(source, job)
        yield stated(job)
        return
    if job.state in ("dropped", "killed"):
        yield f"It was {job.state}: {job.reason or 'no reason was given'}."
        return
    if job.state == "paused":
        yield "It is paused: `fairlead resume` lets it take part again."
        yield from _remains(source, job)
        yield last_failure(job, attempts, source.state.now_s())
        return
    if job.retry_in_s is not None:
        yield f"It waits without holding devices: {job.reason}."
        row = source.state.registry.jobs.get(job.id)
        for_storage = row is not None and row.recent_failures and row.recent_failures[-1].of_storage
        if row is not None and row.avoids and not for_storage:  # which nodes share
            yield f"It is placed off {', '.join(row.avoids)} if it can be."
        return
    row = source.state.registry.jobs.get(job.id)
    if row is not None and (why := source.admission.why_held(row)):
        yield f"It {why}."
        return
    if row is not None and (why := source.admission.why_waits(row)):
        yield f"It waits: there is {why}."
        yield from _remains(source, job)
        return
    if row is not None and row.failed:
        yield f"It waits for another try: {job.reason}."
    attempt = source.state.registry.newest(job.id)
    if attempt is not None and attempt.lost:
        yield from cannot_go_on(source, attempt)
    elif attempt is not None and not attempt.stopping:
        yield from placed(reader, job, attempt)
    else:
        yield from waiting(reader, job, attempts)
    yield share_sentence(source, job)
    yield pair_sentence(reader, job)
    yield starts_over(job, source.costs.why_not_parked(job.id))
    yield numbers(job)
    yield stated(job)
    yield last_failure(job, attempts, source.state.now_s())


def _remains(source: ExplanationSource, job: JobView) -> Iterator[str]:
    """Yield sentences on what still lives of a job that is not to run."""
    live = list(source.state.registry.live.get(job.id, ()))
    found = holder(live)
    if found is None or found.lost:
        return
    if found.stopping:
        yield from stop_sentences(source.state.fleet, live, source.state.now_s())
    else:
        number = found.record.attempt
        yield f"Its attempt {number} runs on {place(found)} until it is told to stop."


def starts_over(job: JobView, why_not_parked: str) -> str:
    """A sentence on a job whose progress is not kept; "" for others. why_not_parked: its program could not be
    parked for this; "" = it could, as far as is known."""
    unless = ", unless it is parked" if job.is_suspended else ""
    if job.is_suspended and why_not_parked:
        unless = f": it could not be parked ({why_not_parked}), and is spared for that"
    return f"It starts again from zero when it is stopped{unless}." if job.starts_over else ""


def numbers(job: JobView) -> str:
    """A sentence on the numbers of devices that an elastic job may have; "" for others."""
    if not job.may_have:
        return ""
    *more, last = map(str, job.may_have)
    counts = f"{', '.join(more)} or {last}" if more else last
    return f"It is elastic, and may have {counts} devices."


def save_failure(job: JobView, now_s: float) -> str:
    """A sentence on a job that has not saved since it could not."""
    ago_s = 0.0 if job.save_failed_s is None else now_s - job.save_failed_s
    return f"Its last save failed {duration(ago_s)} ago: {job.save_failed}."


def stated(job: JobView) -> str:
    """A sentence that holds what the owner stated against what was measured; "" where either is missing or
    they agree."""
    estimate, measured = job.user_estimates.get(job.measured_on, 0.0), job.measured_rate
    if not estimate or measured is None or abs(measured - estimate) <= MIN_DEVIATION * estimate:
        return ""
    if job.may_have:
        here = f"{job.scale_factor} x {job.measured_on}"
        return f"By what you said, {estimate:.3g} steps/s on {here}; measured {measured:.3g}."
    return f"You said {estimate:.3g} steps/s on {job.measured_on}, measured {measured:.3g}."


def last_failure(job: JobView, attempts: Sequence[AttemptView], now_s: float) -> str:
    """Return a sentence on the last failure and its age; "" where nothing failed since it last trained."""
    ended = [attempt for attempt in attempts if attempt.ended_s is not None]
    if not ended or job.state in ("running", "finishing"):
        return ""
    last = max(ended, key=lambda attempt: attempt.attempt)
    if last.ended_s is None or not (last.end in ENDINGS or last.traceback):
        return ""
    return f"Its last attempt ended {duration(now_s - last.ended_s)} ago: {last.why}."
