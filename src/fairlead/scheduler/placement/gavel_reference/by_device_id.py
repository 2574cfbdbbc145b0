"""Gavel's rule of placement: a pure function of the plan and of who held what.

A device id is a position; accelerator types are non-decreasing, and the devices of a node are neighbours.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Ints1
from fairlead.scheduler.placement.records import (
    MoveTradeoffs,
    Placement,
    PlannedGroups,
    PreviousRound,
    Topology,
)

_ANY_SIZE = 2**62  # more devices than a job group can need


class _Dispatch(NamedTuple):
    """Rows of the plan in order of dispatch, filled from the front: row order[k] gets
    given[offsets[k]:offsets[k + 1]]."""

    plan: PlannedGroups
    before: PreviousRound
    topology: Topology
    previous: Ints1  # (groups,) position of a job group in the round before, -1 = it did not run
    order: Ints1  # (running,) rows of the plan
    offsets: Ints1  # (running + 1,)
    given: Ints1  # (devices of all rows,)
    kept: Bools1  # (running,) are they those of the round before?
    dispatched: Bools1  # (running,) by row of the plan: has it been dispatched?
    used: Bools1  # (devices of the cluster,)


@kernel("_Dispatch(PlannedGroups, PreviousRound, Topology)")
def _nothing_dispatched(
    plan: PlannedGroups, before: PreviousRound, topology: Topology
) -> _Dispatch:
    """Return a state in which no row has been dispatched."""
    n, old_group = len(plan.group), before.group
    previous = np.full(len(plan.scale), -1, np.int64)
    for k in range(len(old_group)):
        if old_group[k] >= 0:
            previous[old_group[k]] = k
    devices = 0
    for u in plan.group:
        devices += plan.scale[u]
    return _Dispatch(
        plan=plan,
        before=before,
        topology=topology,
        previous=previous,
        order=np.empty(n, np.int64),
        offsets=np.zeros(n + 1, np.int64),
        given=np.empty(devices, np.int64),
        kept=np.zeros(n, np.bool_),
        dispatched=np.zeros(n, np.bool_),
        used=np.zeros(len(topology.device_type), np.bool_),
    )


@kernel("i8(PlannedGroups, i8, i8, i8)", allocates=False)
def _largest_scale(plan: PlannedGroups, begin: int, end: int, below: int) -> int:
    """The most devices, fewer than ``below``, that one of the rows begin .. end-1 needs; 0 = none."""
    group, scale = plan.group, plan.scale
    size = 0
    for i in range(begin, end):
        if scale[group[i]] < below:
            size = max(size, scale[group[i]])
    return size


@kernel("b1(i8[::1], b1[::1], b1[::1])", allocates=False)
def _are_free(old: Ints, usable: Bools, used: Bools) -> bool:
    """Return whether all these devices work and none of them has been given out."""
    free = True
    for d in old:
        free = free and usable[d] and not used[d]
    return free


@kernel("i8(i8, i8, i8, i8, _Dispatch)", allocates=False)
def _keep_old(begin: int, end: int, size: int, out: int, to: _Dispatch) -> int:
    """Dispatch those of the rows begin .. end-1 with so many devices that can keep theirs of the round
    before. out: rows dispatched so far; returns it after this."""
    group, slot, scale = to.plan
    _, old_slot, old_first, old_devices = to.before
    usable, previous, offsets, given, used = (
        to.topology.usable,
        to.previous,
        to.offsets,
        to.given,
        to.used,
    )
    order, kept, dispatched = to.order, to.kept, to.dispatched
    for i in range(begin, end):
        k = previous[group[i]]
        if scale[group[i]] != size or k < 0 or old_slot[k] != slot[i]:
            continue
        old = old_devices[old_first[k] : old_first[k + 1]]
        if not _are_free(old, usable, used):
            continue
        order[out], kept[out], dispatched[i] = i, True, True
        for n in range(len(old)):
            used[old[n]] = True
            given[offsets[out] + n] = old[n]
        offsets[out + 1] = offsets[out] + size
        out += 1
    return out


@kernel("Tuple((i8, i8))(i8, i8, i8, i8, i8, _Dispatch)", allocates=False)
def _assign_lowest(
    begin: int, end: int, size: int, out: int, device: int, to: _Dispatch
) -> tuple[int, int]:
    """Dispatch the others of the rows begin .. end-1 with so many devices to the lowest free ids from
    ``device`` on. out: rows dispatched so far; returns it and the next device to look at."""
    group, _, scale = to.plan
    usable, offsets, given, used = to.topology.usable, to.offsets, to.given, to.used
    order, dispatched = to.order, to.dispatched
    for i in range(begin, end):
        if scale[group[i]] != size or dispatched[i]:
            continue
        order[out], dispatched[i] = i, True
        got = 0
        while got < size:
            if not used[device] and usable[device]:
                used[device] = True
                given[offsets[out] + got] = device
                got += 1
            device += 1
        offsets[out + 1] = offsets[out] + size
        out += 1
    return out, device


@kernel("Placement(PlannedGroups, PreviousRound, Topology)")
def _by_device_id(plan: PlannedGroups, before: PreviousRound, topology: Topology) -> Placement:
    to = _nothing_dispatched(plan, before, topology)
    _dispatch_all(to)
    return Placement(to.order, to.offsets, to.given, to.kept, plan.slot[to.order])


@kernel("void(_Dispatch)", allocates=False)
def _dispatch_all(to: _Dispatch) -> None:
    plan, topology, slot = to.plan, to.topology, to.plan.slot
    out = begin = 0
    while begin < len(slot):  # the plan comes slot by slot
        end = begin
        while end < len(slot) and slot[end] == slot[begin]:
            end += 1
        accelerator_index = topology.accelerator_of_slot[slot[begin]]
        device = np.searchsorted(topology.device_type, accelerator_index)
        size = _largest_scale(plan, begin, end, _ANY_SIZE)
        while size > 0:
            out = _keep_old(begin, end, size, out, to)
            out, device = _assign_lowest(begin, end, size, out, device, to)
            size = _largest_scale(plan, begin, end, size)
        begin = end


def by_device_id(
    plan: PlannedGroups,
    before: PreviousRound,
    topology: Topology,
    tradeoffs: MoveTradeoffs,  # noqa: ARG001
) -> Placement:
    """Gavel's rule (its worker assignment): big job groups first; of one size, first those that keep the
    devices which they had, then the others on the lowest free ids after the last one given. Everybody of
    the plan, which comes slot by slot, gets devices, whatever is at stake."""
    return _by_device_id(plan, before, topology)
