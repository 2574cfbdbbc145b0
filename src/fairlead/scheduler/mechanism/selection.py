"""Choose who runs: the best entries first, until the devices are gone.

An entry is a job group on a slot type. Sorting all of them costs more than needed, for the devices run out
long before the entries do; a heap yields them in the order of a full stable sort.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Bools2, Floats1, Floats2, Ints1, Ints2


class Priorities(NamedTuple):
    """The keys by which entries are chosen, larger ones first; the next key breaks ties."""

    primary: Floats2  # (groups, slots)
    secondary: Floats2  # (groups, slots)
    tertiary: Floats2  # (groups, slots)
    eligible: Bools2  # (groups, slots) may the job group run there?


class Candidates(NamedTuple):
    """Devices that the job groups need, and the accelerator types that provide them."""

    members: Ints2  # (groups, width) rows of jobs, -1 = none
    scale: Ints1  # (groups,) devices
    accelerator_of_slot: Ints1  # (slots,)


class Selection(NamedTuple):
    """The entries chosen so far, and the devices that are left. Filled in place."""

    free: Ints1  # (types,) devices
    taken: Bools1  # (jobs,) is the job in a job group that runs?
    group: Ints1  # (jobs,) job groups in the order in which they were chosen
    slot: Ints1  # (jobs,) where


class _EntryQueue(NamedTuple):
    """Entries by number, and the heap of those that wait. Next to each other, for reading them by job group
    and slot would cost most of the time."""

    heap: Ints1  # (entries,) numbers of entries, the best in front
    group: Ints1  # (entries,)
    slot: Ints1  # (entries,)
    primary: Floats1  # (entries,)
    secondary: Floats1  # (entries,)
    tertiary: Floats1  # (entries,)
    waiting: Ints2  # (types, largest scale + 1) entries in the heap


@kernel("b1(i8, i8, f8[::1], f8[::1], f8[::1])", inline="always")
def _before(a: int, b: int, primary: Floats, secondary: Floats, tertiary: Floats) -> bool:
    """Whether entry a comes before entry b: larger keys first, then the lower entry number."""
    if primary[a] != primary[b]:
        return primary[a] > primary[b]  # type: ignore[no-any-return]
    if secondary[a] != secondary[b]:
        return secondary[a] > secondary[b]  # type: ignore[no-any-return]
    if tertiary[a] != tertiary[b]:
        return tertiary[a] > tertiary[b]  # type: ignore[no-any-return]
    return a < b


@kernel("void(i8[::1], i8, i8, f8[::1], f8[::1], f8[::1])")
def _sift(
    heap: Ints, start: int, size: int, primary: Floats, secondary: Floats, tertiary: Floats
) -> None:
    """Restore the heap order below a position. size: entries in the heap."""
    i = start
    entry = heap[i]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and _before(heap[right], heap[child], primary, secondary, tertiary):
            child = right
        if not _before(heap[child], entry, primary, secondary, tertiary):
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
        primary=np.empty(most),
        secondary=np.empty(most),
        tertiary=np.empty(most),
        waiting=np.zeros((types, largest + 1), np.int64),
    )


@kernel("i8(_EntryQueue, i8[::1], Priorities, Candidates, Selection)")
def _enqueue(
    queue: _EntryQueue,
    slot_order: Ints,
    priorities: Priorities,
    candidates: Candidates,
    selection: Selection,
) -> int:
    """Fill the heap with the entries on slots of ``slot_order`` that have enough devices; return their
    count."""
    heap, group, slot, key, tie, last, waiting = queue
    primary, secondary, tertiary, eligible = priorities
    members, scale, accelerator_of_slot = candidates
    free, taken = selection.free, selection.taken
    size = 0
    for t in slot_order:
        accelerator = accelerator_of_slot[t]
        available = free[accelerator]
        if available == 0:
            continue
        for u in range(len(scale)):
            if not eligible[u, t] or scale[u] > available:
                continue
            if _is_free(u, members, taken):
                heap[size], group[size], slot[size] = size, u, t
                key[size], tie[size], last[size] = primary[u, t], secondary[u, t], tertiary[u, t]
                waiting[accelerator, scale[u]] += 1
                size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sift(heap, i, size, key, tie, last)
    return size


@kernel("b1(i8[:,::1], i8[::1])")
def _any_fits(waiting: Ints, free: Ints) -> bool:
    """Whether there are devices for an entry that waits."""
    largest = waiting.shape[1] - 1
    for q in range(len(free)):
        for s in range(1, min(largest, free[q]) + 1):
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


@kernel("i8(i8[::1], i8, Priorities, Candidates, Selection)")
def select_into(
    slot_order: Ints,
    count: int,
    priorities: Priorities,
    candidates: Candidates,
    selection: Selection,
) -> int:
    """Choose the best entries on the slots of ``slot_order``, which breaks ties, until nothing fits.

    count: job groups chosen before this call. Returns their number after it."""
    free, taken, out_group, out_slot = selection
    members, scale, accelerator_of_slot = candidates
    queue = _empty_queue(candidates, len(slot_order), len(free))
    heap, group, slot, primary, secondary, tertiary, waiting = queue
    size = _enqueue(queue, slot_order, priorities, candidates, selection)
    untaken = len(taken) - np.sum(taken)
    while size > 0:
        entry = heap[0]
        size -= 1
        if size > 0:
            heap[0] = heap[size]
            _sift(heap, 0, size, primary, secondary, tertiary)
        u, t = group[entry], slot[entry]
        accelerator = accelerator_of_slot[t]
        waiting[accelerator, scale[u]] -= 1
        if scale[u] <= free[accelerator]:
            if not _is_free(u, members, taken):
                continue
            free[accelerator] -= scale[u]
            untaken -= _take(u, members, taken)
            out_group[count], out_slot[count] = u, t
            count += 1
        # Stop when nothing that is left fits, instead of emptying the queue.
        if untaken == 0 or not _any_fits(waiting, free):
            break
    return count


@kernel("Selection(i8[::1], i8)")
def empty_selection(capacity: Ints, jobs: int) -> Selection:
    """All devices are free. capacity: (types,)."""
    return Selection(
        free=capacity.copy(),
        taken=np.zeros(jobs, np.bool_),
        group=np.empty(jobs, np.int64),
        slot=np.empty(jobs, np.int64),
    )


@kernel("Tuple((i8[::1], i8[::1]))(Priorities, Candidates, i8[::1], i8[::1], i8)")
def select(
    priorities: Priorities, candidates: Candidates, capacity: Ints, slot_order: Ints, jobs: int
) -> tuple[Ints, Ints]:
    """Return the job groups that run and their slots, in the order of choice, from one queue for all slots.

    capacity: (types,) free devices; slot_order: (slots,) slots, the first one wins a tie; jobs: number of
    jobs.
    """
    selection = empty_selection(capacity, jobs)
    count = select_into(slot_order, 0, priorities, candidates, selection)
    return selection.group[:count].copy(), selection.slot[:count].copy()
