"""The arithmetic of a simulated round, one pass each over the running units."""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel
from fairlead.simulator.stages import (
    TABLE,
    Table,
    advance,
)

_FAILED, _LOST, _ENDED = int(RoundOutcome.FAILED), int(RoundOutcome.LOST), int(RoundOutcome.ENDED)


@kernel("b1(i8[::1], i8, i8, b1[::1])", inline="always")
def any_lost(devices: Ints, start: int, stop: int, lost: Bools) -> bool:
    """Is one of devices[start:stop] lost? lost: (devices of the cluster,)."""
    gone = False
    for d in range(start, stop):
        gone = gone or lost[devices[d]]
    return gone


@kernel(
    "Tuple((f8[:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1]))"
    "(i8[:,::1], i8[::1], b1[::1], f8, f8, b1, f8[:,::1], f8[:,:,::1], f8[:,::1], f8[::1], i8[::1],"
    f" f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], b1[::1], {TABLE})",
)
def begin(
    index: Ints,
    slot: Ints,
    kept: Bools,
    now_s: float,
    length_s: float,
    whole_steps: bool,
    table: Floats,
    pair: Floats,
    bias: Floats,
    noise: Floats,
    kind: Ints,
    total: Floats,
    last: Floats,
    done: Floats,
    restart_s: Floats,
    owes_s: Floats,
    started: Bools,
    stages: Table,
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """What a round will do if nothing cuts it short; books start-up time owed in place.

    index: (units, width) positions of jobs, -1 = none; slot, kept, noise: (units,); table: (kinds,
    slots) and pair: (kinds, kinds, slots) steps/s, pair empty where nothing is packed; bias: (jobs,
    slots), empty = none; kind, total, last, done, restart_s, owes_s, started: (jobs,).
    Returns rate, left, setup_s, steps, finish_s: (units, width) or (units,).
    """
    n, width = index.shape
    rate = np.zeros((n, width))
    left = np.zeros((n, width))
    setup_s = np.zeros(n)
    steps = np.zeros((n, width))
    finish_s = np.empty(n)
    for i in range(n):
        for k in range(width):
            j = index[i, k]
            if j < 0:
                continue
            if not kept[i]:
                owes_s[j] = restart_s[j] if started[j] else 0.0
                started[j] = True
            setup_s[i] = max(setup_s[i], owes_s[j])
        room_s = max(length_s - setup_s[i], 0.0)
        work_s = 0.0
        for k in range(width):
            j = index[i, k]
            if j < 0:
                continue
            other = index[i, 1 - k] if width == 2 else -1
            if other >= 0:
                rate[i, k] = pair[kind[j], kind[other], slot[i]]
            else:
                rate[i, k] = table[kind[j], slot[i]]
            if len(bias):
                rate[i, k] *= bias[j, slot[i]]
            rate[i, k] *= noise[i]
            left[i, k] = min(total[j], last[j]) - done[j]
            if stages[1][j] > 0 and other < 0 and rate[i, k] > 0:
                steps[i, k], took_s = advance(
                    j, done[j], room_s, left[i, k], rate[i, k], slot[i], table, stages
                )
                if whole_steps and steps[i, k] < left[i, k]:
                    steps[i, k] = np.floor(steps[i, k])
                    took_s = advance(
                        j, done[j], room_s, steps[i, k], rate[i, k], slot[i], table, stages
                    )[1]
                work_s = max(work_s, took_s)
                continue
            possible = rate[i, k] * room_s
            if whole_steps:
                possible = np.floor(possible)
            steps[i, k] = min(possible, left[i, k])
            # where it cannot run, and nobody knew, it is in the way for the whole round
            took_s = steps[i, k] / rate[i, k] if rate[i, k] > 0 else room_s
            work_s = max(work_s, took_s)
        finish_s[i] = now_s + (min(setup_s[i], length_s) + work_s)
    return rate, left, setup_s, steps, finish_s


@kernel(
    "Tuple((f8[:,::1], f8[::1], i8[:,::1], f8[::1]))"
    "(i8[:,::1], i8[::1], i8[::1], f8, f8, b1, b1[::1], f8[:,::1], f8[:,::1], f8[::1], f8[:,::1],"
    f" f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], i8[::1], f8[:,::1], {TABLE})",
)
def finish(
    index: Ints,
    first: Ints,
    devices: Ints,
    start_s: float,
    end_s: float,
    whole_steps: bool,
    lost: Bools,
    rate: Floats,
    left: Floats,
    setup_s: Floats,
    steps: Floats,
    finish_s: Floats,
    total: Floats,
    last: Floats,
    done: Floats,
    owes_s: Floats,
    slot: Ints,
    table: Floats,
    stages: Table,
) -> tuple[Floats, Floats, Ints, Floats]:
    """What a round has done by end_s; books steps and start-up time in place.

    lost: (devices of the cluster,). A unit counts whole or not at all: not when a device was lost, nor
    where it cannot run, nor (with whole_steps) when a device got no step. Returns steps, finish_s,
    outcome, restart_s.
    """
    n, width = index.shape
    did = np.zeros((n, width))
    until = np.empty(n)
    outcome = np.zeros((n, width), np.int64)
    restart = np.empty(n)
    for i in range(n):
        until[i] = min(finish_s[i], end_s)
        restart[i] = min(setup_s[i], until[i] - start_s)
        scale = first[i + 1] - first[i]
        gone = any_lost(devices, first[i], first[i + 1], lost)
        good = not gone
        for k in range(width):
            if index[i, k] < 0:
                continue
            did[i, k] = steps[i, k]
            if finish_s[i] > end_s:
                work_s = max(end_s - start_s - setup_s[i], 0.0)
                possible = rate[i, k] * work_s
                j = index[i, k]
                if stages[1][j] > 0 and (width == 1 or index[i, 1 - k] < 0) and rate[i, k] > 0:
                    possible = advance(
                        j, done[j], work_s, steps[i, k], rate[i, k], slot[i], table, stages
                    )[0]
                if whole_steps:
                    possible = np.floor(possible)
                did[i, k] = min(min(possible, left[i, k]), steps[i, k])
            if gone:
                outcome[i, k] = _LOST
            elif rate[i, k] <= 0:
                outcome[i, k] = _FAILED
                good = False
            elif whole_steps:
                each = did[i, k] // scale
                if (scale > 1 and each <= 0) or did[i, k] - (scale - 1) * each <= 0:
                    outcome[i, k] = _FAILED
                    good = False
        for k in range(width):
            j = index[i, k]
            if j < 0:
                continue
            owes_s[j] = max(owes_s[j] - restart[i], 0.0)
            if not good:
                did[i, k] = 0.0
                continue
            done[j] += did[i, k]
            if last[j] < total[j] and done[j] >= last[j]:
                outcome[i, k] = _ENDED
    return did, until, outcome, restart
