"""Place job groups on the nodes that a planner names."""

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Ints1
from fairlead.scheduler.placement.occupancy import (
    FREE,
    KEPT,
    PLACED,
    UNPLACED,
    Occupancy,
    empty_occupancy,
    keep,
    servers_of,
    take,
)
from fairlead.scheduler.placement.records import (
    Placement,
    PlannedGroups,
    PreviousRound,
    Topology,
)


def place_on_nodes(
    plan: PlannedGroups, before: PreviousRound, topology: Topology, nodes: Ints
) -> Placement:
    """Give devices to the job groups of a plan on nodes of their accelerator types. Who was on the same
    nodes in the round before keeps its devices, where they work; who finds a node full does not run.
    nodes: as of ``RoundPlan``."""
    at = empty_occupancy(plan, topology)
    was: Ints = np.full(len(plan.scale), -1, np.int64)
    there = np.flatnonzero(before.group >= 0)
    was[before.group[there]] = there
    _fill(plan, before, nodes, was, at)
    placed = np.flatnonzero(at.state != UNPLACED)
    sizes = np.diff(at.offsets)
    runs = np.repeat(at.state != UNPLACED, sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes[placed])]).astype(np.int64)
    return Placement(
        order=placed,
        offsets=offsets,
        devices=at.devices[runs],
        kept=at.state[placed] == KEPT,
        slot=_slots(plan, topology, placed, at),
    )


@kernel("void(PlannedGroups, PreviousRound, i8[::1], i8[::1], Occupancy)", allocates=False)
def _fill(
    plan: PlannedGroups, before: PreviousRound, nodes: Ints1, was: Ints1, at: Occupancy
) -> None:
    """Keep those that stay, then give the others the first free devices of their nodes.
    was: (groups,) where each stands in the round before, -1 = it did not run."""
    for i in range(len(plan.group)):
        k = was[plan.group[i]]
        if k < 0:
            continue
        begin, count = before.offsets[k], at.offsets[i + 1] - at.offsets[i]
        stays = before.offsets[k + 1] - begin == count
        for d in range(count):
            stays = stays and at.device_node[before.devices[begin + d]] == nodes[at.offsets[i] + d]
        if stays:
            keep(i, before.devices[begin : begin + count], at)
    for i in range(len(plan.group)):
        if at.state[i] != UNPLACED:
            continue
        position = at.offsets[i]
        at.state[i] = PLACED
        while position < at.offsets[i + 1] and at.free[nodes[position]] > 0:
            position = take(i, position, nodes[position], 1, at)
        if position < at.offsets[i + 1]:
            _give_back(i, position, at)


@kernel("void(i8, i8, Occupancy)", allocates=False)
def _give_back(i: int, position: int, at: Occupancy) -> None:
    """Take from row i, which runs nowhere, the devices entered before ``position``."""
    at.state[i] = UNPLACED
    for k in range(at.offsets[i], position):
        at.owner[at.devices[k]] = FREE
        at.free[at.device_node[at.devices[k]]] += 1


def _slots(plan: PlannedGroups, topology: Topology, placed: Ints, at: Occupancy) -> Ints:
    """(placed,) slots with the locality that the devices have."""
    slot: Ints = plan.slot[placed].copy()
    for k, i in enumerate(placed.tolist()):
        other = int(topology.other_locality[slot[k]])
        if other < 0:
            continue
        accelerator = topology.accelerator_of_slot[slot[k]]
        fewest = topology.fewest_servers[accelerator, at.offsets[i + 1] - at.offsets[i]]
        if bool(servers_of(i, at) > fewest) != bool(topology.scattered[slot[k]]):
            slot[k] = other
    return slot
