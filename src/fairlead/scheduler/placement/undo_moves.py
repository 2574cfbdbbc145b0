"""Undo moves between accelerator types that gain nothing, after a rule of placement has made them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats3, Ints1, Ints2
from fairlead.scheduler.placement.avoid_nodes import DeviceAssignment
from fairlead.scheduler.placement.records import PreviousRound, Topology

SlotAndDevices = tuple[int, Ints]  # slot and devices of a row in the round before


class PlacedGroups(NamedTuple):
    """Job groups with the slots that they are given, and what they can do on all slots."""

    group: Ints1  # (rows,) rows of the ledger's job groups
    slot: Ints1  # (rows,)
    members: Ints2  # (groups, width) rows of jobs, -1 = none
    rate: Floats3  # (groups, slots, width) steps/s that are believed
    accelerator_of_slot: Ints1  # (slots,)


def moved_for_nothing(placed: PlacedGroups, before: PreviousRound, tolerance: float) -> Ints:
    """Return the rows that are moved to another accelerator type and are not faster there."""
    found: Ints = np.empty(len(placed.group), np.int64)
    slot_before: Ints = np.empty(len(placed.members), np.int64)
    count = _find_moved(placed, before, tolerance, slot_before, found)
    return found[:count]


@kernel("i8(PlacedGroups, PreviousRound, f8, i8[::1], i8[::1])", allocates=False)
def _find_moved(
    placed: PlacedGroups, before: PreviousRound, tolerance: float, slot_before: Ints, found: Ints
) -> int:
    """Fill ``found``; return their count. slot_before: (groups,), to be filled."""
    group, slot, of_slot = placed.group, placed.slot, placed.accelerator_of_slot
    slot_before[:] = -1
    for k in range(len(before.group)):
        if before.group[k] >= 0:
            slot_before[before.group[k]] = before.slot[k]
    count = 0
    for i in range(len(group)):
        old = slot_before[group[i]]
        if old < 0 or of_slot[old] == of_slot[slot[i]]:
            continue
        if _as_fast(placed.members, placed.rate[group[i]], group[i], slot[i], old, tolerance):
            found[count] = i
            count += 1
    return count


@kernel("b1(i8[:,::1], f8[:,::1], i8, i8, i8, f8)", inline="always", allocates=False)
def _as_fast(members: Ints, rate: Floats, u: int, one: int, other: int, tolerance: float) -> bool:
    """Return whether all members of job group u run equally fast on both slots. rate: (slots, width)"""
    equal = True
    for k in range(members.shape[1]):
        if members[u, k] >= 0:
            here, there = rate[one, k], rate[other, k]
            near = abs(here - there) <= tolerance * max(here, there)
            equal = equal and here > 0 and near
    return equal


def undo_swaps(
    assignment: DeviceAssignment,
    old: Mapping[int, SlotAndDevices],
    fits: Callable[[int, int, int], bool],
) -> DeviceAssignment:
    """Return the placement in which rows have their old devices again by swapping with the one other row that
    is placed on exactly these. old: as in ``undo_moves``; fits(row, one slot, another): whether the row runs
    equally fast on both."""
    result = assignment.copied()
    holder = _holders(assignment)
    for row in sorted(old):
        slot, devices = old[row]
        mine = result.of(row).copy()
        holders = {holder.get(device, -1) for device in devices.tolist()} - {row}
        other = holders.pop() if len(holders) == 1 else -1
        if other < 0 or sorted(result.of(other).tolist()) != sorted(devices.tolist()):
            continue
        if not fits(other, int(result.slot[other]), int(result.slot[row])):
            continue
        result.of(other)[:] = mine
        result.of(row)[:] = devices
        result.slot[other], result.kept[other] = result.slot[row], False
        result.slot[row], result.kept[row] = slot, True
        holder.update(dict.fromkeys(mine.tolist(), other))
        holder.update(dict.fromkeys(devices.tolist(), row))
    _note_kept(result, old)
    return result


@dataclass(slots=True)
class _Exchange:
    """Rows that go back, and rows that are placed on their old devices and swap with them."""

    back: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)


def undo_group_swaps(
    assignment: DeviceAssignment,
    old: Mapping[int, SlotAndDevices],
    topology: Topology,
    fits: Callable[[int, int, int], bool],
    *,
    free: Bools | None = None,
) -> DeviceAssignment:
    """Return the placement in which rows have their old devices again by swapping with several rows at once,
    also of other sizes, which take the devices given up. old, fits: as in ``undo_swaps``; free: (devices,)
    free devices that may be used as well; None if none may, and the number used of each type must not change.

    Only rows on slots without another locality are swapped: locality does not matter there.
    """
    result, even = assignment.copied(), free is None
    free = np.zeros(len(topology.usable), np.bool_) if free is None else free.copy()
    for row in sorted(old):
        holder = _holders(result)
        found = _exchange(result, row, old, holder, topology)
        if found is None:
            continue
        target = int(result.slot[row])
        if not all(fits(other, int(result.slot[other]), target) for other in found.others):
            continue
        accelerator = topology.accelerator_of_slot[target]
        mine = [d for one in sorted(found.back) for d in result.of(one).tolist()]
        spare = np.flatnonzero(free & (topology.device_type == accelerator)).tolist()
        theirs = sorted(found.others, key=lambda other: (-len(result.of(other)), other))
        need = sum(len(result.of(other)) for other in theirs)
        if need > len(mine) + len(spare) or (even and need != len(mine)):
            continue
        left = {d for other in theirs for d in result.of(other).tolist()}
        pool = iter(sorted(mine) + spare)
        for other in theirs:
            result.of(other)[:] = sorted(next(pool) for _ in result.of(other))
            result.slot[other], result.kept[other] = target, False
        for one in sorted(found.back):
            slot, devices = old[one]
            result.of(one)[:], result.slot[one], result.kept[one] = devices, slot, True
        if free.any():
            free[[*left, *mine]] = True
            free[result.devices] = False
    _note_kept(result, old)
    return result


def _exchange(
    assignment: DeviceAssignment,
    row: int,
    old: Mapping[int, SlotAndDevices],
    holder: Mapping[int, int],
    topology: Topology,
) -> _Exchange | None:
    """Return the rows that have to swap for a row to go back; None if there are none, or it cannot go
    back."""
    slot, target = old[row][0], int(assignment.slot[row])
    if slot == target or topology.other_locality[slot] >= 0 or topology.other_locality[target] >= 0:
        return None
    came_from = {
        device: one
        for one in sorted(old)
        if old[one][0] == slot and assignment.slot[one] == target
        for device in old[one][1].tolist()
    }
    found, ahead = _Exchange(), [row]
    while ahead:
        one = ahead.pop()
        if one in found.back:
            continue
        found.back.add(one)
        for device in old[one][1].tolist():
            other = holder.get(device, -1)
            if other < 0 or other in found.others or other in found.back:
                continue
            if assignment.slot[other] != slot:
                return None
            found.others.add(other)
            theirs = (came_from.get(d) for d in assignment.of(other).tolist())
            ahead.extend(one for one in theirs if one is not None)
    return found if found.others else None


def _note_kept(assignment: DeviceAssignment, old: Mapping[int, SlotAndDevices]) -> None:
    """Mark rows as kept that have their old devices again: swaps of others may bring them back."""
    for row, (_, devices) in old.items():
        assignment.kept[row] |= np.array_equal(np.sort(assignment.of(row)), np.sort(devices))


def _holders(assignment: DeviceAssignment) -> dict[int, int]:
    """Return the row that is placed on each device."""
    return {
        device: row for row in range(len(assignment.slot)) for device in assignment.of(row).tolist()
    }


def undo_moves(assignment: DeviceAssignment, old: Mapping[int, SlotAndDevices]) -> DeviceAssignment:
    """Return the placement in which rows have their old devices again, if these are free or held by rows that
    go back themselves. old: row -> its slot and devices before; no two rows shared a device."""
    holder = _holders(assignment)
    back, more = set(old), True
    while more:
        stuck = {
            row
            for row in back
            if not {holder.get(d, row) for d in old[row][1].tolist()} <= back | {row}
        }
        back, more = back - stuck, bool(stuck)
    if not back:
        return assignment
    result = assignment.copied()
    for row in sorted(back):
        slot, devices = old[row]
        result.of(row)[:] = devices
        result.slot[row], result.kept[row] = slot, True
    return result


def rates_equal(speed: np.ndarray, one: Ints, other: Ints, tolerance: float) -> np.ndarray:
    """(rows,) whether all members of a row run equally fast on both slots, within a relative tolerance.
    speed: (rows, slots, width) steps/s, 1 where there is no member."""
    row = np.arange(len(speed))
    here, there = speed[row, one], speed[row, other]
    near = np.abs(here - there) <= tolerance * np.maximum(here, there)
    result: np.ndarray = ((here > 0) & near).all(axis=1)
    return result
