"""Gavel's rule of placement: a pure function of the plan and of who held what.

A device id is a position; ``device_type`` is non-decreasing, and the devices of a node are neighbours.
"""

import numpy as np

from fairlead.model.arrays import Bools, Ints
from fairlead.model.jit import kernel


@kernel(
    "Tuple((i8[::1], i8[::1], i8[::1], b1[::1]))"
    "(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], b1[::1], i8, i8[::1])"
)
def by_device_id(
    group: Ints,
    slot: Ints,
    scale: Ints,
    old_group: Ints,
    old_slot: Ints,
    old_first: Ints,
    old_devices: Ints,
    device_type: Ints,
    works: Bools,
    groups: int,
    accelerator_of_slot: Ints,
) -> tuple[Ints, Ints, Ints, Bools]:
    """Gavel's rule (its worker assignment): big job groups first; of one size, first those that keep the
    devices which they had, then the others on the lowest free ids behind the last one given.

    job group, slot: (running,) the plan in order of choice; scale: (groups,); old_*: the round before,
    old_unit holding rows of today's job groups, -1 where the job group has left; works: (devices,).
    Returns (order, first, devices, kept): the plan's rows in order of dispatch, and for each its devices.
    """
    n = len(group)
    order = np.empty(n, np.int64)
    kept = np.zeros(n, np.bool_)
    first = np.zeros(n + 1, np.int64)
    total = 0
    for i in range(n):
        total += scale[group[i]]
    devices = np.empty(total, np.int64)
    was = np.full(groups, -1, np.int64)
    for i in range(len(old_group)):
        if old_group[i] >= 0:
            was[old_group[i]] = i
    used = np.zeros(len(device_type), np.bool_)
    placed = np.zeros(n, np.bool_)
    out = 0
    begin = 0
    while begin < n:  # the plan comes slot by slot
        end = begin
        while end < n and slot[end] == slot[begin]:
            end += 1
        accelerator_index = accelerator_of_slot[slot[begin]]
        pointer = np.searchsorted(device_type, accelerator_index)
        size = 0
        for i in range(begin, end):
            size = max(size, scale[group[i]])
        while size > 0:
            for i in range(begin, end):
                u = group[i]
                if scale[u] != size or was[u] < 0 or old_slot[was[u]] != slot[i]:
                    continue
                a, b = old_first[was[u]], old_first[was[u] + 1]
                free = True
                for d in range(a, b):
                    if used[old_devices[d]] or not works[old_devices[d]]:
                        free = False
                if not free:
                    continue
                order[out] = i
                kept[out] = True
                placed[i] = True
                for d in range(a, b):
                    used[old_devices[d]] = True
                    devices[first[out] + d - a] = old_devices[d]
                first[out + 1] = first[out] + size
                out += 1
            for i in range(begin, end):
                if scale[group[i]] != size or placed[i]:
                    continue
                order[out] = i
                placed[i] = True
                got = 0
                while got < size:
                    if not used[pointer] and works[pointer]:
                        used[pointer] = True
                        devices[first[out] + got] = pointer
                        got += 1
                    pointer += 1
                first[out + 1] = first[out] + size
                out += 1
            below = 0
            for i in range(begin, end):
                if scale[group[i]] < size:
                    below = max(below, scale[group[i]])
            size = below
        begin = end
    return order, first, devices, kept
