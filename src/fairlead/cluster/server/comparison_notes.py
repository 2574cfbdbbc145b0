"""What the answer to a what-if question says in words: of jobs without an end, and of what is not exact."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.cluster.forecasting.forecast import ForecastRun
from fairlead.cluster.protocol.api_models import ForecastSummary, NoEnd
from fairlead.cluster.server.admission import job_of
from fairlead.cluster.store.rows import JobRow
from fairlead.model.duration_text import duration
from fairlead.model.job import Job

HORIZON_S = 30 * 86_400.0
NAMED = 10  # jobs of a note
WAITS = "waits for devices that the cluster does not have"
_PLURALS = (
    ("waits for devices", "wait for devices"),
    ("waits for it ", "waits for them "),
    ("it can", "they can"),
    ("is paused", "are paused"),
    ("has", "have"),
    ("stands", "stand"),
    ("is on a silent node", "are on silent nodes"),
    ("is past", "are past"),
)
_NO_END: tuple[tuple[NoEnd, str], ...] = (
    ("stands still", "stands still and may hang"),
    ("node silent", "is on a silent node"),
    ("rate unknown", "has no rate yet, stated or measured"),
    ("finishing", "is past the last step and has not ended"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentJobs:
    """Open jobs that take no part, as it is and as it would be."""

    paused: frozenset[int]
    now: frozenset[int]  # without devices that they could run on
    then: frozenset[int]
    rows: Mapping[int, JobRow]  # of those without devices now

    @property
    def freed(self) -> frozenset[int]:
        """Those that would have devices then."""
        return self.now - self.then

    def joining(self, unplaced: Collection[int]) -> list[Job]:
        """Of these, those that the core has never heard of. unplaced: all such jobs."""
        return [job_of(self.rows[job]) for job in sorted(self.freed) if job in unplaced]

    def notes(self) -> tuple[str, ...]:
        """Which jobs these are."""
        found = (
            (self.now - self.then, f"{WAITS} now, and would have them then"),
            (self.then - self.now, "would have no devices then that it can run on"),
            (self.now & self.then, f"{WAITS}: no end is forecast"),
            (self.paused, "is paused: no end is forecast"),
        )
        return tuple(_sentence(jobs, words) for jobs, words in found if jobs)


def unfinished_notes(now: ForecastRun, then: ForecastRun) -> tuple[str, ...]:
    """Which jobs do not end within the horizon."""
    before, after = set(now.unfinished), set(then.unfinished)
    days = f"{HORIZON_S / 86400:.0f} days"
    notes = (
        (after - before, f"would not end within {days} then"),
        (before - after, f"would end then, but not within {days} as it is"),
        (before & after, f"would not end within {days} either way"),
    )
    return tuple(f"{_named(jobs)} {words}" for jobs, words in notes if jobs)


def _sentence(jobs: Collection[int], words: str) -> str:
    """On these jobs, in words for one."""
    if len(jobs) > 1:
        for one, many in _PLURALS:
            words = words.replace(one, many)
    return f"{_named(jobs)} {words}"


def _named(jobs: Collection[int]) -> str:
    """'job 3', 'jobs 3, 7', or the first of many and how many there are."""
    shown = ", ".join(str(job) for job in sorted(jobs)[:NAMED])
    rest = f" and {len(jobs) - NAMED:,} more" if len(jobs) > NAMED else ""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {shown}{rest}"


def coarse_note(now: ForecastRun, then: ForecastRun) -> tuple[str, ...]:
    """What of the answer is not exact."""
    exact_s = min(now.exact_s, then.exact_s)
    if exact_s == np.inf:
        return ()
    how = "estimated from shares, queue and rates alone: to simulate all rounds would have taken too long"
    if exact_s < 1:
        return (f"ends are {how}",)
    return (f"the next {duration(exact_s)} are simulated round by round; later ends are {how}",)


def no_end_notes(jobs: Mapping[int, NoEnd]) -> tuple[str, ...]:
    """Of which jobs no end is forecast. jobs: why, of each."""
    by_reason: dict[NoEnd, list[int]] = {}
    for job, why in jobs.items():
        by_reason.setdefault(why, []).append(job)
    return tuple(
        _sentence(by_reason[why], f"{words}: no end is forecast, and what waits for it is a guess")
        for why, words in _NO_END
        if why in by_reason
    )


def summary(
    outcome: ForecastRun,
    paused: Collection[int],
    without: Collection[int],
    no_end: Collection[int],
) -> ForecastSummary:
    """A forecast for people. paused, without, no_end: jobs that take no part, have no devices, or whose end
    is not forecast."""
    return ForecastSummary(
        makespan_s=outcome.makespan_s,
        mean_left_s=outcome.mean_left_s,
        finish_s=dict(outcome.finish_s),
        n_unfinished=len(outcome.unfinished),
        n_no_end=len(set(no_end).difference(without)),
        n_paused=len(paused),
        n_without_devices=len(without),
        utilization=outcome.utilization,
    )
