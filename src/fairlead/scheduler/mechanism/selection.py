"""Choose who runs: the best entries first, until the devices are gone.

An entry is a job group on a slot type. Sorting all of them costs more than needed, for the devices run out
long before the entries do; a heap yields them in the order of a full stable sort.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Bools2, Floats1, Floats2, Ints1, Ints2


class Entries(NamedTuple):
    """The order in which entries are chosen: by falling keys, ``first`` before ``second`` and ``third``."""

    first: Floats2  # (groups, slots)
    second: Floats2  # (groups, slots)
    third: Floats2  # (groups, slots)
    eligible: Bools2  # (groups, slots) may the job group run there?


class Candidates(NamedTuple):
    """What the job groups need, and where their devices come from."""

    members: Ints2  # (groups, width) rows of jobs, -1 = none
    scale: Ints1  # (groups,) devices
    accelerator_of_slot: Ints1  # (slots,)


class Chosen(NamedTuple):
    """What has been chosen so far, and what is left. Filled in place."""

    left: Ints1  # (types,) free devices
    taken: Bools1  # (jobs,) is the job in a job group that runs?
    group: Ints1  # (jobs,) job groups in the order in which they were chosen
    slot: Ints1  # (jobs,) where


class _EntryQueue(NamedTuple):
    """Entries by number, and the heap of those that wait. Next to each other, for reading them by job group
    and slot would cost most of the time."""

    heap: Ints1  # (entries,) numbers of entries, the best in front
    group: Ints1  # (entries,)
    slot: Ints1  # (entries,)
    first: Floats1  # (entries,)
    second: Floats1  # (entries,)
    third: Floats1  # (entries,)
    waiting: Ints2  # (types, largest scale + 1) entries in the heap


@kernel("b1(i8, i8, f8[::1], f8[::1], f8[::1])", inline="always")
def _before(a: int, b: int, first: Floats, second: Floats, third: Floats) -> bool:
    """Does entry a come before entry b? Larger keys first, then the lower entry number."""
    if first[a] != first[b]:
        return first[a] > first[b]  # type: ignore[no-any-return]
    if second[a] != second[b]:
        return second[a] > second[b]  # type: ignore[no-any-return]
    if third[a] != third[b]:
        return third[a] > third[b]  # type: ignore[no-any-return]
    return a < b


@kernel("void(i8[::1], i8, i8, f8[::1], f8[::1], f8[::1])")
def _sift(heap: Ints, start: int, size: int, first: Floats, second: Floats, third: Floats) -> None:
    """Restore a heap of so many entries below a position."""
    i = start
    entry = heap[i]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and _before(heap[right], heap[child], first, second, third):
            child = right
        if not _before(heap[child], entry, first, second, third):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = entry


@kernel("b1(i8, i8[:,::1], b1[::1])")
def _is_free(u: int, members: Ints, taken: Bools) -> bool:
    """Whether no member of the job group is chosen already."""
    free = True
    for k in range(members.shape[1]):
        if members[u, k] >= 0 and taken[members[u, k]]:
            free = False
    return free


@kernel("_EntryQueue(Candidates, i8, i8)")
def _empty_queue(candidates: Candidates, slots: int, types: int) -> _EntryQueue:
    """Room for the entries of all job groups on so many slots."""
    largest = 1
    for u in range(len(candidates.scale)):
        largest = max(largest, candidates.scale[u])
    most = len(candidates.scale) * slots
    return _EntryQueue(
        heap=np.empty(most, np.int64),
        group=np.empty(most, np.int64),
        slot=np.empty(most, np.int64),
        first=np.empty(most),
        second=np.empty(most),
        third=np.empty(most),
        waiting=np.zeros((types, largest + 1), np.int64),
    )


@kernel("i8(_EntryQueue, i8[::1], Entries, Candidates, Chosen)")
def _enqueue(
    queue: _EntryQueue, order: Ints, entries: Entries, candidates: Candidates, chosen: Chosen
) -> int:
    """Put in order those entries on the slots of ``order`` for which there are devices; how many they are."""
    heap, group, slot, key, tie, last, waiting = queue
    first, second, third, eligible = entries
    members, scale, accelerator_of_slot = candidates
    left, taken = chosen.left, chosen.taken
    size = 0
    for t in order:
        accelerator = accelerator_of_slot[t]
        free = left[accelerator]
        if free == 0:
            continue
        for u in range(len(scale)):
            if not eligible[u, t] or scale[u] > free:
                continue
            if _is_free(u, members, taken):
                heap[size], group[size], slot[size] = size, u, t
                key[size], tie[size], last[size] = first[u, t], second[u, t], third[u, t]
                waiting[accelerator, scale[u]] += 1
                size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sift(heap, i, size, key, tie, last)
    return size


@kernel("b1(i8[:,::1], i8[::1])")
def _any_fits(waiting: Ints, left: Ints) -> bool:
    """Whether there are devices for an entry that waits."""
    largest = waiting.shape[1] - 1
    for q in range(len(left)):
        for s in range(1, min(largest, left[q]) + 1):
            if waiting[q, s] > 0:
                return True
    return False


@kernel("i8(i8, i8[:,::1], b1[::1])")
def _take(u: int, members: Ints, taken: Bools) -> int:
    """Mark the jobs of a job group as taken; how many they are."""
    jobs = 0
    for k in range(members.shape[1]):
        if members[u, k] >= 0:
            taken[members[u, k]] = True
            jobs += 1
    return jobs


@kernel("i8(i8[::1], i8, Entries, Candidates, Chosen)")
def choose(
    order: Ints, count: int, entries: Entries, candidates: Candidates, chosen: Chosen
) -> int:
    """Choose the best entries on the slots of ``order``, which breaks ties, until nothing fits. count: job
    groups that run already; returns it after this."""
    left, taken, out_group, out_slot = chosen
    members, scale, accelerator_of_slot = candidates
    queue = _empty_queue(candidates, len(order), len(left))
    heap, group, slot, first, second, third, waiting = queue
    size = _enqueue(queue, order, entries, candidates, chosen)
    untaken = len(taken) - np.sum(taken)
    while size > 0:
        entry = heap[0]
        size -= 1
        if size > 0:
            heap[0] = heap[size]
            _sift(heap, 0, size, first, second, third)
        u, t = group[entry], slot[entry]
        accelerator = accelerator_of_slot[t]
        waiting[accelerator, scale[u]] -= 1
        if scale[u] <= left[accelerator]:
            if not _is_free(u, members, taken):
                continue
            left[accelerator] -= scale[u]
            untaken -= _take(u, members, taken)
            out_group[count], out_slot[count] = u, t
            count += 1
        # Stop when nothing that is left fits, instead of emptying the queue.
        if untaken == 0 or not _any_fits(waiting, left):
            break
    return count


@kernel("Chosen(i8[::1], i8)")
def nothing_chosen(capacity: Ints, jobs: int) -> Chosen:
    """All devices are free. capacity: (types,)."""
    return Chosen(
        left=capacity.copy(),
        taken=np.zeros(jobs, np.bool_),
        group=np.empty(jobs, np.int64),
        slot=np.empty(jobs, np.int64),
    )


@kernel("Tuple((i8[::1], i8[::1]))(Entries, Candidates, i8[::1], i8[::1], i8)")
def select(
    entries: Entries, candidates: Candidates, capacity: Ints, order: Ints, jobs: int
) -> tuple[Ints, Ints]:
    """The job groups that run and their slots, in the order in which they were chosen: one queue for all.

    capacity: (types,) free devices; order: (slots,) slots, the first one wins a tie; jobs: how many there
    are.
    """
    chosen = nothing_chosen(capacity, jobs)
    count = choose(order, 0, entries, candidates, chosen)
    return chosen.group[:count].copy(), chosen.slot[:count].copy()
