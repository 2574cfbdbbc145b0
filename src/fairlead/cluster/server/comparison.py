"""The answer to a what-if question: what it says in figures, and in words of jobs without an end and of what
is not exact. Jobs of other tenants are in its sums, and nowhere else."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fairlead.cluster.forecasting.forecast import ForecastRun
from fairlead.cluster.front.facade import ForbiddenError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.api_models import Comparison, ForecastSummary, NoEnd, WhatIf
from fairlead.cluster.server.admission import job_of
from fairlead.cluster.server.deadline_forecasts import deadline_notes
from fairlead.cluster.store.rows import JobRow
from fairlead.model.duration_text import duration
from fairlead.model.job import Job
from fairlead.policies import registry

HORIZON_S = 30 * 86_400.0
NAMED = 10  # jobs of a note
MAX_LISTED_JOBS = 50  # jobs of a comparison that are named
WAITS = "waits for devices that the cluster does not have"
_PLURALS = (
    ("waits for devices", "wait for devices"),
    ("waits for other", "wait for other"),
    ("waits for it ", "waits for them "),
    ("it can", "they can"),
    ("is paused", "are paused"),
    ("has", "have"),
    ("stands", "stand"),
    ("is on a silent node", "are on silent nodes"),
    ("runs on a node that is", "run on nodes that are"),
    ("is past", "are past"),
    ("is over", "are over"),
    ("is being ended, and starts", "are being ended, and start"),
    ("reach its", "reach their"),
    ("than its", "than their"),
)
_NO_END: tuple[tuple[NoEnd, str], ...] = (
    ("stands still", "stands still and may hang"),
    ("node silent", "is on a silent node"),
    ("node unhealthy", "runs on a node that is given no jobs"),
    ("being ended", "is being ended, and starts again"),
    ("waits for storage", "cannot reach its checkpoints"),
    ("nothing starts", "is not started until nothing of before can run any more"),
    ("rate unknown", "has no rate yet, stated or measured"),
    ("finishing", "is past the last step and has not ended"),
    ("overdue", "has run for longer than its steps take"),
    ("ended", "is over, which is not booked yet"),
)


_Value = TypeVar("_Value")


def check_reads_no_file(caller: Caller, question: WhatIf) -> None:
    """Raise ForbiddenError where a user asks about a policy for which the server may read a file of its own:
    parts of it would come back in errors."""
    if caller.role != "admin" and registry.may_read_file(question.policy):
        raise ForbiddenError(
            f"policy {question.policy!r}: only an administrator may have the server read a file"
        )


@dataclass(frozen=True, slots=True)
class VisibleJobs:
    """The jobs that whoever asks may see."""

    jobs: frozenset[int] | None  # None = all

    def of(self, values: Mapping[int, _Value]) -> dict[int, _Value]:
        """Return the entries of a mapping by job that are of these jobs."""
        return {job: value for job, value in values.items() if self._has(job)}

    def names(self, jobs: Collection[int]) -> str:
        """'job 3', 'jobs 3, 7', or the first of many and how many there are; others are only counted."""
        seen = sorted(filter(self._has, jobs))[:NAMED]
        more = len(jobs) - len(seen)
        if not seen:
            return "1 job of others" if more == 1 else f"{more:,} jobs of others"
        rest = f" and {more:,} more" if more else ""
        return f"{'job' if len(jobs) == 1 else 'jobs'} {', '.join(map(str, seen))}{rest}"

    def _has(self, job: int) -> bool:
        return self.jobs is None or job in self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentJobs:
    """Open jobs that take no part, as it is and as it would be."""

    paused: frozenset[int]
    held: frozenset[int]  # they wait for other jobs
    now: frozenset[int]  # without devices that they could run on
    then: frozenset[int]
    rows: Mapping[int, JobRow]  # of those without devices now

    @property
    def freed(self) -> frozenset[int]:
        """Those that would have devices then."""
        return self.now - self.then

    def joining(self, unplaced: Collection[int]) -> list[Job]:
        """Return those of the jobs that the core has never heard of. unplaced: all such jobs."""
        return [job_of(self.rows[job]) for job in sorted(self.freed) if job in unplaced]

    def notes(self, visible: VisibleJobs) -> tuple[str, ...]:
        """Which jobs these are."""
        found = (
            (self.now - self.then, f"{WAITS} now, and would have them then"),
            (self.then - self.now, "would have no devices then that it can run on"),
            (self.now & self.then, f"{WAITS}: no end is forecast"),
            (self.paused, "is paused: no end is forecast"),
            (self.held, "waits for other jobs to end: no end is forecast"),
        )
        return tuple(_sentence(visible, jobs, words) for jobs, words in found if jobs)


def comparison(
    now: ForecastRun,
    then: ForecastRun,
    *,
    visible: VisibleJobs,
    absent: AbsentJobs,
    no_end: Mapping[int, NoEnd],
    deadlines: Mapping[int, float],
    added_notes: Sequence[str],
    age_s: float,
    error: float | None,
) -> Comparison:
    """The answer. no_end: jobs that take part and of which no end is forecast -> why; deadlines: job ->
    seconds until its deadline; added_notes: on jobs that would be added; age_s: of the present state; error:
    of coarse ends, relative, None = not known."""
    coarse = now.coarse or then.coarse
    return Comparison(
        now=_summary(now, absent.now, absent, no_end, visible),
        then=_summary(then, absent.then, absent, no_end, visible),
        changed=tuple(_changed_most(visible.of(now.finish_s), visible.of(then.finish_s))),
        notes=(
            *added_notes,
            *_unfinished_notes(now, then, visible),
            *absent.notes(visible),
            *_no_end_notes(no_end, visible),
            *coarse_note(now, then),
            *deadline_notes(now, then, visible.of(deadlines)),
        ),
        no_end=visible.of(no_end),
        forecast_kind="coarse" if coarse else "exact",
        forecast_age_s=age_s,
        forecast_exact_s=min(now.exact_s, then.exact_s) if coarse else None,
        forecast_error=error,
    )


def _changed_most(
    now_s: Mapping[int, float], then_s: Mapping[int, float]
) -> list[tuple[int, float, float]]:
    """Jobs that would end at another time, with both; those that change most first."""
    changed = [
        (job, now_s[job], then_s[job])
        for job in sorted(now_s.keys() & then_s.keys())
        if abs(now_s[job] - then_s[job]) > 1e-6
    ]
    changed.sort(key=lambda c: -abs(c[2] - c[1]))
    return changed[:MAX_LISTED_JOBS]


def _unfinished_notes(now: ForecastRun, then: ForecastRun, visible: VisibleJobs) -> tuple[str, ...]:
    """Return notes on jobs that do not end within the horizon."""
    before, after = set(now.unfinished), set(then.unfinished)
    days = f"{HORIZON_S / 86400:.0f} days"
    notes = (
        (after - before, f"would not end within {days} then"),
        (before - after, f"would end then, but not within {days} as it is"),
        (before & after, f"would not end within {days} either way"),
    )
    return tuple(f"{visible.names(jobs)} {words}" for jobs, words in notes if jobs)


def _sentence(visible: VisibleJobs, jobs: Collection[int], words: str) -> str:
    """Return a sentence on these jobs."""
    if len(jobs) > 1:
        for one, many in _PLURALS:
            words = words.replace(one, many)
    return f"{visible.names(jobs)} {words}"


def coarse_note(now: ForecastRun, then: ForecastRun) -> tuple[str, ...]:
    """Return a note on the part of the answer that is not exact; () = all of it is exact."""
    exact_s = min(now.exact_s, then.exact_s)
    if exact_s == np.inf:
        return ()
    how = "estimated from shares, queue and rates alone: to simulate all rounds would have taken too long"
    if exact_s < 1:
        return (f"ends are {how}",)
    return (f"the next {duration(exact_s)} are simulated round by round; later ends are {how}",)


def _no_end_notes(jobs: Mapping[int, NoEnd], visible: VisibleJobs) -> tuple[str, ...]:
    """Return notes on jobs whose end is not forecast. jobs: job -> reason."""
    by_reason: dict[NoEnd, list[int]] = {}
    for job, why in jobs.items():
        by_reason.setdefault(why, []).append(job)
    guess = "no end is forecast, and what waits for it is a guess"
    return tuple(
        _sentence(visible, by_reason[why], f"{words}: {guess}")
        for why, words in _NO_END
        if why in by_reason
    )


def _summary(
    run: ForecastRun,
    without: Collection[int],
    absent: AbsentJobs,
    no_end: Collection[int],
    visible: VisibleJobs,
) -> ForecastSummary:
    """A forecast for people. without: jobs that have no devices in it; no_end: those of which no end is
    forecast."""
    return ForecastSummary(
        makespan_s=run.makespan_s,
        mean_left_s=run.mean_left_s,
        finish_s=visible.of(run.finish_s),
        n_finished=len(run.finish_s),
        n_unfinished=len(run.unfinished),
        n_no_end=len(set(no_end).difference(without)),
        n_paused=len(absent.paused),
        n_without_devices=len(without),
        utilization=run.utilization,
    )
