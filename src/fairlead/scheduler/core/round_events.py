"""Handler of a round's report: what counts, which jobs leave, and changes deferred until then."""

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.arrays import Floats, Ints
from fairlead.model.commands import Command, JobEnd
from fairlead.model.events import RoundEnded
from fairlead.model.job import JobId
from fairlead.model.plan import Change
from fairlead.scheduler.core.batch_size_events import adapt
from fairlead.scheduler.core.decisions import decide, retire
from fairlead.scheduler.core.paused_jobs import pause
from fairlead.scheduler.core.round_reports import (
    GroupAccounts,
    RowsReported,
    apply_round_report,
    by_end,
    job_accounts,
)
from fairlead.scheduler.core.scheduler_data import (
    SchedulerData,
)


def round_ended(s: SchedulerData, event: RoundEnded) -> list[Command]:
    """Enter the report, apply deferred changes, and decide."""
    _check(s, event)
    ends = _enter_report(s, s.running.mapped(event))
    s.round.last_end_s = event.time_s
    s.round.active = s.round.ending = s.round.corrected = False
    left = [] if ends is None else retire(s, *ends, event.time_s)
    _apply_deferred(s, event.time_s)
    return [*left, *decide(s, event.time_s)]


def _check(s: SchedulerData, event: RoundEnded) -> None:
    """Raise ProtocolError unless the report is that of the round in force."""
    if not s.round.active or event.round != s.round.number:
        raise ProtocolError(
            f"report for round {event.round} refused: round {s.round.number} is "
            f"{'in force' if s.round.active else 'over'}"
        )
    if len(event.finish_s) != s.running.reported():
        raise ProtocolError(
            f"report for round {event.round} has {len(event.finish_s)} job groups, "
            f"{s.running.reported()} ran"
        )
    commanded = s.round.in_force
    if commanded is not None:  # kernels read what there should be
        shape = commanded.job_groups.shape
        if event.steps.shape != shape or event.outcome.shape != shape:
            raise ProtocolError(
                f"report for round {event.round} has steps of shape {event.steps.shape}, not {shape}"
            )


def _apply_deferred(s: SchedulerData, time_s: float) -> None:
    """Jobs that ran change their batch size or are paused now."""
    if s.deferred.adapting:
        waiting, s.deferred.adapting = s.deferred.adapting, {}
        here = {job: to for job, to in waiting.items() if JobId(job) in s.ledger}
        adapt(s, here, time_s)
    if s.deferred.to_pause:
        holding, s.deferred.to_pause = s.deferred.to_pause, set()
        pause(s, [job for job in holding if JobId(job) in s.ledger], time_s)


def _enter_report(s: SchedulerData, event: RoundEnded) -> tuple[Ints, Floats] | None:
    """Count what jobs did; (jobs,) how they end, 0 = they do not, and when; None where none ends."""
    jobs, settings = s.ledger.jobs, s.options.settings
    end, end_s = np.zeros(jobs.n, np.int64), np.zeros(jobs.n)
    failed, ended = apply_round_report(
        by_end(event.finish_s),
        _counts_from_s(s),
        settings.max_failures,
        _rows_reported(s, event),
        GroupAccounts(s.ledger.groups.members, s.ledger.groups.received_s, s.ledger.allocated_s),
        job_accounts(s.ledger, end, end_s),
    )
    if failed:
        s.planning.note(Change.JOBS)
    if s.round.corrected:
        done = (jobs.done >= jobs.total) & (end == 0)
        end[done], end_s[done] = JobEnd.COMPLETED, event.time_s
        ended = ended or bool(done.any())
    return (end, end_s) if ended else None


def _rows_reported(s: SchedulerData, event: RoundEnded) -> RowsReported:
    uncharged_s = event.restart_s
    if s.options.settings.shockwave.charge_startup:
        uncharged_s = np.zeros(len(event.finish_s))
    return RowsReported(
        group=s.running.job_group,
        slot=s.running.planned,
        relative_rate=s.running.relative_rate,
        steps=event.steps,
        outcome=event.outcome,
        finish_s=event.finish_s,
        start_s=uncharged_s,
    )


def _counts_from_s(s: SchedulerData) -> float:
    """When time begins to count as received: with the round, or where the last one ended."""
    if not s.options.settings.gavel.charge_idle_gaps:
        return s.round.started_s
    return 0.0 if s.round.last_end_s is None else s.round.last_end_s
