"""The arithmetic of a simulated round, one pass each over the running job groups."""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Ints
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Floats1, Floats2, Ints1, Ints2
from fairlead.model.pair_rates import PairTable, colocated_rate_of
from fairlead.simulator.batch_size_stages import SoloRun, StageTable, advance
from fairlead.simulator.true_jobs import JobArrays

_FAILED, _LOST, _ENDED = int(RoundOutcome.FAILED), int(RoundOutcome.LOST), int(RoundOutcome.ENDED)


class RoundGroups(NamedTuple):
    """Job groups of a round: single jobs and pairs."""

    job: Ints2  # (groups, width) positions of jobs, -1 = none
    slot: Ints1  # (groups,) column of the throughput table
    kept: Bools1  # (groups,) do they stay on their devices?
    noise: Floats1  # (groups,) factor of their rates in this round
    offsets: Ints1  # (groups + 1,) where the devices of each begin
    devices: Ints1  # of all job groups, one after the other


class TrueRates(NamedTuple):
    """Steps/s before noise."""

    solo_rate: Floats2  # (rows, slots)
    paired: PairTable  # of two rows; empty where nothing is packed


class RoundStart(NamedTuple):
    """The beginning of a round."""

    time_s: float
    length_s: float
    whole_steps: bool  # are steps of a round cut to integers?
    charge_startup: bool  # do starts take their time out of the round?


class RoundForecast(NamedTuple):
    """The course of a round if nothing cuts it short.
    ``begin`` fills the same one from round to round; it may have room for more job groups than there are."""

    rate: Floats2  # (groups, width) steps/s
    left: Floats2  # (groups, width) steps until the job ends
    setup_s: Floats1  # (groups,) spent on starting
    steps: Floats2  # (groups, width)
    finish_s: Floats1  # (groups,)


def empty_forecast(groups: int, width: int) -> RoundForecast:
    """A forecast to be filled, for so many job groups at most."""
    rate, left, steps = np.empty((3, groups, width))
    setup_s, finish_s = np.empty((2, groups))
    return RoundForecast(rate, left, setup_s, steps, finish_s)


class RoundEnd(NamedTuple):
    """The end of a round."""

    start_s: float
    end_s: float
    whole_steps: bool
    lost: Bools1  # (devices of the cluster,)


class RoundDone(NamedTuple):
    """The results of a round by its end: the arrays of ``RoundEnded``."""

    steps: Floats2  # (groups, width)
    finish_s: Floats1  # (groups,)
    outcome: Ints2  # (groups, width) of ``RoundOutcome``
    restart_s: Floats1  # (groups,)


@kernel("b1(i8[::1], i8, i8, b1[::1])", inline="always")
def any_lost(devices: Ints, start: int, stop: int, lost: Bools) -> bool:
    """Return whether one of devices[start:stop] is lost. lost: (devices of the cluster,)."""
    gone = False
    for d in range(start, stop):
        gone = gone or lost[devices[d]]
    return gone


@kernel(
    "f8(RoundGroups, JobArrays, TrueRates, StageTable, RoundStart, RoundForecast)", allocates=False
)
def begin(
    groups: RoundGroups,
    jobs: JobArrays,
    rates: TrueRates,
    stages: StageTable,
    start: RoundStart,
    forecast: RoundForecast,
) -> float:
    """Fill a forecast, and book start-up time owed in place. Return when the last job group will finish."""
    n, width = groups.job.shape
    last_s = -np.inf
    for i in range(n):
        setup_s = _start_left_s(groups, i, jobs, start.charge_startup)
        forecast.setup_s[i] = setup_s
        available_s = max(start.length_s - setup_s, 0.0)
        work_s = 0.0
        for k in range(width):
            j = groups.job[i, k]
            if j < 0:
                forecast.rate[i, k] = forecast.left[i, k] = forecast.steps[i, k] = 0.0
                continue
            rate = _rate(groups, i, k, jobs, rates)
            left = min(jobs.total_steps[j], jobs.last_step[j]) - jobs.steps_done[j]
            forecast.rate[i, k] = rate
            forecast.left[i, k] = left
            if stages.stage_stop[j] > 0 and (width == 1 or groups.job[i, 1 - k] < 0) and rate > 0:
                run = SoloRun(j, groups.slot[i], jobs.steps_done[j], rate)
                steps, took_s = advance(run, available_s, left, rates.solo_rate, stages)
                if start.whole_steps and steps < left:
                    steps = np.floor(steps)
                    took_s = advance(run, available_s, steps, rates.solo_rate, stages)[1]
            else:
                possible = rate * available_s
                if start.whole_steps:
                    possible = np.floor(possible)
                steps = min(possible, left)
                # where it cannot run, and nobody knew, it is in the way for the whole round
                took_s = steps / rate if rate > 0 else available_s
            forecast.steps[i, k] = steps
            work_s = max(work_s, took_s)
        forecast.finish_s[i] = start.time_s + (min(setup_s, start.length_s) + work_s)
        last_s = max(last_s, forecast.finish_s[i])
    return last_s


@kernel("f8(RoundGroups, i8, JobArrays, b1)", inline="always")
def _start_left_s(groups: RoundGroups, i: int, jobs: JobArrays, charge_startup: bool) -> float:
    """Return the start-up time that job group i spends; book what its jobs owe if they start."""
    setup_s = 0.0
    for k in range(groups.job.shape[1]):
        j = groups.job[i, k]
        if j < 0:
            continue
        if not groups.kept[i]:
            jobs.start_left_s[j] = jobs.restart_s[j] if charge_startup and jobs.started[j] else 0.0
            jobs.started[j] = True
        setup_s = max(setup_s, jobs.start_left_s[j])
    return setup_s


@kernel("f8(RoundGroups, i8, i8, JobArrays, TrueRates)", allocates=False)
def _rate(groups: RoundGroups, i: int, k: int, jobs: JobArrays, rates: TrueRates) -> float:
    """Return the true steps/s of job k of job group i in this round."""
    j, slot = groups.job[i, k], groups.slot[i]
    other = groups.job[i, 1 - k] if groups.job.shape[1] == 2 else -1
    if other >= 0:
        rate = colocated_rate_of(rates.paired, jobs.table_row[j], jobs.table_row[other], slot)
    else:
        rate = rates.solo_rate[jobs.table_row[j], slot]
    return float(rate * jobs.bias[j, slot] * groups.noise[i])


def nothing_done(groups: int, width: int) -> RoundDone:
    """Return what a round has done, to be filled by ``finish``."""
    steps, outcome = np.zeros((groups, width)), np.zeros((groups, width), np.int64)
    finish_s, restart_s = np.empty((2, groups))
    return RoundDone(steps, finish_s, outcome, restart_s)


@kernel(
    "void(RoundGroups, RoundForecast, JobArrays, TrueRates, StageTable, RoundEnd, RoundDone)",
    allocates=False,
)
def finish(
    groups: RoundGroups,
    forecast: RoundForecast,
    jobs: JobArrays,
    rates: TrueRates,
    stages: StageTable,
    end: RoundEnd,
    done: RoundDone,
) -> None:
    """Fill ``done`` with what a round has done by its end; book steps and start-up time in place.

    A job group counts whole or not at all: not when a device was lost, nor where it cannot run, nor (with
    whole_steps) when a device got no step.
    """
    n, width = groups.job.shape
    did, until, outcome, restart = done
    for i in range(n):
        until[i] = min(forecast.finish_s[i], end.end_s)
        restart[i] = min(forecast.setup_s[i], until[i] - end.start_s)
        gone = any_lost(groups.devices, groups.offsets[i], groups.offsets[i + 1], end.lost)
        good = not gone
        for k in range(width):
            j = groups.job[i, k]
            if j < 0:
                continue
            steps, rate = forecast.steps[i, k], forecast.rate[i, k]
            if forecast.finish_s[i] > end.end_s:
                work_s = max(end.end_s - end.start_s - forecast.setup_s[i], 0.0)
                possible = rate * work_s
                if (
                    stages.stage_stop[j] > 0
                    and (width == 1 or groups.job[i, 1 - k] < 0)
                    and rate > 0
                ):
                    run = SoloRun(j, groups.slot[i], jobs.steps_done[j], rate)
                    possible = advance(run, work_s, steps, rates.solo_rate, stages)[0]
                if end.whole_steps:
                    possible = np.floor(possible)
                steps = min(min(possible, forecast.left[i, k]), steps)
            did[i, k] = steps
            if gone:
                outcome[i, k] = _LOST
            elif _failed(groups, i, rate, steps, end.whole_steps):
                outcome[i, k] = _FAILED
                good = False
        for k in range(width):
            j = groups.job[i, k]
            if j < 0:
                continue
            jobs.start_left_s[j] = max(jobs.start_left_s[j] - restart[i], 0.0)
            if not good:
                did[i, k] = 0.0
                continue
            if add_steps(jobs, j, did[i, k]):
                outcome[i, k] = _ENDED


@kernel("b1(RoundGroups, i8, f8, f8, b1)", inline="always")
def _failed(groups: RoundGroups, i: int, rate: float, steps: float, whole_steps: bool) -> bool:
    """Return whether job group i cannot run, or a device of it got no step."""
    if rate <= 0 or not whole_steps:
        return rate <= 0
    scale = groups.offsets[i + 1] - groups.offsets[i]
    if scale == 1:
        return bool(steps <= 0)
    each = steps // scale
    return bool(each <= 0 or steps - (scale - 1) * each <= 0)


@kernel("b1(JobArrays, i8, f8)", inline="always")
def add_steps(jobs: JobArrays, j: int, steps: float) -> bool:
    """Book the steps of job j in place; return whether it ends early by them."""
    jobs.steps_done[j] += steps
    early = jobs.last_step[j] < jobs.total_steps[j]
    return bool(early and jobs.steps_done[j] >= jobs.last_step[j])
