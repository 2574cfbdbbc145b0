"""The recorder's arithmetic, one pass each over the running units."""

import numpy as np

from fairlead.events import Outcome
from fairlead.jit import kernel
from fairlead.model.arrays import Bools, Floats, Ints

_FAILED, _LOST = int(Outcome.FAILED), int(Outcome.LOST)


@kernel(
    "Tuple((b1[::1], f8[::1], i8, i8, i8))"
    "(i8[:,::1], b1[::1], i8[:,::1], i8, f8, i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], i8[::1],"
    " i8[::1])",
)
def begin(
    member: Ints,
    kept: Bools,
    before: Ints,
    number: int,
    time_s: float,
    end: Ints,
    kept_in: Ints,
    runs_in: Ints,
    start_s: Floats,
    stint_s: Floats,
    restarts: Ints,
    moves: Ints,
) -> tuple[Bools, Floats, int, int, int]:
    """Book in place who starts, stays, moves and stops.

    member, before: (units, width) positions of jobs in this round and in the one before, -1 = none;
    kept: (units,); number: of this round; end, kept_in, runs_in, start_s, stint_s, restarts, moves:
    (jobs,). Returns, of the units before, whose stints are over and when each had begun; then counts of
    jobs started, preempted and moved.
    """
    width = member.shape[1]
    for i in range(len(member)):
        if kept[i]:
            for k in range(width):
                if member[i, k] >= 0:
                    kept_in[member[i, k]] = number
    over = np.zeros(len(before), np.bool_)
    began = np.empty(len(before))
    for i in range(len(before)):
        over[i] = kept_in[before[i, 0]] != number
        began[i] = stint_s[before[i, 0]]
    started = preempted = moved = 0
    for i in range(len(member)):
        for k in range(width):
            j = member[i, k]
            if j < 0:
                continue
            if not kept[i]:
                started += 1
                stint_s[j] = time_s
                if np.isnan(start_s[j]):
                    start_s[j] = time_s
                else:
                    restarts[j] += 1
                    if runs_in[j] == number - 1:
                        moves[j] += 1
                        moved += 1
            runs_in[j] = number
    for i in range(len(before)):
        for k in range(width):
            j = before[i, k]
            if j >= 0 and end[j] == 0 and runs_in[j] != number:
                preempted += 1
    return over, began, started, preempted, moved


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
