"""Handlers of rates that are learned, of job types and of single jobs."""

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.commands import Command
from fairlead.model.events import JobTypesLearned, RatesLearned
from fairlead.model.job import JobId
from fairlead.model.plan import Change
from fairlead.scheduler.core.decisions import when_idle
from fairlead.scheduler.core.scheduler_data import (
    SchedulerData,
    devices_per_slot,
)


def job_types_learned(s: SchedulerData, event: JobTypesLearned) -> list[Command]:
    """Rows of the throughput table, new or better known."""
    s.beliefs.learn_job_types(event)
    follow_table(s)
    s.planning.note(Change.REQUIREMENTS)
    return when_idle(s, event.time_s)


def rates_learned(s: SchedulerData, event: RatesLearned) -> list[Command]:
    """Beliefs about single jobs; they are no reason for a decision."""
    changed = s.beliefs.learn(event)
    s.running.use_table(s.throughputs)
    given = dict(zip(event.jobs.tolist(), event.name.tolist(), strict=True))
    here: dict[int, int] = {}
    for job, name in given.items():
        there = job in s.ledger or job in s.paused_jobs
        (here if there and job not in s.deferred.adapting else s.deferred.expected)[job] = name
    assign_beliefs(s, here, changed)
    return []


def assign_beliefs(s: SchedulerData, given: dict[int, int], changed: Ints | None = None) -> None:
    """Jobs in the system go by these beliefs, -1 = by their job type; job groups follow. changed: rows
    of the table with other rates than before."""
    for ledger in (s.ledger, s.paused_jobs):
        jobs = ledger.jobs
        ids = np.array(sorted(job for job in given if JobId(job) in ledger), np.int64)
        at = np.searchsorted(jobs.id, ids)
        name = [given[job] for job in ids.tolist()]
        row = s.beliefs.row
        job_type = jobs.job_type[at].tolist()
        jobs.rate_row[at] = [k if n < 0 else row[n] for k, n in zip(job_type, name, strict=True)]
        ledger.classify(at)
        some = np.zeros(jobs.n, np.bool_)
        some[at] = True
        if changed is not None:
            some |= np.isin(jobs.rate_row, changed)
            pair = None if ledger is s.paused_jobs else s.undominated.pair_rates
            ledger.set_rates(s.undominated.rate, pair)
        ledger.refresh_group_rates(some, devices_per_slot(s))
        if some.any():
            s.planning.note(Change.REQUIREMENTS)


def follow_table(s: SchedulerData) -> None:
    """Bring the rates of all job groups up to the table."""
    s.running.use_table(s.throughputs)
    devices = devices_per_slot(s)
    s.ledger.refresh_rates(s.undominated.rate, s.undominated.pair_rates, devices)
    s.paused_jobs.refresh_rates(s.undominated.rate, None, devices)
