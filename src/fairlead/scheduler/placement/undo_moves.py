"""Undo moves between accelerator types that gain nothing, after a rule of placement has made them."""

from collections.abc import Callable, Mapping

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.scheduler.placement.avoid_nodes import DeviceAssignment

SlotAndDevices = tuple[int, Ints]  # slot and devices of a row in the round before


def swap_back(
    assignment: DeviceAssignment,
    old: Mapping[int, SlotAndDevices],
    fits: Callable[[int, int, int], bool],
) -> DeviceAssignment:
    """The placement with rows on the devices that they had, where one other row, alone, is placed on just
    these: it takes the row's place in return. old: as in ``move_back``; fits: (row, one slot, another)
    whether the row runs as fast on one as on the other."""
    result = assignment.copied()
    holder = {
        device: row for row in range(len(assignment.slot)) for device in assignment.of(row).tolist()
    }
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
    return result


def move_back(assignment: DeviceAssignment, old: Mapping[int, SlotAndDevices]) -> DeviceAssignment:
    """The placement with rows on the devices that they had, as far as no other row is placed on them, or
    only rows that go back themselves. old: row -> where it was; no two rows were on one device."""
    holder = {
        device: row for row in range(len(assignment.slot)) for device in assignment.of(row).tolist()
    }
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
    """(rows,) do all members of a row run as fast on one slot as on the other? speed: (rows, slots, width)
    steps/s, 1 where there is no member."""
    row = np.arange(len(speed))
    here, there = speed[row, one], speed[row, other]
    near = np.abs(here - there) <= tolerance * np.maximum(here, there)
    result: np.ndarray = ((here > 0) & near).all(axis=1)
    return result
