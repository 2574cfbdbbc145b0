"""Paused jobs: in the system, out of sight of planners."""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.commands import (
    Command,
    EndJobs,
    JobEnd,
)
from fairlead.model.plan import AccountingPlanner, Accounts, Change
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.core.lifecycle import JobPhase, phases_of_ends, transition
from fairlead.scheduler.core.scheduler_data import SchedulerData
from fairlead.scheduler.core.snapshots import make_snapshot


def end_jobs(ledger: Ledger, end: Ints, end_s: Floats, time_s: float) -> EndJobs:
    """Jobs end, those whose end is not 0; they are still to be removed. end, end_s: (jobs,)."""
    jobs, gone = ledger.jobs, end.nonzero()[0]
    ids, why = jobs.id[gone], end[gone]
    state = jobs.state[gone]
    transition(state, phases_of_ends(why), ids)
    jobs.state[gone] = state
    return EndJobs(time_s, ids, why, end_s[gone])


def retire_paused(s: SchedulerData, gone: Bools, end: JobEnd, time_s: float) -> list[Command]:
    """Paused jobs end. gone: (paused jobs,)."""
    if not gone.any():
        return []
    ends = np.where(gone, int(end), 0)
    command = end_jobs(s.paused_jobs, ends, np.full(len(ends), time_s), time_s)
    s.forget(command.jobs)
    s.paused_jobs.remove(gone)
    return [command]


def pause(s: SchedulerData, named: list[int], time_s: float) -> None:
    """Pause jobs, none of them running, with what they are owed now."""
    if not named:
        return
    jobs = s.ledger.jobs
    gone = np.isin(jobs.id, named)
    accounts = accounts_of(s, time_s)
    jobs.state[gone & (jobs.state == JobPhase.RUNNING)] = JobPhase.PREEMPTED
    s.paused_jobs.take_over(s.ledger, np.flatnonzero(gone))
    mine = np.isin(s.paused_jobs.jobs.id, named)
    rows = s.ledger.single_job_rows()[gone]
    s.paused_jobs.groups.received_s[mine] = accounts.received_s[rows]
    s.paused_jobs.groups.deficit_s[mine] = accounts.deficit_s[rows]
    s.running.remember_devices(jobs.id[gone], rows)
    s.running.renumber(s.ledger.remove(gone))
    s.planning.note(Change.JOBS)


def resume(s: SchedulerData, named: Ints, time_s: float) -> bool:
    """Put those of these jobs that are paused back among the others. Returns whether there was one."""
    gone = np.isin(s.paused_jobs.jobs.id, named)
    if not gone.any():
        return False
    s.running.renumber(s.ledger.take_over(s.paused_jobs, np.flatnonzero(gone)))
    back = np.isin(s.ledger.jobs.id, s.paused_jobs.jobs.id[gone])
    s.paused_jobs.remove(gone)
    groups, rows = s.ledger.groups, s.ledger.single_job_rows()[back]
    # Time since the accounts were settled is not owed to those that were paused.
    since_s = accounts_of(s, time_s).deficit_s[rows] - groups.deficit_s[rows]
    groups.deficit_s[rows] -= np.where(groups.share[rows] > 0, np.maximum(since_s, 0.0), 0.0)
    s.planning.note(Change.JOBS)
    return True


def accounts_of(s: SchedulerData, time_s: float) -> Accounts:
    """The accounts as settled at a time, where the planner settles them; nothing changes."""
    if isinstance(s.planning.planner, AccountingPlanner):
        return s.planning.planner.accounts(
            make_snapshot(s, time_s, regimes=False), s.planning.state
        )
    groups = s.ledger.groups
    return Accounts(groups.received_s, groups.deficit_s, s.ledger.allocated_s)
