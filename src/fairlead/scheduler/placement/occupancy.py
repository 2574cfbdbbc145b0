"""Holders of devices while job groups are placed, and the steps that change them.

A device id is a position; the devices of a node, and the nodes of a type, are contiguous.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Ints1
from fairlead.scheduler.placement.records import PlannedGroups, Topology

FREE, UNUSABLE = -1, -2  # owners
# States of a row: no devices, new ones, those of the round before, or about to lose its devices.
UNPLACED, PLACED, KEPT, EVICTED = 0, 1, 2, 3


class Occupancy(NamedTuple):
    """Holders of devices. A row is a job group of the plan; row i holds devices[offsets[i]:offsets[i + 1]]
    unless its state is UNPLACED."""

    offsets: Ints1  # (rows + 1,)
    devices: Ints1  # (devices of all rows,)
    owner: Ints1  # (devices of the cluster,) the row that holds it, or FREE or UNUSABLE
    free: Ints1  # (nodes,) free devices
    state: Ints1  # (rows,)
    device_node: Ints1  # (devices of the cluster,)
    node_first: Ints1  # (nodes + 1,) the node's first device
    size: Ints1  # (nodes,) devices that work


class RowNeeds(NamedTuple):
    """Needs of each row of the plan."""

    node_begin: Ints1  # (rows,) the first node of its accelerator type
    node_end: Ints1  # (rows,) the node after the last of its accelerator type
    fewest_servers: Ints1  # (rows,) nodes that would hold it if they were empty
    scattered: Bools1  # (rows,) does the plan say so?
    any_locality: Bools1  # (rows,) does locality not matter on its accelerator type?
    by_size: Ints1  # (rows,) rows, those with the most devices first


@kernel("Occupancy(PlannedGroups, Topology)")
def empty_occupancy(plan: PlannedGroups, topology: Topology) -> Occupancy:
    """Return an occupancy in which no row has devices."""
    group, scale, device_node, usable = (
        plan.group,
        plan.scale,
        topology.device_node,
        topology.usable,
    )
    n, nodes, count = len(group), device_node[-1] + 1, len(device_node)
    offsets = np.zeros(n + 1, np.int64)
    for i in range(n):
        offsets[i + 1] = offsets[i] + scale[group[i]]
    node_first, size = np.full(nodes + 1, count, np.int64), np.zeros(nodes, np.int64)
    for d in range(count):
        node = device_node[d]
        node_first[node] = min(node_first[node], d)
        size[node] += usable[d]
    owner = np.where(usable, FREE, UNUSABLE)
    owned, state = np.zeros(offsets[n], np.int64), np.full(n, UNPLACED)
    return Occupancy(
        offsets=offsets,
        devices=owned,
        owner=owner,
        free=size.copy(),
        state=state,
        device_node=device_node,
        node_first=node_first,
        size=size,
    )


@kernel("RowNeeds(PlannedGroups, Topology)")
def needs_of(plan: PlannedGroups, topology: Topology) -> RowNeeds:
    """Return the needs of each row of the plan."""
    group, slot, scale = plan
    accelerator, node, fewest = topology.device_type, topology.device_node, topology.fewest_servers
    n, nodes, types = len(group), node[-1] + 1, accelerator[-1] + 1
    begin, end = np.full(types, nodes, np.int64), np.zeros(types, np.int64)  # nodes of a type
    for d in range(len(node)):
        of = accelerator[d]
        begin[of], end[of] = min(begin[of], node[d]), max(end[of], node[d] + 1)
    of_slot = topology.accelerator_of_slot[slot]
    full = np.empty(n, np.int64)
    for i in range(n):
        full[i] = fewest[of_slot[i], scale[group[i]]]
    return RowNeeds(
        node_begin=begin[of_slot],
        node_end=end[of_slot],
        fewest_servers=full,
        scattered=topology.scattered[slot],
        any_locality=topology.other_locality[slot] < 0,
        by_size=np.argsort(-scale[group], kind="mergesort"),
    )


@kernel("Occupancy(Occupancy)")
def copied(at: Occupancy) -> Occupancy:
    """Return a copy, to try a step on."""
    return Occupancy(
        offsets=at.offsets,
        devices=at.devices.copy(),
        owner=at.owner.copy(),
        free=at.free.copy(),
        state=at.state.copy(),
        device_node=at.device_node,
        node_first=at.node_first,
        size=at.size,
    )


@kernel("void(i8, Occupancy)")
def release(i: int, at: Occupancy) -> None:
    """Take its devices from row i."""
    offsets, devices, owner, free, state, device_node, _, _ = at
    state[i] = UNPLACED
    for k in range(offsets[i], offsets[i + 1]):
        owner[devices[k]] = FREE
        free[device_node[devices[k]]] += 1


@kernel("i8(i8, i8, i8, i8, Occupancy)")
def take(i: int, position: int, node: int, most: int, at: Occupancy) -> int:
    """Give row i up to ``most`` free devices of a node, entered in ``at.devices`` from ``position`` on.
    Returns the position after the last one."""
    _, devices, owner, free, state, _, node_first, _ = at
    state[i] = PLACED
    d = node_first[node]
    while most > 0 and free[node] > 0:
        if owner[d] == FREE:
            owner[d] = i
            free[node] -= 1
            most -= 1
            devices[position] = d
            position += 1
        d += 1
    return position


@kernel("b1(i8, i8[::1], Occupancy)")
def keep(i: int, old: Ints, at: Occupancy) -> bool:
    """Give row i these devices if they are free."""
    offsets, devices, owner, free, state, device_node, _, _ = at
    for d in old:
        if owner[d] != FREE:
            return False
    devices[offsets[i] : offsets[i + 1]] = old
    state[i] = KEPT
    for d in old:
        owner[d] = i
        free[device_node[d]] -= 1
    return True


@kernel("i8(i8, Occupancy)")
def servers_of(i: int, at: Occupancy) -> int:
    """Return the number of nodes that row i is on; its devices on one node are contiguous."""
    devices, device_node = at.devices, at.device_node
    count = 1
    for k in range(at.offsets[i] + 1, at.offsets[i + 1]):
        if device_node[devices[k]] != device_node[devices[k - 1]]:
            count += 1
    return count


@kernel("i8(i8, RowNeeds, Occupancy)")
def consolidate(i: int, rows: RowNeeds, at: Occupancy) -> int:
    """Put row i on the fullest of its nodes that holds it whole, else on the emptiest, one after the other.
    Returns how many nodes that takes. There must be as many free devices as it needs."""
    free, node_begin, node_end = at.free, rows.node_begin[i], rows.node_end[i]
    position, stop, count = at.offsets[i], at.offsets[i + 1], 0
    while position < stop:
        need = stop - position
        best = -1
        for node in range(node_begin, node_end):
            if free[node] > 0:
                if best < 0:
                    best = node
                elif free[node] >= need:
                    if free[best] < need or free[node] < free[best]:
                        best = node
                elif free[best] < need and free[node] > free[best]:
                    best = node
                if free[best] == need:
                    break
        position = take(i, position, best, need, at)
        count += 1
    return count


@kernel("void(i8, RowNeeds, Occupancy)")
def scatter(i: int, rows: RowNeeds, at: Occupancy) -> None:
    """Put row i on the fullest of its nodes, so that whole ones stay free, and on two at least."""
    free, node_begin, node_end = at.free, rows.node_begin[i], rows.node_end[i]
    position, stop = at.offsets[i], at.offsets[i + 1]
    most = max(stop - position - 1, 1)
    last = -1
    while position < stop:
        best = -1
        for node in range(node_begin, node_end):
            if free[node] > 0 and node != last and (best < 0 or free[node] < free[best]):
                best = node
        last = best if best >= 0 else last
        position = take(i, position, last, min(stop - position, most), at)
    at.devices[at.offsets[i] : stop].sort()
