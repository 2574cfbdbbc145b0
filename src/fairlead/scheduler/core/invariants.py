"""What must hold of a scheduler after every event. Tests and debugging call this; the hot path does not."""

import numpy as np

from fairlead.errors import FairleadError
from fairlead.scheduler.core.lifecycle import JobPhase
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.placement.servers import are_scattered


class InvariantError(FairleadError):
    """The scheduler's state contradicts itself: a defect of Fairlead."""


def check(scheduler: Scheduler) -> None:
    """Raise InvariantError with the first thing that does not hold."""
    if scheduler.active:
        _check_devices(scheduler)
    _check_jobs(scheduler)


def _check_devices(s: Scheduler) -> None:
    devices = s.running.devices
    if len(np.unique(devices)) != len(devices):
        raise InvariantError(f"round {s.round}: a device runs two job groups")
    for i, group in enumerate(s.running.job_group.tolist()):
        if group < 0 or s.running.slot[i] < 0:  # its job, or its devices, have left since it began
            continue
        mine = devices[s.running.first[i] : s.running.first[i + 1]]
        if len(mine) != s.ledger.groups.scale[group]:
            raise InvariantError(f"round {s.round}: job group {group} holds {len(mine)} devices")
        accelerator_index = s.running.site.accelerator_of_slot[s.running.slot[i]]
        if (s.cluster.device_type[mine] != accelerator_index).any():
            raise InvariantError(
                f"round {s.round}: job group {group} holds devices of another type"
            )
    if s.running.site.scattered.any():
        _check_locality(s)


def _check_locality(s: Scheduler) -> None:
    cluster = s.cluster
    rows = np.flatnonzero(s.running.slot >= 0)
    slot = s.running.slot[rows]
    first = np.append(s.running.first[rows], len(s.running.devices))
    places = (first, s.running.devices, cluster.device_type, cluster.device_node)
    spread = are_scattered(*places, s.running.site.fewest)
    wrong = (spread != s.running.site.scattered[slot]) & (s.throughputs.sibling[slot] >= 0)
    if wrong.any():
        raise InvariantError(f"round {s.round}: a job group is not where its slot type says")


def _check_jobs(s: Scheduler) -> None:
    jobs, groups = s.ledger.jobs, s.ledger.groups
    ids = np.concatenate([jobs.id, s.paused_jobs.jobs.id])
    if len(np.unique(ids)) != len(ids):
        raise InvariantError("a job is in the system twice")
    if (np.diff(jobs.id) < 0).any() or (np.diff(s.paused_jobs.jobs.id) < 0).any():
        raise InvariantError("jobs are not in order of their ids")
    if (groups.members[s.ledger.single_job_rows(), 0] != np.arange(jobs.n)).any():
        raise InvariantError("groups of one job are not in order of their jobs")
    rows = s.running.job_group[s.running.job_group >= 0]
    group_members = groups.members[rows]
    running = group_members[group_members >= 0]
    if len(np.unique(running)) != len(running):
        raise InvariantError(f"round {s.round}: a job runs in two places")
    if s.active:
        expected = np.zeros(jobs.n, np.bool_)
        expected[running] = True
        wrong = np.flatnonzero((jobs.state == JobPhase.RUNNING) != expected)
        if len(wrong):
            raise InvariantError(f"job {jobs.id[wrong[0]]}: its state is not what it does")
    over = jobs.done >= jobs.total
    if s.active and s.corrected:
        over &= jobs.state != JobPhase.RUNNING
    if (jobs.done < 0).any() or over.any():
        raise InvariantError("a job in the system has no steps left, or more than it began with")
    if len(groups.members) and (groups.members.max(axis=1) >= jobs.n).any():
        raise InvariantError("a job group names a job that is not there")
    if (groups.share < -1e-9).any() or (groups.share > 1 + 1e-6).any():
        raise InvariantError("a share is outside [0, 1]")
