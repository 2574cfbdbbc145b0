"""Whole rounds per job and type: single rounds are added, moved and exchanged while that gains.

Each job's worth depends on its own progress only: its welfare, less a high price for what it lacks of the
progress that it needs. Rounds of a job on a type are taken from other jobs where devices are short: from
those that lose least, which move to free devices of another type if they have a use for them.
"""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel

_GAIN = 1e-13  # less, relative to what is at stake, is rounding
_PASSES = 200  # rarely more than ten gain anything


@kernel("f8(f8[:,::1], f8[::1], f8, i8, f8)")
def _worth(utility: Floats, need: Floats, owed: float, job: int, progress: float) -> float:
    """What a job is worth with so much progress; its table is straight between columns."""
    last = utility.shape[1] - 1
    column = min(int(progress), last - 1)
    part = min(progress - column, 1.0)
    low, high = utility[job, column], utility[job, column + 1]
    return float(low + part * (high - low) - owed * max(0.0, need[job] - progress))


@kernel("void(i8[:,::1], f8[:,::1], i8[::1], i8[::1], f8[::1], i8, i8, i8)")
def _shift(
    counts: Ints,
    speed: Floats,
    scale: Ints,
    free: Ints,
    progress: Floats,
    job: int,
    origin: int,
    to: int,
) -> None:
    """One round of a job from a type, or nowhere (-1), to another, or nowhere."""
    if origin >= 0:
        counts[job, origin] -= 1
        free[origin] += scale[job]
    if to >= 0:
        counts[job, to] += 1
        free[to] -= scale[job]
    total = 0.0
    for kind in range(len(free)):
        total += counts[job, kind] * speed[job, kind]
    progress[job] = total


@kernel("Tuple((f8, i8))(i8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8, f8[::1], i8, i8, i8)")
def _gain(
    counts: Ints,
    speed: Floats,
    utility: Floats,
    need: Floats,
    owed: float,
    progress: Floats,
    rounds: int,
    job: int,
    to: int,
) -> tuple[float, int]:
    """What a job gains by one more round on a type, and whence it had best be taken: -1 = nowhere."""
    now = _worth(utility, need, owed, job, progress[job])
    best, origin = -np.inf, -1
    if counts[job].sum() < rounds:
        at = progress[job] + speed[job, to]
        best = _worth(utility, need, owed, job, at) - now
    for kind in range(counts.shape[1]):
        if kind != to and counts[job, kind] > 0:
            at = progress[job] + speed[job, to] - speed[job, kind]
            gain = _worth(utility, need, owed, job, at) - now
            if gain > best:
                best, origin = gain, kind
    return best, origin


@kernel("Tuple((f8, i8))(f8[:,::1], f8[:,::1], f8[::1], f8, i8[::1], i8[::1], f8[::1], i8, i8)")
def _loss(
    speed: Floats,
    utility: Floats,
    need: Floats,
    owed: float,
    scale: Ints,
    free: Ints,
    progress: Floats,
    job: int,
    kind: int,
) -> tuple[float, int]:
    """What a job loses with a round on a type, and where it had best go instead: -1 = nowhere."""
    now = _worth(utility, need, owed, job, progress[job])
    least = progress[job] - speed[job, kind]
    best, goes = now - _worth(utility, need, owed, job, max(least, 0.0)), -1
    for to in range(len(free)):
        if to != kind and speed[job, to] > 0 and scale[job] <= free[to]:
            loss = now - _worth(utility, need, owed, job, max(least, 0.0) + speed[job, to])
            if loss < best:
                best, goes = loss, to
    return best, goes


@kernel("b1(i8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8, i8[::1], i8[::1], f8[::1], i8, i8, f8)")
def _add(
    counts: Ints,
    speed: Floats,
    utility: Floats,
    need: Floats,
    owed: float,
    scale: Ints,
    free: Ints,
    progress: Floats,
    rounds: int,
    kind: int,
    sure: float,
) -> bool:
    """Give free devices of a type to those who gain most per device; does anybody gain?"""
    jobs = len(scale)
    worth = np.zeros(jobs)
    for job in range(jobs):
        if speed[job, kind] > 0 and scale[job] <= free[kind]:
            gain, _ = _gain(counts, speed, utility, need, owed, progress, rounds, job, kind)
            worth[job] = gain / scale[job]
    changed = False
    for job in np.argsort(-worth, kind="mergesort"):
        if worth[job] <= sure:
            break
        if scale[job] <= free[kind]:
            _, origin = _gain(counts, speed, utility, need, owed, progress, rounds, job, kind)
            _shift(counts, speed, scale, free, progress, job, origin, kind)
            changed = True
    return changed


@kernel("i8(i8[::1], f8[::1], b1[::1], i8[::1], i8, i8, i8[::1])")
def _victims(
    order: Ints, loss: Floats, touched: Bools, scale: Ints, job: int, short: int, out: Ints
) -> int:
    """The jobs that lose least by making room for ``short`` devices: a number of them, in ``out``; 0 if
    there is no room to be made. order: jobs by loss per device, inf last."""
    n, room, several = 0, 0, 0.0
    single = -1
    for other in order:
        if loss[other] == np.inf:
            break
        if room >= short and loss[other] * short >= several * scale[other]:
            break  # nobody from here on makes the room at less
        if other == job or touched[other]:
            continue
        if room < short:
            out[n] = other
            n += 1
            room += scale[other]
            several += loss[other]
        if scale[other] >= short and (single < 0 or loss[other] < loss[single]):
            single = other
    if single >= 0 and (room < short or loss[single] <= several):
        out[0] = single
        return 1
    return n if room >= short else 0


@kernel("b1(i8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8, i8[::1], i8[::1], f8[::1], i8, i8, f8)")
def _exchange(
    counts: Ints,
    speed: Floats,
    utility: Floats,
    need: Floats,
    owed: float,
    scale: Ints,
    free: Ints,
    progress: Floats,
    rounds: int,
    kind: int,
    sure: float,
) -> bool:
    """Rounds of a type from those who lose least to those who gain most; does anybody gain? Who has taken
    part is left alone until the next pass."""
    jobs = len(scale)
    gain, loss = np.full(jobs, -np.inf), np.full(jobs, np.inf)
    touched = np.zeros(jobs, np.bool_)
    out, went = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    for job in range(jobs):
        if speed[job, kind] > 0:
            gain[job], _ = _gain(counts, speed, utility, need, owed, progress, rounds, job, kind)
        if counts[job, kind] > 0:
            loss[job], _ = _loss(speed, utility, need, owed, scale, free, progress, job, kind)
    order = np.argsort(loss / scale, kind="mergesort")
    changed = False
    for job in np.argsort(-gain / scale, kind="mergesort"):
        if gain[job] <= sure:
            break
        short = scale[job] - free[kind]
        if touched[job] or short <= 0:
            continue
        n = _victims(order, loss, touched, scale, job, short, out)
        cost = 0.0
        for i in range(n):
            cost += loss[out[i]]
        if n == 0 or gain[job] - cost <= sure:
            continue
        cost = 0.0
        for i in range(n):  # the loss of each may have grown: somebody else went where it would go
            less, went[i] = _loss(speed, utility, need, owed, scale, free, progress, out[i], kind)
            _shift(counts, speed, scale, free, progress, out[i], kind, went[i])
            cost += less
        got, origin = _gain(counts, speed, utility, need, owed, progress, rounds, job, kind)
        if got - cost <= sure:
            for i in range(n):
                _shift(counts, speed, scale, free, progress, out[i], went[i], kind)
            continue
        _shift(counts, speed, scale, free, progress, job, origin, kind)
        touched[job] = changed = True
        for i in range(n):
            touched[out[i]] = True
    return changed


@kernel("void(i8[:,::1], f8[:,::1], i8[::1], i8[::1], f8[::1], i8)")
def _gather(
    counts: Ints, speed: Floats, scale: Ints, free: Ints, progress: Floats, rounds: int
) -> None:
    """Jobs on several types go to one of them, where it has the devices, for no less progress."""
    jobs, types = counts.shape
    for job in range(jobs):
        if (counts[job] > 0).sum() < 2:
            continue
        best, least = -1, rounds + 1
        for kind in range(types):
            if counts[job, kind] == 0:
                continue
            wanted = int(np.ceil(progress[job] / speed[job, kind] - 1e-9))
            if wanted < least and (wanted - counts[job, kind]) * scale[job] <= free[kind]:
                best, least = kind, wanted
        if best >= 0:
            for kind in range(types):
                free[kind] += counts[job, kind] * scale[job]
                counts[job, kind] = 0
            counts[job, best] = least
            free[best] -= least * scale[job]
            progress[job] = least * speed[job, best]


@kernel(
    "i8[:,::1](i8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8, i8[::1], i8[::1], i8)",
)
def local_search(
    start: Ints,
    speed: Floats,
    utility: Floats,
    need: Floats,
    owed: float,
    scale: Ints,
    capacity: Ints,
    rounds: int,
) -> Ints:
    """Better counts (jobs, types) than ``start``, which are within capacity and time.

    speed: (jobs, types); utility: (jobs, rounds + 1); need: (jobs,) progress, at the price ``owed``;
    scale: (jobs,); capacity: (types,) device-rounds.
    """
    counts = start.copy()
    free = capacity.copy()
    progress = np.zeros(len(scale))
    for job in range(len(scale)):
        for kind in range(len(free)):
            free[kind] -= counts[job, kind] * scale[job]
            progress[job] += counts[job, kind] * speed[job, kind]
    sure = _GAIN * (utility.max() - utility.min() + 1e-300)
    for _ in range(_PASSES):
        changed = False
        for kind in range(len(free)):
            while _add(
                counts, speed, utility, need, owed, scale, free, progress, rounds, kind, sure
            ):
                changed = True
        if not changed:
            for kind in range(len(free)):
                changed |= _exchange(
                    counts, speed, utility, need, owed, scale, free, progress, rounds, kind, sure
                )
        if not changed:
            break
    _gather(counts, speed, scale, free, progress, rounds)
    return counts
