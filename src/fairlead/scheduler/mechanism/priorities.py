"""How urgent each (group, slot) is: the keys by which a round is filled, largest first."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Floats3, Ints1, Ints2
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.selection import Entries


class Claims(NamedTuple):
    """What job groups are entitled to, have received and could do. Arrays as in ``Snapshot``."""

    members: Ints2  # (groups, width) positions of jobs, -1 = none
    scale: Ints1  # (groups,) devices
    rate: Floats3  # (groups, slots, width) steps/s of each member; 0 = cannot run there
    share: Floats2  # (groups, slots)
    received_s: Floats2  # (groups, slots) run time since the accounts were last settled
    deficit_s: Floats2  # (groups, slots) time owed from before that
    running_on: Ints1  # (groups,) slot of the round that has just ended, -1 = did not run


class JobsToRun(NamedTuple):
    """What is left of each job, and what a start costs it. Arrays as in ``Snapshot``."""

    restart_s: Floats1  # (jobs,)
    steps_left: Floats1  # (jobs,)
    total_steps: Floats1  # (jobs,)


def claims_of(snapshot: Snapshot) -> Claims:
    """The claims of the snapshot's job groups, views of its arrays."""
    return Claims(
        members=snapshot.group_members,
        scale=snapshot.scale,
        rate=snapshot.rate,
        share=snapshot.share,
        received_s=snapshot.received_s,
        deficit_s=snapshot.deficit_s,
        running_on=snapshot.running_on,
    )


@kernel("b1(i8[:,::1], f8[:,:,::1], i8, i8)", inline="always")
def can_run(members: Ints, rate: Floats, u: int, t: int) -> bool:
    """Has every member of job group u a rate on slot t?"""
    runs = True
    for k in range(members.shape[1]):
        runs = runs and (members[u, k] < 0 or rate[u, t, k] > 0)
    return runs


@kernel("Tuple((f8, b1))(i8, Claims, JobsToRun, f8)")
def _start_worth(
    u: int, claims: Claims, jobs: JobsToRun, preemption_hysteresis: float
) -> tuple[float, bool]:
    """The seconds that must be owed to somebody for job group u to be stopped, and whether a member of it
    has done nothing yet."""
    worth_s, new = 0.0, False
    for k in range(claims.members.shape[1]):
        j = claims.members[u, k]
        if j >= 0:
            worth_s = max(worth_s, preemption_hysteresis * jobs.restart_s[j])
            new = new or jobs.steps_left[j] >= jobs.total_steps[j]
    return worth_s, new


@kernel("f8(i8, i8, Claims, JobsToRun)")
def _left_s(u: int, t: int, claims: Claims, jobs: JobsToRun) -> float:
    """Seconds until the last member of job group u is done, if it runs on slot t."""
    left_s = 0.0
    for k in range(claims.members.shape[1]):
        j = claims.members[u, k]
        if j >= 0:
            left_s = max(left_s, jobs.steps_left[j] / claims.rate[u, t, k])
    return left_s


@kernel("void(i8, f8, f8, JobsToRun, Claims, Entries)")
def _enter_group(
    u: int, until_s: float, hysteresis: float, jobs: JobsToRun, claims: Claims, into: Entries
) -> None:
    """The keys of a job group on all slots. until_s: from the last settling to the end of the round."""
    members, share, relative = claims.members, claims.share, into.third
    slots = share.shape[1]
    worth_s, new = _start_worth(u, claims, jobs, hysteresis)
    best = 0.0
    for t in range(slots):
        if not can_run(members, claims.rate, u, t):
            continue
        if share[u, t] == 0 and members.shape[1] > 1 and members[u, 1] >= 0:
            continue  # jobs that fill up what is left over do so alone
        into.eligible[u, t] = True
        for k in range(members.shape[1]):
            relative[u, t] += claims.rate[u, t, k]
        best = max(best, relative[u, t])
        if share[u, t] > 0:
            owed = claims.deficit_s[u, t] + share[u, t] * until_s - claims.received_s[u, t]
            into.first[u, t] = max(owed, 0.0) * claims.scale[u]
        if claims.running_on[u] == t:
            into.second[u, t] = 1.0
            done_soon = _left_s(u, t, claims, jobs) < worth_s
            into.first[u, t] += np.inf if done_soon else worth_s
        elif new and share[u, t] > 0:
            into.first[u, t] += worth_s
    if best > 0:
        for t in range(slots):
            relative[u, t] /= best


@kernel("Entries(Claims, JobsToRun, f8, f8)")
def deficit_priorities(
    claims: Claims, jobs: JobsToRun, until_s: float, preemption_hysteresis: float
) -> Entries:
    """What each job group is owed by the end of the coming round, on slots where it has a share; what is
    left over goes to whoever runs fastest there relative to its best.

    until_s: seconds from the last settling of accounts to the end of the coming round.
    A start is worth waiting for as long as ``preemption_hysteresis`` times what it costs. So a job group
    stays where it runs unless another is owed more by that, and it is left alone if it will be done by
    then. A job that has done nothing yet has as good a claim as those that run: it does not wait for its
    first start.
    The keys: device-seconds owed, runs there now (0 or 1), relative speed.
    """
    groups, slots = claims.share.shape
    entries = Entries(
        first=np.zeros((groups, slots)),
        second=np.zeros((groups, slots)),
        third=np.zeros((groups, slots)),
        eligible=np.zeros((groups, slots), np.bool_),
    )
    for u in range(groups):
        _enter_group(u, until_s, preemption_hysteresis, jobs, claims, entries)
    return entries
