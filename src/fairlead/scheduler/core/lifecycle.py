"""The states of a job, and the only ways from one to the next.

WAITING --> RUNNING --> PREEMPTED --> RUNNING ...
   |           |            |
   +-----------+------------+--> COMPLETED | DROPPED | KILLED | CANCELLED
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.arrays import Bools, Ints
from fairlead.model.commands import JobEnd
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools2, Ints1, Ints2
from fairlead.scheduler.core.ledger import JobGroupTable, JobTable


class JobPhase(IntEnum):
    """Phase of a job in its life."""

    WAITING = 0  # has not run yet
    RUNNING = 1
    PREEMPTED = 2  # has run and waits
    COMPLETED = 3
    DROPPED = 4
    KILLED = 5
    CANCELLED = 6


_TRANSITIONS: dict[JobPhase, tuple[JobPhase, ...]] = {
    # Who does not run is completed by a correction of its steps.
    JobPhase.WAITING: (
        JobPhase.WAITING,
        JobPhase.RUNNING,
        JobPhase.COMPLETED,
        JobPhase.DROPPED,
        JobPhase.CANCELLED,
    ),
    JobPhase.RUNNING: (
        JobPhase.RUNNING,
        JobPhase.PREEMPTED,
        JobPhase.COMPLETED,
        JobPhase.DROPPED,
        JobPhase.KILLED,
        JobPhase.CANCELLED,
    ),
    JobPhase.PREEMPTED: (
        JobPhase.PREEMPTED,
        JobPhase.RUNNING,
        JobPhase.COMPLETED,
        JobPhase.DROPPED,
        JobPhase.CANCELLED,
    ),
}
ALLOWED: Bools = np.zeros((len(JobPhase), len(JobPhase)), np.bool_)  # [from, to]
for _state, _next in _TRANSITIONS.items():
    ALLOWED[_state, list(_next)] = True

PHASE_OF_END: dict[JobEnd, JobPhase] = {
    JobEnd.COMPLETED: JobPhase.COMPLETED,
    JobEnd.DROPPED: JobPhase.DROPPED,
    JobEnd.KILLED: JobPhase.KILLED,
    JobEnd.CANCELLED: JobPhase.CANCELLED,
}


_PHASES: Ints = np.array([-1, *(PHASE_OF_END[JobEnd(one)] for one in range(1, len(JobEnd) + 1))])


def phases_of_ends(end: Ints) -> Ints:
    """(jobs,) of ``JobPhase``: the phase that each of these ends, of ``JobEnd``, leads to."""
    return _PHASES[end]


def transition(state: Ints, to: Ints, jobs: Ints) -> None:
    """Set (jobs,) states in place; ProtocolError names the first job whose transition is not in the table."""
    allowed = ALLOWED[state, to]
    if not allowed.all():
        i = int(np.flatnonzero(~allowed)[0])
        raise ProtocolError(
            f"job {jobs[i]}: cannot go from {JobPhase(int(state[i])).name} to {JobPhase(int(to[i])).name}"
        )
    state[:] = to


_WAITING, _RUNNING, _PREEMPTED = (
    int(JobPhase.WAITING),
    int(JobPhase.RUNNING),
    int(JobPhase.PREEMPTED),
)


class _Advance(NamedTuple):
    """Jobs, and the job groups that run."""

    state: Ints1  # (jobs,) of ``JobPhase``
    members: Ints2  # (groups, width) rows of jobs, -1 = none
    running_on: Ints1  # (groups,) slot that is planned, -1 = does not run
    running: Ints1  # (running,) rows of job groups
    planned: Ints1  # (running,) slots
    allowed: Bools2  # [from, to]


@kernel("i8(_Advance, b1[::1])", allocates=False)
def _advance(jobs: _Advance, runs: Bools) -> int:
    """Set phases and slots in place; the first job whose transition is not allowed, -1 = none. runs: (jobs,)
    of False, to be filled."""
    state, members, allowed = jobs.state, jobs.members, jobs.allowed
    jobs.running_on[:] = -1
    for i in range(len(jobs.running)):
        u = jobs.running[i]
        jobs.running_on[u] = jobs.planned[i]
        for k in range(members.shape[1]):
            if members[u, k] >= 0:
                runs[members[u, k]] = True
    for j in range(len(state)):
        to = _RUNNING if runs[j] else (_WAITING if state[j] == _WAITING else _PREEMPTED)
        if not allowed[state[j], to]:
            return j
        state[j] = to
    return -1


def start_round(jobs: JobTable, groups: JobGroupTable, running: Ints, planned: Ints) -> None:
    """Set the states of jobs and the slots of job groups for a round: running, (running,) rows of job
    groups, run on these slots, the others wait. ProtocolError if the table of transitions forbids it."""
    state = jobs.state
    started = _Advance(state, groups.members, groups.running_on, running, planned, ALLOWED)
    bad = _advance(started, np.zeros(jobs.n, np.bool_))
    if bad >= 0:
        raise ProtocolError(
            f"job {jobs.id[bad]}: cannot run or wait, it is {JobPhase(state[bad]).name}"
        )
