"""The history of a job in words: where it is and why, when it will end, and what its attempts cost."""

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from fairlead.analysis.report.metric_catalogue import counted
from fairlead.cli.terminal_views import (
    table,
    where,
)
from fairlead.cluster.protocol.api_models import (
    NO_END,
    AttemptView,
    Explanation,
    JobView,
)
from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.model.duration_text import DASH, ago, duration

_ATTEMPT = re.compile(r"attempt ([0-9]+) ")  # how an event of one begins
FAILED = "failed: "  # how the reason of an attempt that failed begins


def attempt_history(explanation: Explanation, now_s: float) -> Group:
    """The whole history, with ages at the time ``now_s``; a failure that repeats is described where it came
    last, and counted."""
    repeated = _repeated(explanation.attempts)
    parts: list[RenderableType] = [
        *map(Text, _head(explanation.job, now_s)),
        Text(explanation.why_here),
        Text(expected_end(explanation)),
    ]
    if explanation.attempts:
        parts += [Text(), _attempts_table(explanation.attempts, repeated, now_s)]
        parts += [
            Text(f"failed {one.times} times: {why.removeprefix(FAILED)}")
            for why, one in repeated.items()
        ]
        parts.append(Text(overhead_sentence(explanation)))
        parts += _traceback(explanation.attempts)
    if explanation.events:
        rows = [(ago(at_s, now_s), _event(words, repeated)) for at_s, words in explanation.events]
        parts += [Text(), table(">when event", rows)]
    return Group(*parts)


def expected_end(explanation: Explanation) -> str:
    """When it is expected to end, and how sure that is."""
    job = explanation.job
    if job.ended_s is not None:
        return f"Ended after {duration(job.ended_s - job.submitted_s)}."
    if explanation.no_end:
        return f"No end is forecast: {NO_END[explanation.no_end]}."
    if explanation.forecast_kind == "none yet":
        return "The forecast is being made: ask again in a moment."
    if not explanation.forecasts:
        return "No forecast: it takes no part now."
    if explanation.finish_s is None:
        return f"No end within the horizon of {counted(explanation.forecasts, 'forecast')}."
    sentence = f"Expected to end in {duration(explanation.finish_s)}"
    if explanation.finish_low_s is not None and explanation.finish_high_s is not None:
        between = f"{duration(explanation.finish_low_s)} and {duration(explanation.finish_high_s)}"
        sentence += f", {explanation.interval_words} between {between}"
    return f"{sentence} ({_forecast_basis(explanation)})."


def _forecast_basis(explanation: Explanation) -> str:
    """Return how the forecast was made, and how accurate such forecasts were."""
    parts = [counted(explanation.forecasts, "forecast")]
    if explanation.forecast_age_s is not None:
        parts.append(f"made {duration(explanation.forecast_age_s)} ago")
    if explanation.forecast_kind == "coarse":
        exact_s = explanation.forecast_exact_s or 0.0
        parts.append(f"coarse beyond {duration(exact_s)}" if exact_s >= 1 else "coarse")
    if explanation.forecast_error is not None:
        parts.append(f"typically {explanation.forecast_error:.0%} off")
    if explanation.calibration_words:
        parts.append(explanation.calibration_words)
    return ", ".join(parts)


def overhead_sentence(explanation: Explanation) -> str:
    """The sentence on the time for which the job held devices and did not train."""
    job = explanation.job
    failed = sum(attempt.end is AttemptEnd.FAILED for attempt in explanation.attempts)
    tries = max(failed - job.failures, 0)
    tried = f", {tries} attempt{'s' * (tries != 1)} without its checkpoints" if tries else ""
    least = "at least " if any(attempt.is_step_least for attempt in explanation.attempts) else ""
    on_devices_s = job.overhead_s - sum(max(one.wait_s, 0.0) for one in explanation.attempts)
    share = max(on_devices_s, 0.0) / job.run_s if job.run_s > 0 else 0.0
    part = f" ({share:.1%} of its time on devices)" if job.run_s > 0 else ""
    return (
        f"{counted(job.starts, 'start')}, {counted(job.preemptions, 'preemption')}, "
        f"{counted(job.failures, 'failure')}{tried}: "
        f"{duration(job.overhead_s)} of handing over devices, starting, loading, saving and stopping{part}, "
        f"{least}{counted(round(job.lost_steps), 'step')} {'lost' if job.gave_up else 'done again'}."
    )


def overhead_s(attempt: AttemptView) -> float | None:
    """Seconds for which an attempt had devices, or waited for them, and did not train; None = not known."""
    known = [part for part in attempt.overhead_parts_s if part >= 0]
    return sum(known) if known else None


class RepeatedFailure(NamedTuple):
    """How often attempts have failed for the same reason, and the last of them."""

    times: int
    attempt: int


def _repeated(attempts: Sequence[AttemptView]) -> dict[str, RepeatedFailure]:
    """Return the reasons of failures that occurred more than once."""
    numbers: dict[str, list[int]] = {}
    for attempt in attempts:
        if attempt.end is AttemptEnd.FAILED:
            numbers.setdefault(attempt.why, []).append(attempt.attempt)
    return {why: RepeatedFailure(len(n), max(n)) for why, n in numbers.items() if len(n) > 1}


def _short(sentence: str, repeated: dict[str, RepeatedFailure], attempt: int) -> str:
    """A sentence on an attempt, without the words of a failure that is described for a later one."""
    for why, one in repeated.items():
        if one.attempt != attempt:
            sentence = sentence.replace(why, "failed")
    return sentence


def _event(words: str, repeated: dict[str, RepeatedFailure]) -> str:
    """The words of an event, those of attempts as in their table."""
    found = _ATTEMPT.match(words)
    return words if found is None else _short(words, repeated, int(found[1]))


def _traceback(attempts: Sequence[AttemptView]) -> list[RenderableType]:
    """The traceback of the last attempt that failed or hung."""
    last = next((i for i in range(len(attempts) - 1, -1, -1) if attempts[i].traceback), None)
    if last is None:
        return []
    return [
        Text(),
        Text(f"Attempt {attempts[last].attempt}:"),
        Text(attempts[last].traceback.rstrip()),
    ]


def _head(job: JobView, now_s: float) -> list[str]:
    name = f" {job.name}" if job.name else ""
    family = f", {job.family}" if job.family else ""
    devices = counted(job.scale_factor, "device")
    node_text = f" on {where(job)}" if job.node else ""
    rate = "" if job.measured_rate is None else f", {job.measured_rate:.3g} steps/s"
    does = f"{job.state.capitalize()}{node_text}"
    if job.no_end == "ended":
        does = f"Ended{node_text}, not booked yet"
    return [
        f"Job {job.id}{name} of {job.user} ({job.tenant}){family}: {devices}, weight {job.weight:g}",
        f"{does}, step {job.steps:,.0f} of {job.total_steps:,.0f}"
        f" ({min(job.steps / max(job.total_steps, 1), 1.0):.0%}){rate}",
        *_deadline(job, now_s),
    ]


def _deadline(job: JobView, now_s: float) -> list[str]:
    """The deadline by this machine's clock; how the job stands to it is told by the explanation."""
    if job.slo_s is None:
        return []
    at = time.localtime(time.time() + job.submitted_s + job.slo_s - now_s)
    within = duration(job.slo_s)
    return [f"Deadline {time.strftime('%Y-%m-%d %H:%M:%S', at)}, {within} after it was submitted"]


def _last_step(attempt: AttemptView) -> str:
    if attempt.is_step_unknown:
        return "?"
    return f"{max(attempt.to_step, attempt.reached_step):,.0f}"


def _part(seconds: float) -> str:
    """A part of the cost; -1 = not known."""
    return duration(seconds) if seconds >= 0 else DASH


def _attempts_table(
    attempts: Sequence[AttemptView], repeated: dict[str, RepeatedFailure], now_s: float
) -> RenderableType:
    rows = []
    for attempt in attempts:
        ended = attempt.ended_s
        rows.append(
            (
                attempt.attempt,
                f"{attempt.node} {attempt.accelerator}:{','.join(map(str, attempt.devices))}",
                ago(attempt.began_s, now_s),
                "now" if ended is None else duration(ended - attempt.began_s),
                f"{attempt.from_step:,.0f}-{_last_step(attempt)}",
                *map(_part, attempt.overhead_parts_s),
                f"{attempt.lost_steps:,.0f}" if attempt.lost_steps else DASH,
                duration(overhead_s(attempt)),
                _short(attempt.why, repeated, attempt.attempt) or DASH,
            )
        )
    columns = (
        ">attempt where >began >for >steps >handover >start >load >save >stop >lost >cost ended"
    )
    return table(columns, rows)
