"""What must hold of a scheduler after every event. Tests and debugging call this; the hot path does not."""

import numpy as np

from fairlead.errors import FairleadError
from fairlead.scheduler.core.lifecycle import JobPhase
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.placement.servers import are_spread


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
        raise InvariantError(f"round {s.round}: a device runs two units")
    for i, unit in enumerate(s.running.unit.tolist()):
        if unit < 0 or s.running.slot[i] < 0:  # its job, or its devices, have left since it began
            continue
        mine = devices[s.running.first[i] : s.running.first[i + 1]]
        if len(mine) != s.ledger.units.scale[unit]:
            raise InvariantError(f"round {s.round}: unit row {unit} holds {len(mine)} devices")
        kind = s.running.accelerator_of_slot[s.running.slot[i]]
        if (s.cluster.device_type[mine] != kind).any():
            raise InvariantError(f"round {s.round}: unit row {unit} holds devices of another type")
    if s.running.spread.any():
        _check_locality(s)


def _check_locality(s: Scheduler) -> None:
    cluster = s.cluster
    rows = np.flatnonzero(s.running.slot >= 0)
    slot = s.running.slot[rows]
    first = np.append(s.running.first[rows], len(s.running.devices))
    places = (first, s.running.devices, cluster.device_type, cluster.device_node)
    spread = are_spread(*places, s.running.fewest)
    wrong = (spread != s.running.spread[slot]) & (s.throughputs.sibling[slot] >= 0)
    if wrong.any():
        raise InvariantError(f"round {s.round}: a unit is not where its slot type says")


def _check_jobs(s: Scheduler) -> None:
    jobs, units = s.ledger.jobs, s.ledger.units
    ids = np.concatenate([jobs.id, s.held.jobs.id])
    if len(np.unique(ids)) != len(ids):
        raise InvariantError("a job is in the system twice")
    if (np.diff(jobs.id) < 0).any() or (np.diff(s.held.jobs.id) < 0).any():
        raise InvariantError("jobs are not in order of their ids")
    if (units.member[s.ledger.alone(), 0] != np.arange(jobs.n)).any():
        raise InvariantError("single units are not in order of their jobs")
    rows = s.running.unit[s.running.unit >= 0]
    member = units.member[rows]
    running = member[member >= 0]
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
    if len(units.member) and (units.member.max(axis=1) >= jobs.n).any():
        raise InvariantError("a unit names a job that is not there")
    if (units.share < -1e-9).any() or (units.share > 1 + 1e-6).any():
        raise InvariantError("a share is outside [0, 1]")
