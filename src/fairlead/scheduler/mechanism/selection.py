"""Choose who runs: the best entries first, until the devices are gone.

An entry is a (group, slot). Sorting all of them costs more than needed, for the devices run out long
before the entries do; a heap per queue yields them in the order of a full stable sort.
"""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel


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
    """Restore the heap below a position."""
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


@kernel(
    "Tuple((i8[::1], i8[::1]))"
    "(f8[:,::1], f8[:,::1], f8[:,::1], b1[:,::1], i8[:,::1], i8[::1], i8[::1], i8[::1], i8[::1],"
    " b1, i8)",
)
def select(
    first: Floats,
    second: Floats,
    third: Floats,
    eligible: Bools,
    group_members: Ints,
    scale: Ints,
    capacity: Ints,
    accelerator_of_slot: Ints,
    order: Ints,
    type_by_type: bool,
    jobs: int,
) -> tuple[Ints, Ints]:
    """The (group, slot) entries that run, in the order in which they were chosen.

    first, second, third: (groups, slots) keys, larger first; eligible: (groups, slots); member:
    (groups, width) rows of jobs; scale: (groups,) devices; capacity: (types,) free devices; draws_on:
    (slots,) type of each slot; order: slots in the order in which they are filled, or in which ties
    are broken when there is one queue for all (type_by_type False).
    """
    groups, slots = eligible.shape
    left = capacity.copy()
    taken = np.zeros(jobs, np.bool_)
    out_unit = np.empty(jobs, np.int64)
    out_slot = np.empty(jobs, np.int64)
    count = 0
    untaken = jobs
    largest = 1
    for u in range(groups):
        largest = max(largest, scale[u])
    queues = slots if type_by_type else 1
    most = groups if type_by_type else groups * slots
    heap = np.empty(most, np.int64)
    # Of the entries of a queue, side by side: reading them by job group and slot would cost most of the time.
    group, slot = np.empty(most, np.int64), np.empty(most, np.int64)
    key, tie, last = np.empty(most), np.empty(most), np.empty(most)
    waiting = np.empty((len(capacity), largest + 1), np.int64)
    for queue in range(queues):
        size = 0
        waiting[:] = 0
        for position in range(queue if type_by_type else 0, queue + 1 if type_by_type else slots):
            t = order[position]
            room = left[accelerator_of_slot[t]]
            if room == 0:
                continue
            for u in range(groups):
                if not eligible[u, t] or scale[u] > room:
                    continue
                free = True
                for k in range(group_members.shape[1]):
                    if group_members[u, k] >= 0 and taken[group_members[u, k]]:
                        free = False
                if free:
                    heap[size], group[size], slot[size] = size, u, t
                    key[size], tie[size], last[size] = first[u, t], second[u, t], third[u, t]
                    waiting[accelerator_of_slot[t], scale[u]] += 1
                    size += 1
        for i in range(size // 2 - 1, -1, -1):
            _sift(heap, i, size, key, tie, last)
        while size > 0:
            entry = heap[0]
            size -= 1
            if size > 0:
                heap[0] = heap[size]
                _sift(heap, 0, size, key, tie, last)
            u, t = group[entry], slot[entry]
            accelerator_index = accelerator_of_slot[t]
            waiting[accelerator_index, scale[u]] -= 1
            free = True
            for k in range(group_members.shape[1]):
                if group_members[u, k] >= 0 and taken[group_members[u, k]]:
                    free = False
            if free and scale[u] <= left[accelerator_index]:
                left[accelerator_index] -= scale[u]
                for k in range(group_members.shape[1]):
                    if group_members[u, k] >= 0:
                        taken[group_members[u, k]] = True
                        untaken -= 1
                out_unit[count] = u
                out_slot[count] = t
                count += 1
            elif scale[u] <= left[accelerator_index]:
                continue
            # Stop when nothing that is left fits, instead of emptying the queue.
            fits = False
            if untaken > 0:
                for q in range(len(left)):
                    for s in range(1, min(largest, left[q]) + 1):
                        if waiting[q, s] > 0:
                            fits = True
            if not fits:
                break
    return out_unit[:count].copy(), out_slot[:count].copy()
