"""A small cluster to place on, and both rules with names for what they return."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.scheduler.placement.avoid_nodes import DeviceAssignment
from fairlead.scheduler.placement.gavel_reference.by_device_id import by_device_id
from fairlead.scheduler.placement.records import (
    MoveTradeoffs,
    PlannedGroups,
    PreviousRound,
    Topology,
)
from fairlead.scheduler.placement.servers import place_on_fewest_servers

NODES = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3])  # two servers of four, two of two
TYPES = np.array([0] * 8 + [1] * 4)
FEWEST = np.array([[0, 1, 1, 1, 1, 2, 2, 2, 2], [0, 1, 1, 2, 2, 2, 2, 2, 2]])
NONE = np.zeros(0, np.int64)
NO_PREVIOUS_ROUND = PreviousRound(NONE, NONE, np.zeros(1, np.int64), NONE)


@dataclass
class Placement:
    """What a rule gave: devices, whether they were kept, and the slot, by job group."""

    where: dict[int, list[int]]
    kept: dict[int, bool]
    slot: dict[int, int]
    old: PreviousRound  # the same as the round before of the next call


def _placement(
    group: Ints, order: Ints, first: Ints, devices: Ints, kept: Any, slot: Ints
) -> Placement:
    names = group[order].tolist()
    held = [devices[first[n] : first[n + 1]].tolist() for n in range(len(order))]
    return Placement(
        dict(zip(names, held, strict=True)),
        dict(zip(names, kept.tolist(), strict=True)),
        dict(zip(names, slot.tolist(), strict=True)),
        PreviousRound(group[order], slot, first, devices),
    )


def _ints(values: Any) -> Ints:
    return np.array(values, np.int64)


def topology(usable: Any = None, scattered_slot: bool = False) -> Topology:
    """The cluster above. With ``scattered_slot``, slots 0 and 1 are its first type, consolidated and
    scattered; else its two types."""
    return Topology(
        device_type=TYPES,
        device_node=NODES,
        usable=np.ones(12, np.bool_) if usable is None else usable,
        fewest_servers=FEWEST,
        accelerator_of_slot=_ints([0, 0] if scattered_slot else [0, 1]),
        other_locality=_ints([1, 0] if scattered_slot else [-1, -1]),
        scattered=np.array([False, scattered_slot]),
    )


def placed(*devices: list[int], kept: bool = False) -> DeviceAssignment:
    """A row for each list of devices, all in slot 0."""
    first, rows = np.cumsum([0, *map(len, devices)]), len(devices)
    return DeviceAssignment(
        first, np.concatenate(devices), np.full(rows, kept), np.zeros(rows, np.int64)
    )


def rows(placed: DeviceAssignment) -> list[list[int]]:
    """The devices of each row."""
    return [placed.of(row).tolist() for row in range(len(placed.slot))]


def place_by_device_id(
    group: Any, slot: Any, scale: Any, old: PreviousRound, usable: Any = None
) -> Placement:
    """``by_device_id`` on the cluster above; slot 0 and 1 are its two types."""
    plan = PlannedGroups(_ints(group), _ints(slot), _ints(scale))
    nothing = np.zeros(len(plan.group))
    found = by_device_id(plan, old, topology(usable), MoveTradeoffs(nothing, nothing, nothing))
    return _placement(plan.group, *found)


def place_on_servers(
    group: Any,
    slot: Any,
    scale: Any,
    old: PreviousRound = NO_PREVIOUS_ROUND,
    usable: Any = None,
    fallback: Any = None,
    gain: Any = 1000.0,
    cost: Any = 10.0,
) -> Placement:
    """``place_on_fewest_servers`` on the cluster above. Without ``fallback``, slots 0 and 1 are its two
    types; with it, the first type consolidated and scattered. Numbers count for every row of the
    plan alike."""
    plan = PlannedGroups(_ints(group), _ints(slot), _ints(scale))
    scattered_slot = fallback is not None
    tradeoffs = MoveTradeoffs(
        *(
            np.broadcast_to(np.asarray(x, np.float64), len(plan.group)).copy()
            for x in (0.0 if fallback is None else fallback, gain, cost)
        )
    )
    return _placement(
        plan.group, *place_on_fewest_servers(plan, old, topology(usable, scattered_slot), tradeoffs)
    )
