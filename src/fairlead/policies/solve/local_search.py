"""Whole rounds per job and type: single rounds are added, moved and exchanged while that gains.

Each job's worth depends on its own progress only: its welfare, less a high price for what it lacks of the
progress that it needs. Where devices of a type are short, a round on it is taken from the jobs that lose
least by that; they run on free devices of another type instead if that gains.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Floats1, Floats2, Ints1, Ints2

_MIN_GAIN = 1e-13  # less, relative to what is at stake, is rounding
_PASSES = 200  # rarely more than ten gain anything


class SearchJobs(NamedTuple):
    """Value of rounds to the jobs."""

    speed: Floats2  # (jobs, types) progress of a round; 0 = cannot run there
    utility: Floats2  # (jobs, rounds + 1) value of a progress
    demand: Floats1  # (jobs,) progress
    shortfall_price: float  # of a round's progress that a job needs and has not
    scale: Ints1  # (jobs,) devices
    rounds: int


class SearchState(NamedTuple):
    """The rounds given out so far; kernels change its arrays."""

    counts: Ints2  # (jobs, types) rounds
    free: Ints1  # (types,) device-rounds
    progress: Floats1  # (jobs,)


@kernel("f8(SearchJobs, i8, f8)", allocates=False)
def _worth(jobs: SearchJobs, job: int, progress: float) -> float:
    """Return a job's worth with so much progress; its table is straight between columns."""
    last = jobs.utility.shape[1] - 1
    column = min(int(progress), last - 1)
    part = min(progress - column, 1.0)
    low, high = jobs.utility[job, column], jobs.utility[job, column + 1]
    lacks = max(0.0, jobs.demand[job] - progress)
    return float(low + part * (high - low) - jobs.shortfall_price * lacks)


@kernel("void(SearchJobs, SearchState, i8, i8, i8)", allocates=False)
def _shift(jobs: SearchJobs, state: SearchState, job: int, source: int, to: int) -> None:
    """Move one round of a job from a type, or nowhere (-1), to another, or nowhere."""
    if source >= 0:
        state.counts[job, source] -= 1
        state.free[source] += jobs.scale[job]
    if to >= 0:
        state.counts[job, to] += 1
        state.free[to] -= jobs.scale[job]
    total = 0.0
    for accelerator in range(len(state.free)):
        total += state.counts[job, accelerator] * jobs.speed[job, accelerator]
    state.progress[job] = total


@kernel("Tuple((f8, i8))(SearchJobs, SearchState, i8, i8)", allocates=False)
def _gain(jobs: SearchJobs, state: SearchState, job: int, to: int) -> tuple[float, int]:
    """Return the job's gain by one more round on a type, and the type on which it best gives one up.
    -1 = it gives none up."""
    counts, progress = state.counts, state.progress[job]
    now = _worth(jobs, job, progress)
    best, source = -np.inf, -1
    if counts[job].sum() < jobs.rounds:
        at = progress + jobs.speed[job, to]
        best = _worth(jobs, job, at) - now
    for accelerator in range(counts.shape[1]):
        if accelerator != to and counts[job, accelerator] > 0:
            at = progress + jobs.speed[job, to] - jobs.speed[job, accelerator]
            gain = _worth(jobs, job, at) - now
            if gain > best:
                best, source = gain, accelerator
    return best, source


@kernel("Tuple((f8, i8))(SearchJobs, SearchState, i8, i8)", allocates=False)
def _loss(jobs: SearchJobs, state: SearchState, job: int, accelerator: int) -> tuple[float, int]:
    """Return the job's loss by one round less on a type, and the type it best runs on instead; -1 = none."""
    now = _worth(jobs, job, state.progress[job])
    least = state.progress[job] - jobs.speed[job, accelerator]
    best, goes = now - _worth(jobs, job, max(least, 0.0)), -1
    for to in range(len(state.free)):
        if to != accelerator and jobs.speed[job, to] > 0 and jobs.scale[job] <= state.free[to]:
            loss = now - _worth(jobs, job, max(least, 0.0) + jobs.speed[job, to])
            if loss < best:
                best, goes = loss, to
    return best, goes


@kernel("b1(SearchJobs, SearchState, i8, f8)")
def _add(jobs: SearchJobs, state: SearchState, accelerator: int, min_gain: float) -> bool:
    """Give free devices of a type to the jobs that gain most per device. Returns whether any gains."""
    scale, free = jobs.scale, state.free
    worth = np.zeros(len(scale))
    for job in range(len(scale)):
        if jobs.speed[job, accelerator] > 0 and scale[job] <= free[accelerator]:
            gain, _ = _gain(jobs, state, job, accelerator)
            worth[job] = gain / scale[job]
    changed = False
    for job in np.argsort(-worth, kind="mergesort"):
        if worth[job] <= min_gain:
            break
        if scale[job] <= free[accelerator]:
            _, source = _gain(jobs, state, job, accelerator)
            _shift(jobs, state, job, source, accelerator)
            changed = True
    return changed


class _Donors(NamedTuple):
    """Jobs that may be asked to make room on a type."""

    order: Ints1  # (jobs,) by loss per device, those that have no round there last
    loss: Floats1  # (jobs,) of a round there; inf = has none
    exchanged: Bools1  # (jobs,) whether it has taken part in an exchange of this pass


@kernel("i8(_Donors, i8[::1], i8, i8, i8[::1])", allocates=False)
def _choose_donors(donors: _Donors, scale: Ints, job: int, short: int, out: Ints) -> int:
    """The number of jobs, written to ``out``, that make room for ``short`` devices at the least loss; 0 if
    none can."""
    loss = donors.loss
    n, free, several = 0, 0, 0.0
    single = -1
    for other in donors.order:
        if loss[other] == np.inf:
            break
        if free >= short and loss[other] * short >= several * scale[other]:
            break  # nobody from here on makes the room at less
        if other == job or donors.exchanged[other]:
            continue
        if free < short:
            out[n] = other
            n += 1
            free += scale[other]
            several += loss[other]
        if scale[other] >= short and (single < 0 or loss[other] < loss[single]):
            single = other
    if single >= 0 and (free < short or loss[single] <= several):
        out[0] = single
        return 1
    return n if free >= short else 0


@kernel("b1(SearchJobs, SearchState, i8, f8)")
def _exchange(jobs: SearchJobs, state: SearchState, accelerator: int, min_gain: float) -> bool:
    """Rounds of a type go from those who lose least to those who gain most; a job takes part once in
    a pass. Returns whether any gains."""
    scale = jobs.scale
    n_jobs = len(scale)
    gain, loss = np.full(n_jobs, -np.inf), np.full(n_jobs, np.inf)
    exchanged = np.zeros(n_jobs, np.bool_)
    out, went = np.empty(n_jobs, np.int64), np.empty(n_jobs, np.int64)
    for job in range(n_jobs):
        if jobs.speed[job, accelerator] > 0:
            gain[job], _ = _gain(jobs, state, job, accelerator)
        if state.counts[job, accelerator] > 0:
            loss[job], _ = _loss(jobs, state, job, accelerator)
    donors = _Donors(np.argsort(loss / scale, kind="mergesort"), loss, exchanged)
    changed = False
    for job in np.argsort(-gain / scale, kind="mergesort"):
        if gain[job] <= min_gain:
            break
        short = scale[job] - state.free[accelerator]
        if exchanged[job] or short <= 0:
            continue
        n = _choose_donors(donors, scale, job, short, out)
        cost = 0.0
        for i in range(n):
            cost += loss[out[i]]
        if n == 0 or gain[job] - cost <= min_gain:
            continue
        cost = 0.0
        for i in range(n):  # the loss of each may have grown: somebody else went where it would go
            less, went[i] = _loss(jobs, state, out[i], accelerator)
            _shift(jobs, state, out[i], accelerator, went[i])
            cost += less
        got, source = _gain(jobs, state, job, accelerator)
        if got - cost <= min_gain:
            for i in range(n):
                _shift(jobs, state, out[i], went[i], accelerator)
            continue
        _shift(jobs, state, job, source, accelerator)
        exchanged[job] = changed = True
        for i in range(n):
            exchanged[out[i]] = True
    return changed


@kernel("void(SearchJobs, SearchState)")
def _gather(jobs: SearchJobs, state: SearchState) -> None:
    """Move jobs that run on several types to one of them, where it has the devices, for no less progress."""
    counts, free, progress = state.counts, state.free, state.progress
    n_jobs, types = counts.shape
    for job in range(n_jobs):
        if (counts[job] > 0).sum() < 2:
            continue
        best, least = -1, jobs.rounds + 1
        for accelerator in range(types):
            if counts[job, accelerator] == 0:
                continue
            needed = int(np.ceil(progress[job] / jobs.speed[job, accelerator] - 1e-9))
            more = (needed - counts[job, accelerator]) * jobs.scale[job]
            if needed < least and more <= free[accelerator]:
                best, least = accelerator, needed
        if best >= 0:
            for accelerator in range(types):
                free[accelerator] += counts[job, accelerator] * jobs.scale[job]
                counts[job, accelerator] = 0
            counts[job, best] = least
            free[best] -= least * jobs.scale[job]
            progress[job] = least * jobs.speed[job, best]


@kernel("i8[:,::1](SearchJobs, i8[:,::1], i8[::1])")
def local_search(jobs: SearchJobs, start: Ints, capacity: Ints) -> Ints:
    """Better counts (jobs, types) than ``start``, which are within capacity and time. capacity: (types,)
    device-rounds."""
    state = SearchState(start.copy(), capacity.copy(), np.zeros(len(jobs.scale)))
    types = len(capacity)
    for job in range(len(jobs.scale)):
        for accelerator in range(types):
            count = state.counts[job, accelerator]
            state.free[accelerator] -= count * jobs.scale[job]
            state.progress[job] += count * jobs.speed[job, accelerator]
    min_gain = _MIN_GAIN * (jobs.utility.max() - jobs.utility.min() + 1e-300)
    for _ in range(_PASSES):
        changed = False
        for accelerator in range(types):
            while _add(jobs, state, accelerator, min_gain):
                changed = True
        if not changed:
            for accelerator in range(types):
                changed |= _exchange(jobs, state, accelerator, min_gain)
        if not changed:
            break
    _gather(jobs, state)
    return state.counts
