"""Priorities of (group, slot) entries: the keys by which a round is filled, largest first."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Floats3, Ints1, Ints2
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.selection import Candidates, Priorities, select


class GroupAccounts(NamedTuple):
    """Job groups' entitlements, time received and rates. Arrays as in ``Snapshot``."""

    members: Ints2  # (groups, width) positions of jobs, -1 = none
    scale: Ints1  # (groups,) devices
    rate: Floats3  # (groups, slots, width) steps/s of each member; 0 = cannot run there
    share: Floats2  # (groups, slots)
    received_s: Floats2  # (groups, slots) run time since the accounts were last settled
    deficit_s: Floats2  # (groups, slots) time owed from before that
    running_on: Ints1  # (groups,) slot of the round that has just ended, -1 = did not run


class JobsToRun(NamedTuple):
    """The work left of each job, and the cost of starting it. Arrays as in ``Snapshot``."""

    restart_s: Floats1  # (jobs,)
    steps_left: Floats1  # (jobs,)
    total_steps: Floats1  # (jobs,)


class DeficitRule(NamedTuple):
    """The parameters of ``deficit_priorities``: until when deficits count, and the preemption hysteresis."""

    until_s: float
    preemption_hysteresis: float


class AvailableSlots(NamedTuple):
    """The devices that a round has to give, and the slot types on them."""

    capacity: Floats1  # (types,) devices
    accelerator_of_slot: Ints1  # (slots,)
    slot_order: Ints1  # (slots,) slots, the first one wins a tie


def jobs_to_run(snapshot: Snapshot) -> JobsToRun:
    """Return what is left of the snapshot's jobs, views of its arrays."""
    return JobsToRun(snapshot.restart_s, snapshot.steps_left, snapshot.total_steps)


def group_accounts(snapshot: Snapshot) -> GroupAccounts:
    """Return the accounts of the snapshot's job groups, views of its arrays."""
    return GroupAccounts(
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
    """Return whether every member of job group u has a rate on slot t."""
    runs = True
    for k in range(members.shape[1]):
        runs = runs and (members[u, k] < 0 or rate[u, t, k] > 0)
    return runs


@kernel("void(GroupAccounts, f8, Priorities)", allocates=False)
def _enter_deficits(accounts: GroupAccounts, until_s: float, into: Priorities) -> None:
    """Enter where job groups can run, the device-seconds that they are owed there, and their relative speeds.
    until_s: from the last settling of accounts to the end of the round."""
    members, scale, rate, share, received_s, deficit_s, _ = accounts
    primary, _, relative, eligible = into
    groups, slots = share.shape
    for u in range(groups):
        best = 0.0
        for t in range(slots):
            if not can_run(members, rate, u, t):
                continue
            if share[u, t] == 0 and members.shape[1] > 1 and members[u, 1] >= 0:
                continue  # jobs that fill up what is left over do so alone
            eligible[u, t] = True
            for k in range(members.shape[1]):
                relative[u, t] += rate[u, t, k]
            best = max(best, relative[u, t])
            if share[u, t] > 0:
                deficit = deficit_s[u, t] + share[u, t] * until_s - received_s[u, t]
                primary[u, t] = max(deficit, 0.0) * scale[u]
        if best > 0:
            for t in range(slots):
                relative[u, t] /= best


@kernel("void(GroupAccounts, JobsToRun, f8, Priorities)", allocates=False)
def _add_start_worth(
    accounts: GroupAccounts, jobs: JobsToRun, preemption_hysteresis: float, into: Priorities
) -> None:
    """Add the worth of a start, ``preemption_hysteresis`` times its device-seconds, to the deficits of job
    groups that run, and to those of groups with a member that has not done a step."""
    members, rate, share = accounts.members, accounts.rate, accounts.share
    running_on = accounts.running_on
    restart_s, steps_left, total_steps = jobs
    primary, here, _, eligible = into
    groups, slots = share.shape
    for u in range(groups):
        worth_s, new = 0.0, False
        for k in range(members.shape[1]):
            j = members[u, k]
            if j >= 0:
                worth_s = max(worth_s, preemption_hysteresis * restart_s[j])
                new = new or steps_left[j] >= total_steps[j]
        for t in range(slots):
            if not eligible[u, t]:
                continue
            if running_on[u] == t:
                here[u, t] = 1.0
                left_s = 0.0  # until the last member is done
                for k in range(members.shape[1]):
                    if members[u, k] >= 0:
                        left_s = max(left_s, steps_left[members[u, k]] / rate[u, t, k])
                primary[u, t] += np.inf if left_s < worth_s else worth_s
            elif new and share[u, t] > 0:
                primary[u, t] += worth_s


@kernel("Priorities(GroupAccounts, JobsToRun, f8, f8)")
def deficit_priorities(
    accounts: GroupAccounts, jobs: JobsToRun, until_s: float, preemption_hysteresis: float
) -> Priorities:
    """Return each job group's priorities: the time owed by the end of the coming round, where it has a share.
    What is left over goes to whoever runs fastest there relative to its best.

    until_s: seconds from the last settling of accounts to the end of the coming round.
    A start is worth waiting for as long as ``preemption_hysteresis`` times what it costs. So a job group
    stays where it runs unless another is owed more by that, and it is left alone if it will be done by
    then. A job that has done nothing yet has the same advantage as those that run: it does not wait for its
    first start.
    The keys: device-seconds owed, runs there now (0 or 1), relative speed.
    """
    groups, slots = accounts.share.shape
    priorities = Priorities(
        primary=np.zeros((groups, slots)),
        secondary=np.zeros((groups, slots)),
        tertiary=np.zeros((groups, slots)),
        eligible=np.zeros((groups, slots), np.bool_),
    )
    _enter_deficits(accounts, until_s, priorities)
    _add_start_worth(accounts, jobs, preemption_hysteresis, priorities)
    return priorities


@kernel("Tuple((i8[::1], i8[::1]))(GroupAccounts, JobsToRun, DeficitRule, AvailableSlots)")
def fill_by_deficit(
    accounts: GroupAccounts, jobs: JobsToRun, rule: DeficitRule, available: AvailableSlots
) -> tuple[Ints, Ints]:
    """Return the job groups that run and their slots: ``select`` by ``deficit_priorities``."""
    priorities = deficit_priorities(accounts, jobs, rule.until_s, rule.preemption_hysteresis)
    candidates = Candidates(accounts.members, accounts.scale, available.accelerator_of_slot)
    free = available.capacity.astype(np.int64)
    return select(priorities, candidates, free, available.slot_order, len(jobs.steps_left))
