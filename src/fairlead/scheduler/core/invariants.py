"""Invariants of a scheduler after every event. Tests and debugging call this; the hot path does not."""

import numpy as np

from fairlead.errors import FairleadError
from fairlead.scheduler.core.lifecycle import JobPhase
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.placement.servers import are_scattered


class InvariantError(FairleadError):
    """The scheduler's state contradicts itself: a defect of Fairlead."""


def check(scheduler: Scheduler) -> None:
    """Raise InvariantError with the first thing that does not hold."""
    if scheduler.data.round.active:
        _check_devices(scheduler)
    _check_jobs(scheduler)


def _check_devices(s: Scheduler) -> None:
    devices = s.data.running.devices
    if len(np.unique(devices)) != len(devices):
        raise InvariantError(f"round {s.data.round.number}: a device runs two job groups")
    for i, group in enumerate(s.data.running.job_group.tolist()):
        if (
            group < 0 or s.data.running.slot[i] < 0
        ):  # its job, or its devices, have left since it began
            continue
        mine = devices[s.data.running.offsets[i] : s.data.running.offsets[i + 1]]
        if len(mine) != s.data.ledger.groups.scale[group]:
            raise InvariantError(
                f"round {s.data.round.number}: job group {group} holds {len(mine)} devices"
            )
        accelerator_index = s.data.running.topology.accelerator_of_slot[s.data.running.slot[i]]
        if (s.data.cluster.device_type[mine] != accelerator_index).any():
            raise InvariantError(
                f"round {s.data.round.number}: job group {group} holds devices of another type"
            )
    if s.data.running.topology.scattered.any():
        _check_locality(s)


def _check_locality(s: Scheduler) -> None:
    cluster = s.data.cluster
    rows = np.flatnonzero(s.data.running.slot >= 0)
    slot = s.data.running.slot[rows]
    offsets = np.append(s.data.running.offsets[rows], len(s.data.running.devices))
    places = (offsets, s.data.running.devices, cluster.device_type, cluster.device_node)
    scattered = are_scattered(*places, s.data.running.topology.fewest_servers)
    mismatch = (scattered != s.data.running.topology.scattered[slot]) & (
        s.data.throughputs.other_locality[slot] >= 0
    )
    if mismatch.any():
        raise InvariantError(
            f"round {s.data.round.number}: a job group is not where its slot type says"
        )


def _check_jobs(s: Scheduler) -> None:
    jobs, groups = s.data.ledger.jobs, s.data.ledger.groups
    ids = np.concatenate([jobs.id, s.data.paused_jobs.jobs.id])
    if len(np.unique(ids)) != len(ids):
        raise InvariantError("a job is in the system twice")
    if (np.diff(jobs.id) < 0).any() or (np.diff(s.data.paused_jobs.jobs.id) < 0).any():
        raise InvariantError("jobs are not in order of their ids")
    if (groups.members[s.data.ledger.single_job_rows(), 0] != np.arange(jobs.n)).any():
        raise InvariantError("groups of one job are not in order of their jobs")
    rows = s.data.running.job_group[s.data.running.job_group >= 0]
    group_members = groups.members[rows]
    running = group_members[group_members >= 0]
    if len(np.unique(running)) != len(running):
        raise InvariantError(f"round {s.data.round.number}: a job runs in two places")
    if s.data.round.active:
        expected = np.zeros(jobs.n, np.bool_)
        expected[running] = True
        mismatch = np.flatnonzero((jobs.state == JobPhase.RUNNING) != expected)
        if len(mismatch):
            raise InvariantError(f"job {jobs.id[mismatch[0]]}: its state is not what it does")
    over = jobs.done >= jobs.total
    if s.data.round.active and s.data.round.corrected:
        over &= jobs.state != JobPhase.RUNNING
    if (jobs.done < 0).any() or over.any():
        raise InvariantError("a job in the system has no steps left, or more than it began with")
    if len(groups.members) and (groups.members.max(axis=1) >= jobs.n).any():
        raise InvariantError("a job group names a job that is not there")
    if (groups.share < -1e-9).any() or (groups.share > 1 + 1e-6).any():
        raise InvariantError("a share is outside [0, 1]")
