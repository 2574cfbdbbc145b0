"""The recorder's arithmetic, one pass each over the running job groups."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel
from fairlead.model.jit_records import (
    Bools1,
    Floats1,
    Floats2,
    Ints1,
    Ints2,
    ShortInts1,
    ShortInts2,
)
from fairlead.simulator.recording.job_columns import (
    RecordedEnds,
    RecordedIsolation,
    RecordedRuns,
    RecordedTargets,
    RecordedWork,
)

_FAILED, _LOST = int(RoundOutcome.FAILED), int(RoundOutcome.LOST)


class GroupsBefore(NamedTuple):
    """The job groups of the round before."""

    job: Ints2  # (groups, width) positions of jobs, -1 = none
    accelerator: Ints1  # (groups,)
    end_s: Floats1  # (groups,) when each stopped
    offsets: Ints1  # (groups + 1,) where the devices of each begin
    devices: Ints1  # of all job groups, one after the other


class GroupsNow(NamedTuple):
    """The job groups of a round that begins."""

    job: Ints2  # (groups, width) positions of jobs, -1 = none
    kept: Bools1  # (groups,) do they stay on their devices?
    round: int
    time_s: float


class IntervalBlock(NamedTuple):
    """Room for placement intervals. 32 bits are enough, and there may be millions of rows."""

    groups: ShortInts2  # (rows, 4) position of the first job and of the last, accelerator, number of devices
    times: Floats2  # (rows, 2) begin, end
    devices: ShortInts1  # of all placement intervals, one after the other
    used: Ints1  # (2,) rows in use of groups and times, and of devices


class RoundReport(NamedTuple):
    """Steps, times and outcomes of a round."""

    job: Ints2  # (groups, width) positions of jobs, -1 = none
    slot: Ints1  # (groups,) accelerator
    offsets: Ints1  # (groups + 1,) where the devices of each begin
    steps: Floats2  # (groups, width)
    finish_s: Floats1  # (groups,)
    outcome: Ints2  # (groups, width)
    restart_s: Floats1  # (groups,)
    start_s: float


class Charging(NamedTuple):
    """Device-seconds of a round that are charged, and the jobs charged for them."""

    price: Floats1  # (slots,) $ per device-hour
    busy_s: Floats1  # (slots,) device-seconds in use
    charged_s: Floats1  # (slots,) device-seconds charged
    from_s: float  # from which on time is charged
    only_good: bool  # only of what counts?
    with_starts: bool  # also what went into starting?


class EndedJobs(NamedTuple):
    """The ends of jobs."""

    end: Ints1  # (jobs,) of ``JobEnd``
    end_s: Floats1  # (jobs,)
    round: int  # the first that they no longer run in


@kernel("UniTuple(i8, 4)(GroupsNow, GroupsBefore, RecordedRuns, IntervalBlock)", allocates=False)
def begin(
    now: GroupsNow, before: GroupsBefore, jobs: RecordedRuns, intervals: IntervalBlock
) -> tuple[int, int, int, int]:
    """Record in place which jobs start, stay, move and stop; add the placement intervals that are over.
    Return counts of jobs that run, start, are preempted and move."""
    width = now.job.shape[1]
    for i in range(len(now.job)):
        if now.kept[i]:
            for k in range(width):
                if now.job[i, k] >= 0:
                    jobs.kept_in[now.job[i, k]] = now.round
    _close_intervals(now.round, before, jobs, intervals)
    running = started = preempted = moved = 0
    for i in range(len(now.job)):
        for k in range(width):
            j = now.job[i, k]
            if j < 0:
                continue
            running += 1
            jobs.rounds[j] += 1
            if not now.kept[i]:
                started += 1
                jobs.interval_s[j] = now.time_s
                if np.isnan(jobs.start_s[j]):
                    jobs.start_s[j] = now.time_s
                else:
                    jobs.restarts[j] += 1
                    if jobs.runs_in[j] == now.round - 1:
                        jobs.moves[j] += 1
                        moved += 1
            jobs.runs_in[j] = now.round
    for i in range(len(before.job)):
        for k in range(before.job.shape[1]):
            j = before.job[i, k]
            if j >= 0 and jobs.end[j] == 0 and jobs.runs_in[j] != now.round:
                preempted += 1
    return running, started, preempted, moved


@kernel("void(i8, GroupsBefore, RecordedRuns, IntervalBlock)", allocates=False)
def _close_intervals(
    number: int, before: GroupsBefore, jobs: RecordedRuns, intervals: IntervalBlock
) -> None:
    """Add a row for each job group of the round before that does not stay in round ``number``."""
    row, device = intervals.used[0], intervals.used[1]
    for i in range(len(before.job)):
        first = before.job[i, 0]
        if jobs.kept_in[first] == number:
            continue
        intervals.groups[row, 0] = first
        intervals.groups[row, 1] = before.job[i, before.job.shape[1] - 1]
        intervals.groups[row, 2] = before.accelerator[i]
        intervals.groups[row, 3] = before.offsets[i + 1] - before.offsets[i]
        intervals.times[row, 0] = jobs.interval_s[first]
        intervals.times[row, 1] = before.end_s[i]
        row += 1
        for d in range(before.offsets[i], before.offsets[i + 1]):
            intervals.devices[device] = before.devices[d]
            device += 1
    intervals.used[0], intervals.used[1] = row, device


@kernel("f8(RoundReport, RecordedWork, Charging)", allocates=False)
def apply_round_report(report: RoundReport, jobs: RecordedWork, charging: Charging) -> float:
    """Add in place what a round used and did. Return the device-seconds that went into starting, and
    those of job groups whose work does not count."""
    wasted_s = 0.0
    for i in range(len(report.job)):
        slot, scale = report.slot[i], report.offsets[i + 1] - report.offsets[i]
        used_s = report.finish_s[i] - report.start_s
        charging.busy_s[slot] += used_s * scale
        good = True
        for k in range(report.job.shape[1]):
            outcome = report.outcome[i, k]
            if report.job[i, k] >= 0 and outcome in (_FAILED, _LOST):
                good = False
        wasted_s += scale * (report.restart_s[i] if good else used_s)
        pay_s = report.finish_s[i] - charging.from_s if good or not charging.only_good else 0.0
        if not charging.with_starts and pay_s > 0:
            pay_s -= report.restart_s[i]
        charging.charged_s[slot] += pay_s * scale
        for k in range(report.job.shape[1]):
            j = report.job[i, k]
            if j < 0:
                continue
            jobs.run_s[j] += used_s
            jobs.restart_lost_s[j] += report.restart_s[i]
            jobs.steps_done[j] += report.steps[i, k]
            jobs.cost[j] += charging.price[slot] * pay_s / 3600.0 * scale
    return wasted_s


@kernel("void(i8[::1], RecordedIsolation)", allocates=False)
def count_isolated(rows: Ints, jobs: RecordedIsolation) -> None:
    """Count what jobs have done, at the rates of their isolated shares. rows: positions of jobs."""
    for j in rows:
        if jobs.isolated_rate[j] > 0:
            did = jobs.steps_done[j] - jobs.steps_then[j]
            jobs.isolated_s[j] += did / jobs.isolated_rate[j]
        jobs.steps_then[j] = jobs.steps_done[j]


@kernel("void(i8[::1], f8[::1], RecordedTargets)", allocates=False)
def count_target_time(rows: Ints, until_s: Floats, jobs: RecordedTargets) -> None:
    """Count the target run time of jobs up to these times. rows: positions of jobs; until_s: (rows,)."""
    for k in range(len(rows)):
        j = rows[k]
        lasted_s = max(until_s[k] - jobs.target_from_s[j], 0.0)
        jobs.target_run_s[j] += jobs.target_share[j] * lasted_s
        jobs.target_from_s[j] = until_s[k]


@kernel("void(i8[:,::1], f8[::1], f8[::1])", allocates=False)
def set_target_shares(group_member: Ints, share: Floats, target_share: Floats) -> None:
    """Add the shares of job groups to those of their members. group_member: (groups, width) positions of
    jobs, -1 = none; share: (groups,)."""
    for k in range(group_member.shape[1]):
        for u in range(len(group_member)):
            if group_member[u, k] >= 0:
                target_share[group_member[u, k]] += share[u]


@kernel("void(i8[::1], EndedJobs, RecordedEnds)", allocates=False)
def end_jobs(rows: Ints, ended: EndedJobs, jobs: RecordedEnds) -> None:
    """Take note of how jobs end. rows: positions of jobs."""
    for k in range(len(rows)):
        jobs.end[rows[k]] = ended.end[k]
        jobs.end_s[rows[k]] = ended.end_s[k]
        jobs.end_round[rows[k]] = ended.round
