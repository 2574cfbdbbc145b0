"""Enter what a round did in the ledger. One pass in a fixed order, so that every sum is the same to the last
bit."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.commands import JobEnd
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Ints1, Ints2
from fairlead.scheduler.core.ledger import Ledger

_FAILED, _LOST, _ENDED = int(RoundOutcome.FAILED), int(RoundOutcome.LOST), int(RoundOutcome.ENDED)
_COMPLETED, _DROPPED, _KILLED = int(JobEnd.COMPLETED), int(JobEnd.DROPPED), int(JobEnd.KILLED)


class RowsReported(NamedTuple):
    """A round as it was planned, and what is reported of it, row by row."""

    group: Ints1  # (running,) row of the ledger's job groups, -1 = it has left meanwhile
    slot: Ints1  # (running,) as planned; -1 = there is no such slot any more: steps count, time does not
    relative_rate: Floats1  # (running,) rate on the slot where it ran over that on the planned one
    steps: Floats2  # (running, width)
    outcome: Ints2  # (running, width) of ``RoundOutcome``
    finish_s: Floats1  # (running,)
    start_s: Floats1  # (running,) seconds that a start took and that do not count


class GroupAccounts(NamedTuple):
    """Job groups of the ledger, and the time that they and the slots have been given."""

    members: Ints2  # (groups, width) rows of jobs, -1 = none
    received_s: Floats2  # (groups, slots)
    allocated_s: Floats1  # (slots,)


class JobAccounts(NamedTuple):
    """Jobs of the ledger, and how they end."""

    total: Floats1  # (jobs,) steps
    done: Floats1  # (jobs,) steps
    ran_s: Floats1  # (jobs,)
    limit_s: Floats1  # (jobs,) run time above which a job counts as completed
    fails: Ints1  # (jobs,) failed attempts in a row
    end: Ints1  # (jobs,) of ``JobEnd``, 0 = it goes on
    end_s: Floats1  # (jobs,)


def job_accounts(ledger: Ledger, end: Ints, end_s: Floats) -> JobAccounts:
    """Views of the ledger's columns. end, end_s: (jobs,) are filled by ``apply_round_report``."""
    return JobAccounts(
        total=ledger.jobs.total,
        done=ledger.jobs.done,
        ran_s=ledger.runs.ran_s,
        limit_s=ledger.runs.limit_s,
        fails=ledger.runs.fails,
        end=end,
        end_s=end_s,
    )


def by_end(finish_s: Floats) -> Ints:
    """(running,) rows of a report, those that stopped last first, else in order."""
    if _is_descending(finish_s):  # mostly all stop with the round
        return np.arange(len(finish_s))
    return (-finish_s).argsort(kind="stable")


@kernel("b1(f8[::1])", allocates=False)
def _is_descending(values: Floats) -> bool:
    """Return whether no value is larger than the one before it."""
    descending = True
    for i in range(1, len(values)):
        descending = descending and values[i] <= values[i - 1]
    return descending


@kernel("b1(i8, i8, i8, RowsReported, GroupAccounts)", allocates=False)
def _has(outcome: int, i: int, u: int, rows: RowsReported, groups: GroupAccounts) -> bool:
    """Return whether row i reports this outcome of a member of job group u."""
    found = False
    for k in range(groups.members.shape[1]):
        if groups.members[u, k] >= 0:
            found = found or rows.outcome[i, k] == outcome
    return found


@kernel("void(i8, f8, i8, JobAccounts)", allocates=False)
def _count_failure(j: int, finish_s: float, max_failures: int, jobs: JobAccounts) -> None:
    """An attempt of job j alone failed."""
    jobs.fails[j] += 1
    if jobs.fails[j] >= max_failures:  # with no steps left it can do none
        jobs.end[j] = _DROPPED if jobs.total[j] > jobs.done[j] else _COMPLETED
        jobs.end_s[j] = finish_s


@kernel("void(i8, i8, i8, f8, RowsReported, JobAccounts)", allocates=False)
def _add_run(j: int, i: int, k: int, ran_s: float, rows: RowsReported, jobs: JobAccounts) -> None:
    """Job j, member k of row i, ran so long."""
    jobs.ran_s[j] += ran_s
    jobs.done[j] += rows.steps[i, k]
    if jobs.total[j] - jobs.done[j] <= 0 or jobs.ran_s[j] > jobs.limit_s[j]:
        jobs.end[j] = _COMPLETED
        jobs.end_s[j] = rows.finish_s[i]
    elif rows.outcome[i, k] == _ENDED:
        jobs.end[j] = _KILLED
        jobs.end_s[j] = rows.finish_s[i]


@kernel(
    "UniTuple(b1, 2)(i8[::1], f8, i8, RowsReported, GroupAccounts, JobAccounts)", allocates=False
)
def apply_round_report(
    order: Ints1,
    from_s: float,
    max_failures: int,
    rows: RowsReported,
    groups: GroupAccounts,
    jobs: JobAccounts,
) -> tuple[bool, bool]:
    """Enter a round in the accounts, in place; whether an attempt failed, and whether a job ends.

    order: (running,) in which rows are entered; from_s: when the round began; max_failures: failed attempts
    in a row that drop a job. A job group is entered whole or, when an attempt failed or its node was lost,
    not at all.
    """
    members = groups.members
    failure = ended = False
    for i in order:
        u = rows.group[i]
        if u < 0 or _has(_LOST, i, u, rows, groups):
            continue
        solo = members.shape[1] == 1 or members[u, 1] < 0
        if _has(_FAILED, i, u, rows, groups):
            failure = True
            if solo:
                _count_failure(members[u, 0], rows.finish_s[i], max_failures, jobs)
                ended = ended or jobs.end[members[u, 0]] > 0
            continue
        lasted_s = rows.finish_s[i] - from_s - rows.start_s[i]
        for k in range(members.shape[1]):
            j = members[u, k]
            if j < 0:
                continue
            if solo:
                jobs.fails[j] = 0
            _add_run(j, i, k, lasted_s, rows, jobs)
            ended = ended or jobs.end[j] > 0
        if rows.slot[i] >= 0:
            groups.received_s[u, rows.slot[i]] += lasted_s * rows.relative_rate[i]
            groups.allocated_s[rows.slot[i]] += lasted_s
    return failure, ended
