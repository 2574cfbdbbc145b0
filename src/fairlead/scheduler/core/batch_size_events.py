"""Handlers of changes of jobs' batch sizes."""

from functools import partial

from fairlead.errors import ProtocolError
from fairlead.model.commands import Command
from fairlead.model.events import RequirementsChanged
from fairlead.model.job import JobId
from fairlead.model.job_type import JobType
from fairlead.model.plan import Change
from fairlead.model.rates import isolated_rate
from fairlead.scheduler.core.rate_events import assign_beliefs
from fairlead.scheduler.core.scheduler_data import (
    SchedulerData,
    ledger_of,
    running_jobs,
    slots_that_fit,
)
from fairlead.scheduler.core.snapshots import take_snapshot


def requirements_changed(s: SchedulerData, event: RequirementsChanged) -> list[Command]:
    """Jobs train on with other batch sizes; those that run, when their round is reported."""
    running = running_jobs(s)
    now: dict[int, tuple[int, float, float]] = {}
    columns = (event.jobs, event.batch, event.total_steps, event.steps_done)
    for job, batch, total, done in zip(*(c.tolist() for c in columns), strict=True):
        ledger_of(s, job, "cannot change its batch size")
        (s.deferred.adapting if job in running else now)[job] = (batch, total, done)
    adapt(s, now, event.time_s)
    return []


def adapt(s: SchedulerData, changes: dict[int, tuple[int, float, float]], time_s: float) -> None:
    """Jobs, none of them running, go on at other batch sizes: job -> (batch size, total, done)."""
    if not changes:
        return
    settles = s.options.settings.shockwave.settle_on_adaptation
    if settles:
        _settle_isolated(s, time_s)
    for job, (batch, total, done) in changes.items():
        ledger = s.ledger if JobId(job) in s.ledger else s.paused_jobs
        row = ledger.row(JobId(job))
        job_type = s.throughputs.job_types[ledger.jobs.job_type[row]]
        ledger.adapt(
            row,
            batch,
            total=total,
            done=done,
            row_at=partial(row_at_batch_size, s, job_type),
            fits=slots_that_fit(s, job_type.scale_factor),
            settled=settles,
        )
    here = {job: s.deferred.expected.pop(job) for job in changes if job in s.deferred.expected}
    if here:
        assign_beliefs(s, here)
    if settles:
        _settle_isolated(s, time_s)
    s.planning.note(Change.REQUIREMENTS)


def _settle_isolated(s: SchedulerData, time_s: float) -> None:
    rate = isolated_rate(take_snapshot(s, time_s), s.options.settings.gavel.weighted_isolation)
    s.ledger.settle_isolated(rate)


def row_at_batch_size(s: SchedulerData, job_type: JobType, batch: int) -> int:
    """Row of the throughput table for a job type at another batch size; 0 = its own."""
    other = job_type.with_batch_size(batch) if batch else job_type
    row = s.throughputs.row(other)
    if row is None:
        raise ProtocolError(f"no rate for {other}")
    return row
