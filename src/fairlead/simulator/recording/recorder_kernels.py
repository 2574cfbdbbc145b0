"""The recorder's arithmetic, one pass each over the running units."""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel

_FAILED, _LOST = int(RoundOutcome.FAILED), int(RoundOutcome.LOST)


@kernel(
    "UniTuple(i8, 4)(i8[:,::1], b1[::1], i8[:,::1], i8[::1], f8[::1], i8[::1], i8[::1], i8, f8, i8[::1],"
    " i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], i8[::1], i8[::1], i4[:,::1], f8[:,::1], i4[::1],"
    " i8[::1])",
)
def begin(
    member: Ints,
    kept: Bools,
    before: Ints,
    before_type: Ints,
    before_end_s: Floats,
    before_first: Ints,
    before_devices: Ints,
    number: int,
    time_s: float,
    end: Ints,
    kept_in: Ints,
    runs_in: Ints,
    rounds: Ints,
    start_s: Floats,
    interval_s: Floats,
    restarts: Ints,
    moves: Ints,
    intervals: Ints,
    interval_times: Floats,
    interval_devices: Ints,
    used: Ints,
) -> tuple[int, int, int, int]:
    """Book in place who starts, stays, moves and stops.

    member, before: (units, width) positions of jobs in this round and in the one before, -1 = none;
    kept: (units,); before_type, before_end_s: (units,) accelerator type, and when the unit stopped; its
    devices are before_devices[before_first[u]:before_first[u + 1]]; number: of this round; end, kept_in,
    runs_in, rounds, start_s, interval_s, restarts, moves: (jobs,). Placement intervals that are over are
    added as rows of ``intervals``, interval_times and interval_devices (see ``PlacementIntervals``); used:
    rows of the first two, and of the last.
    Returns counts of jobs that run, start, are preempted and move.
    """
    width = member.shape[1]
    for i in range(len(member)):
        if kept[i]:
            for k in range(width):
                if member[i, k] >= 0:
                    kept_in[member[i, k]] = number
    row, device = used[0], used[1]
    for i in range(len(before)):
        if kept_in[before[i, 0]] == number:
            continue
        intervals[row, 0], intervals[row, 1] = before[i, 0], before[i, before.shape[1] - 1]
        intervals[row, 2] = before_type[i]
        intervals[row, 3] = before_first[i + 1] - before_first[i]
        interval_times[row, 0], interval_times[row, 1] = interval_s[before[i, 0]], before_end_s[i]
        row += 1
        for d in range(before_first[i], before_first[i + 1]):
            interval_devices[device] = before_devices[d]
            device += 1
    used[0], used[1] = row, device
    running = started = preempted = moved = 0
    for i in range(len(member)):
        for k in range(width):
            j = member[i, k]
            if j < 0:
                continue
            running += 1
            rounds[j] += 1
            if not kept[i]:
                started += 1
                interval_s[j] = time_s
                if np.isnan(start_s[j]):
                    start_s[j] = time_s
                else:
                    restarts[j] += 1
                    if runs_in[j] == number - 1:
                        moves[j] += 1
                        moved += 1
            runs_in[j] = number
    for i in range(len(before)):
        for k in range(before.shape[1]):
            j = before[i, k]
            if j >= 0 and end[j] == 0 and runs_in[j] != number:
                preempted += 1
    return running, started, preempted, moved


@kernel(
    "f8(i8[:,::1], i8[::1], i8[::1], f8[:,::1], f8[::1], i8[:,::1], f8[::1], f8, f8, b1, b1,"
    " f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1])",
)
def book(
    member: Ints,
    slot: Ints,
    first: Ints,
    steps: Floats,
    finish_s: Floats,
    outcome: Ints,
    restart_s: Floats,
    start_s: float,
    from_s: float,
    only_good: bool,
    with_starts: bool,
    price: Floats,
    busy_s: Floats,
    charged_s: Floats,
    run_s: Floats,
    cost: Floats,
    lost_s: Floats,
    done: Floats,
) -> float:
    """Book in place what a round used and did. Returns the device-seconds that went into starting, and
    those of units whose work does not count.

    busy_s, charged_s, price: (slots,) device-seconds in use; device-seconds charged, from from_s on and, if
    only_good, only for what counts, and with_starts or without what went into starting; $ per
    device-hour. run_s, cost, lost_s, done: (jobs,).
    """
    wasted_s = 0.0
    for i in range(len(member)):
        scale = first[i + 1] - first[i]
        used_s = finish_s[i] - start_s
        busy_s[slot[i]] += used_s * scale
        good = True
        for k in range(member.shape[1]):
            if member[i, k] >= 0 and (outcome[i, k] == _FAILED or outcome[i, k] == _LOST):
                good = False
        wasted_s += scale * (restart_s[i] if good else used_s)
        pay_s = finish_s[i] - from_s if good or not only_good else 0.0
        if not with_starts and pay_s > 0:
            pay_s -= restart_s[i]
        charged_s[slot[i]] += pay_s * scale
        for k in range(member.shape[1]):
            j = member[i, k]
            if j < 0:
                continue
            run_s[j] += used_s
            lost_s[j] += restart_s[i]
            done[j] += steps[i, k]
            cost[j] += price[slot[i]] * pay_s / 3600.0 * scale
    return wasted_s
