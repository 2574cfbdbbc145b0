"""Handlers of jobs that arrive, leave, are paused, corrected or given another weight."""

from functools import partial

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.commands import Command, JobEnd
from fairlead.model.events import (
    DevicesBound,
    DevicesKept,
    DevicesOccupied,
    JobsPaused,
    JobsReweighted,
    JobsSubmitted,
    NodesAvoided,
    ProgressCorrected,
    RestartCostsLearned,
)
from fairlead.model.job import Job, JobId
from fairlead.model.job_index import rows_of
from fairlead.model.plan import Change
from fairlead.scheduler.core.batch_size_events import row_at_batch_size
from fairlead.scheduler.core.bound_jobs import BoundJobs, DevicePositions
from fairlead.scheduler.core.decisions import end_round_early, retire, when_idle
from fairlead.scheduler.core.lifecycle import JobPhase
from fairlead.scheduler.core.paused_jobs import pause, resume, retire_paused
from fairlead.scheduler.core.rate_events import assign_beliefs
from fairlead.scheduler.core.resizing import admit_elastic
from fairlead.scheduler.core.scheduler_data import (
    SchedulerData,
    ledger_of,
    running_jobs,
    slots_that_fit,
)


def submitted(s: SchedulerData, event: JobsSubmitted) -> list[Command]:
    """Jobs arrive."""
    for job in event.jobs:
        _admit(s, job, event.time_s)
    if s.deferred.expected:
        ids = [job.id for job in event.jobs if job.id in s.deferred.expected]
        assign_beliefs(s, {job: s.deferred.expected.pop(job) for job in ids})
    s.planning.note(Change.JOBS)
    return when_idle(s, event.time_s)


def _admit(s: SchedulerData, job: Job, time_s: float) -> None:
    job_type = s.throughputs.row(job.job_type)
    if job_type is None:
        raise ProtocolError(f"job {job.id}: no rate for {job.job_type}")
    if job.id in s.ledger or job.id in s.paused_jobs:
        raise ProtocolError(f"job {job.id}: a job with this id is in the system already")
    admit_elastic(s, job)
    ledger = s.ledger if job.id > s.ledger.last_id else s.ledger.for_paused_jobs()
    ledger.add(
        job,
        time_s,
        job_type=job_type,
        row_at=partial(row_at_batch_size, s, job.job_type),
        restart_s=s.options.restart_costs.of(job),
        limit_s=_limit_s(s, job),
        fits=slots_that_fit(s, job.scale_factor),
    )
    if ledger is not s.ledger:  # not the largest id: sort the job in by way of another ledger
        s.running.renumber(s.ledger.take_over(ledger, np.zeros(1, np.int64)))


def _limit_s(s: SchedulerData, job: Job) -> float:
    """Run time after which a job counts as completed, whatever it has left."""
    if job.duration_s is None or s.options.settings.shockwave.overtime == np.inf:
        return np.inf
    return float(int(s.options.settings.shockwave.overtime * job.duration_s))


def withdrawn(
    s: SchedulerData, jobs: tuple[JobId, ...], end: JobEnd, time_s: float
) -> list[Command]:
    """Jobs leave by the will of their owners, or are given up."""
    cannot = "cannot cancel" if end is JobEnd.CANCELLED else "cannot drop it"
    for job in jobs:
        ledger_of(s, job, cannot)
    named = np.array(jobs, np.int64)
    runs = not running_jobs(s).isdisjoint(named.tolist())  # else the round does not notice
    left = retire(
        s,
        np.where(np.isin(s.ledger.jobs.id, named), int(end), 0),
        np.full(s.ledger.jobs.n, time_s),
        time_s,
    )
    left += retire_paused(s, np.isin(s.paused_jobs.jobs.id, named), end, time_s)
    if runs:
        return [*left, *end_round_early(s, time_s)]
    return [*left, *when_idle(s, time_s)]


def nodes_avoided(s: SchedulerData, event: NodesAvoided) -> list[Command]:
    """From the next round on a job is placed on other nodes."""
    ledger_of(s, event.job, "cannot avoid nodes")
    s.running.avoids.pop(event.job, None)
    if event.nodes:
        s.running.avoids[event.job] = event.nodes
    return []


def devices_bound(s: SchedulerData, event: DevicesBound) -> list[Command]:
    """From the next round on a job runs on these devices or not at all; it causes no decision."""
    ledger_of(s, event.job, "cannot bind it to devices")
    before = _bound_slots(s, s.bound_jobs.devices.get(event.job, ()), event.job)
    s.bound_jobs.bind(event.job, event.devices)
    if before != _bound_slots(s, event.devices, event.job):
        s.planning.note(Change.REQUIREMENTS)
    return []


def devices_occupied(s: SchedulerData, event: DevicesOccupied) -> list[Command]:
    """From the next round on other devices are preferred; it causes no decision."""
    s.occupied = event.devices
    return []


def _bound_slots(s: SchedulerData, devices: DevicePositions, job: JobId) -> list[int]:
    """The slot type on which a job runs that is bound to these devices; none: any."""
    bound = BoundJobs({job: devices} if devices else {})
    groups = bound.groups(s.ledger, s.cluster, s.running.topology)
    return [one.slot for one in groups.values()]


def progress_corrected(s: SchedulerData, event: ProgressCorrected) -> list[Command]:
    """Steps that jobs have for certain replace what was counted."""
    changed = False
    for ledger in (s.paused_jobs, s.ledger):
        jobs = ledger.jobs
        row, here = rows_of(jobs.id, event.jobs)
        row, done = row[here], event.steps_done[here]
        changed |= bool((jobs.done[row] != done).any())
        jobs.done[row] = done
    runs = (jobs.state[row] == JobPhase.RUNNING) & s.round.active
    s.round.corrected |= bool(runs.any())
    end = np.zeros(jobs.n, np.int64)
    end[row[~runs & (done >= jobs.total[row])]] = JobEnd.COMPLETED
    left = retire(s, end, np.full(len(end), event.time_s), event.time_s)
    over = s.paused_jobs.jobs.done >= s.paused_jobs.jobs.total
    left += retire_paused(s, over, JobEnd.COMPLETED, event.time_s)
    return [*left, *when_idle(s, event.time_s)] if changed or left else left


def restart_costs_learned(s: SchedulerData, event: RestartCostsLearned) -> list[Command]:
    """Restart costs count from the next decision on; they cause none."""
    if not np.all((event.restart_s >= 0) & np.isfinite(event.restart_s)):
        raise ProtocolError(f"restart costs must be finite and >= 0, got {event.restart_s}")
    for ledger in (s.paused_jobs, s.ledger):
        row, here = rows_of(ledger.jobs.id, event.jobs)
        ledger.jobs.restart_s[row[here]] = event.restart_s[here]
    return []


def devices_kept(s: SchedulerData, event: DevicesKept) -> list[Command]:
    """Time for which jobs kept devices counts from the next decision on; it causes none."""
    if not np.all((event.kept_s >= 0) & np.isfinite(event.kept_s)):
        raise ProtocolError(f"times must be finite and >= 0, got {event.kept_s}")
    first = {slot.accelerator: k for k, slot in reversed(list(enumerate(s.slots)))}
    slot = np.array([first.get(name, -1) for name in event.accelerators], np.int64)
    for ledger in (s.paused_jobs, s.ledger):
        row, here = rows_of(ledger.jobs.id, event.jobs)
        here &= slot >= 0
        job, kept_s = row[here], event.kept_s[here]
        np.add.at(ledger.runs.ran_s, job, kept_s)
        at = ledger.single_job_rows()[job], slot[here]
        np.add.at(ledger.groups.received_s, at, kept_s)
        np.add.at(s.ledger.allocated_s, slot[here], kept_s)
    return []


def reweighted(s: SchedulerData, event: JobsReweighted) -> list[Command]:
    """Jobs count for more or less from now on."""
    given = list(zip(event.jobs.tolist(), event.weight.tolist(), strict=True))
    for job, weight in given:
        ledger_of(s, job, "cannot change its weight")
        if not 0 < weight < np.inf:
            raise ProtocolError(f"job {job}: its weight must be a number > 0, got {weight}")
    for job, weight in given:
        ledger = ledger_of(s, job, "")
        ledger.reweigh(ledger.row(JobId(job)), weight)
    s.planning.note(Change.JOBS)
    return when_idle(s, event.time_s)


def _paused(s: SchedulerData, event: JobsPaused) -> list[Command]:
    named = event.jobs.tolist()
    for job in named:
        ledger_of(s, job, "cannot pause it")
    running = running_jobs(s)
    s.deferred.to_pause.update(running.intersection(named))
    waiting = [job for job in named if job not in running and JobId(job) in s.ledger]
    pause(s, waiting, event.time_s)
    if running.intersection(named):
        return end_round_early(s, event.time_s)
    return when_idle(s, event.time_s)


def _resumed(s: SchedulerData, event: JobsPaused) -> list[Command]:
    for job in event.jobs.tolist():
        ledger_of(s, job, "cannot resume it")
    s.deferred.to_pause.difference_update(event.jobs.tolist())
    if not resume(s, event.jobs, event.time_s):
        return []
    return when_idle(s, event.time_s)


def paused_or_resumed(s: SchedulerData, event: JobsPaused) -> list[Command]:
    """Owners pause jobs, or resume them."""
    return _paused(s, event) if event.paused else _resumed(s, event)
