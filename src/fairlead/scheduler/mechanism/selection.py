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


class EntryQueue(NamedTuple):
    """Entries, and the heap of those that wait. Entry q * groups + u is job group u on slot slot_order[q]. Of
    each job group only the best entry that waits is in the heap: most leave it when that one is chosen."""

    heap: Ints1  # (groups,) entries, the best in front
    waits: Bools1  # (entries,) has it neither been looked at nor dropped?
    primary: Floats1  # (entries,)
    secondary: Floats1  # (entries,)
    tertiary: Floats1  # (entries,)
    waiting: Ints2  # (types, largest scale + 1) entries that wait


@kernel("b1(i8, i8, f8[::1], f8[::1], f8[::1])", inline="always")
def _before(a: int, b: int, primary: Floats, secondary: Floats, tertiary: Floats) -> bool:
    """Return whether entry a comes before entry b: larger keys first, then the lower entry number."""
    if primary[a] != primary[b]:
        return primary[a] > primary[b]  # type: ignore[no-any-return]
    if secondary[a] != secondary[b]:
        return secondary[a] > secondary[b]  # type: ignore[no-any-return]
    if tertiary[a] != tertiary[b]:
        return tertiary[a] > tertiary[b]  # type: ignore[no-any-return]
    return a < b


@kernel("void(i8[::1], i8, i8, f8[::1], f8[::1], f8[::1])", inline="always", allocates=False)
def _sift(
    heap: Ints, start: int, size: int, primary: Floats, secondary: Floats, tertiary: Floats
) -> None:
    """Restore the heap order below a position. size: entries in the heap.

    The entry there goes down to the bottom and up again from there: most belong near the bottom, and on the
    way down one comparison a level is enough."""
    i = start
    entry = heap[i]
    child = 2 * i + 1
    while child < size:
        right = child + 1
        if right < size and _before(heap[right], heap[child], primary, secondary, tertiary):
            child = right
        heap[i] = heap[child]
        i = child
        child = 2 * i + 1
    while i > start:
        parent = (i - 1) // 2
        if not _before(entry, heap[parent], primary, secondary, tertiary):
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = entry


@kernel("b1(i8, i8[:,::1], b1[::1])", inline="always", allocates=False)
def _is_free(u: int, members: Ints, taken: Bools) -> bool:
    """Return whether no member of the job group is chosen already."""
    free = True
    for k in range(members.shape[1]):
        if members[u, k] >= 0 and taken[members[u, k]]:
            free = False
    return free


@kernel("EntryQueue(Candidates, i8, i8)")
def empty_queue(candidates: Candidates, slots: int, types: int) -> EntryQueue:
    """Room for the entries of all job groups on so many slots."""
    groups, largest = len(candidates.scale), 1
    for u in range(groups):
        largest = max(largest, candidates.scale[u])
    return EntryQueue(
        heap=np.empty(groups, np.int64),
        waits=np.empty(groups * slots, np.bool_),
        primary=np.empty(groups * slots),
        secondary=np.empty(groups * slots),
        tertiary=np.empty(groups * slots),
        waiting=np.empty((types, largest + 1), np.int64),
    )


@kernel("i8(i8, i8, EntryQueue)", inline="always", allocates=False)
def _best_of(u: int, groups: int, queue: EntryQueue) -> int:
    """The best entry of job group u that waits, -1 = none does."""
    _, waits, primary, secondary, tertiary, _ = queue
    best = -1
    for entry in range(u, len(waits), groups):
        if waits[entry] and (best < 0 or _before(entry, best, primary, secondary, tertiary)):
            best = entry
    return best


@kernel("i8(EntryQueue, i8[::1], Priorities, Candidates, Selection)", allocates=False)
def _enqueue(
    queue: EntryQueue,
    slot_order: Ints,
    priorities: Priorities,
    candidates: Candidates,
    selection: Selection,
) -> int:
    """Fill the queue with the entries on the slots of ``slot_order`` that have enough devices; return the
    count of job groups in the heap."""
    heap, waits, key, tie, last, waiting = queue
    primary, secondary, tertiary, eligible = priorities
    members, scale, accelerator_of_slot = candidates
    free, taken, groups = selection.free, selection.taken, len(scale)
    waiting[:] = 0
    size = 0
    for u in range(groups):
        is_free = _is_free(u, members, taken)
        for q in range(len(slot_order)):
            t, entry = slot_order[q], q * groups + u
            accelerator = accelerator_of_slot[t]
            waits[entry] = is_free and eligible[u, t] and scale[u] <= free[accelerator]
            if waits[entry]:
                key[entry], tie[entry] = primary[u, t], secondary[u, t]
                last[entry] = tertiary[u, t]
                waiting[accelerator, scale[u]] += 1
        best = _best_of(u, groups, queue)
        if best >= 0:
            heap[size] = best
            size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sift(heap, i, size, key, tie, last)
    return size


@kernel("b1(i8[:,::1], i8[::1])", inline="always", allocates=False)
def _any_fits(waiting: Ints, free: Ints) -> bool:
    """Return whether there are devices for an entry that waits."""
    largest = waiting.shape[1] - 1
    for q in range(len(free)):
        for s in range(1, min(largest, free[q]) + 1):
            if waiting[q, s] > 0:
                return True
    return False


@kernel("i8(i8, i8[:,::1], b1[::1])", inline="always", allocates=False)
def _take(u: int, members: Ints, taken: Bools) -> int:
    """Mark the jobs of a job group as taken; how many they are."""
    jobs = 0
    for k in range(members.shape[1]):
        if members[u, k] >= 0:
            taken[members[u, k]] = True
            jobs += 1
    return jobs


@kernel("void(i8, i8[::1], Candidates, EntryQueue)", inline="always", allocates=False)
def _drop(u: int, slot_order: Ints, candidates: Candidates, queue: EntryQueue) -> None:
    """Job group u cannot be chosen any more: none of its entries waits."""
    groups = len(candidates.scale)
    for q in range(len(slot_order)):
        if queue.waits[q * groups + u]:
            queue.waits[q * groups + u] = False
            accelerator = candidates.accelerator_of_slot[slot_order[q]]
            queue.waiting[accelerator, candidates.scale[u]] -= 1


@kernel("i8(i8[::1], i8, Priorities, Candidates, Selection, EntryQueue)", allocates=False)
def select_into(
    slot_order: Ints,
    count: int,
    priorities: Priorities,
    candidates: Candidates,
    selection: Selection,
    queue: EntryQueue,
) -> int:
    """Choose the best entries on the slots of ``slot_order``, which breaks ties, until nothing fits. Returns
    the count of chosen job groups. count: of those chosen before; queue: of as many slots, overwritten."""
    free, taken, out_group, out_slot = selection
    members, scale, accelerator_of_slot = candidates
    heap, waits, primary, secondary, tertiary, waiting = queue
    size, groups = _enqueue(queue, slot_order, priorities, candidates, selection), len(scale)
    untaken = 0
    for j in range(len(taken)):
        untaken += not taken[j]
    while size > 0:
        entry = heap[0]
        u, t = entry % groups, slot_order[entry // groups]
        accelerator = accelerator_of_slot[t]
        waits[entry] = False
        waiting[accelerator, scale[u]] -= 1
        following = -1
        if not _is_free(u, members, taken):
            _drop(u, slot_order, candidates, queue)
        elif scale[u] > free[accelerator]:
            following = _best_of(u, groups, queue)
        else:
            free[accelerator] -= scale[u]
            untaken -= _take(u, members, taken)
            out_group[count], out_slot[count] = u, t
            count += 1
            _drop(u, slot_order, candidates, queue)
        if following < 0:
            size -= 1
            following = heap[size]
        heap[0] = following
        if size > 0:
            _sift(heap, 0, size, primary, secondary, tertiary)
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
    queue = empty_queue(candidates, len(slot_order), len(capacity))
    count = select_into(slot_order, 0, priorities, candidates, selection, queue)
    return selection.group[:count].copy(), selection.slot[:count].copy()
