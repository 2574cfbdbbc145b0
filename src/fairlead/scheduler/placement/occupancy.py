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
    owner = np.empty(count, np.int64)
    for d in range(count):
        node = device_node[d]
        node_first[node] = min(node_first[node], d)
        size[node] += usable[d]
        owner[d] = FREE if usable[d] else UNUSABLE
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
    n, types = len(plan.group), topology.device_type[-1] + 1
    rows = RowNeeds(
        node_begin=np.empty(n, np.int64),
        node_end=np.empty(n, np.int64),
        fewest_servers=np.empty(n, np.int64),
        scattered=np.empty(n, np.bool_),
        any_locality=np.empty(n, np.bool_),
        by_size=np.empty(n, np.int64),
    )
    nodes_of_type = np.empty((types, 2), np.int64)
    _enter_nodes_of_types(topology, nodes_of_type)
    _enter_needs(plan, topology, nodes_of_type, rows)
    _order_by_size(plan, rows.by_size, np.zeros(topology.fewest_servers.shape[1] + 1, np.int64))
    return rows


@kernel("void(Topology, i8[:,::1])", allocates=False)
def _enter_nodes_of_types(topology: Topology, nodes: Ints) -> None:
    """Fill nodes, (types, 2): the first node of a type, and the one after its last."""
    accelerator, node = topology.device_type, topology.device_node
    nodes[:, 0], nodes[:, 1] = node[-1] + 1, 0
    for d in range(len(node)):
        of = accelerator[d]
        nodes[of, 0], nodes[of, 1] = min(nodes[of, 0], node[d]), max(nodes[of, 1], node[d] + 1)


@kernel("void(PlannedGroups, Topology, i8[:,::1], RowNeeds)", allocates=False)
def _enter_needs(plan: PlannedGroups, topology: Topology, nodes: Ints, rows: RowNeeds) -> None:
    """Fill all but the order of rows. nodes: (types, 2) the first of a type, and the one after its last."""
    fewest, of_slot = topology.fewest_servers, topology.accelerator_of_slot
    for i in range(len(plan.group)):
        slot = plan.slot[i]
        rows.node_begin[i], rows.node_end[i] = nodes[of_slot[slot], 0], nodes[of_slot[slot], 1]
        rows.fewest_servers[i] = fewest[of_slot[slot], plan.scale[plan.group[i]]]
        rows.scattered[i] = topology.scattered[slot]
        rows.any_locality[i] = topology.other_locality[slot] < 0


@kernel("void(PlannedGroups, i8[::1], i8[::1])", allocates=False)
def _order_by_size(plan: PlannedGroups, by_size: Ints, start: Ints) -> None:
    """Fill by_size with the rows, those with the most devices first, else in order. start: zeros, one more
    than the most devices of a row and 0 make."""
    largest = len(start) - 2
    for u in plan.group:  # count rows one place further on than where they begin
        start[largest - plan.scale[u] + 1] += 1
    for place in range(1, len(start)):
        start[place] += start[place - 1]
    for i in range(len(by_size)):
        place = largest - plan.scale[plan.group[i]]
        by_size[start[place]] = i
        start[place] += 1


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


@kernel("void(i8, Occupancy)", allocates=False)
def release(i: int, at: Occupancy) -> None:
    """Take its devices from row i."""
    offsets, devices, owner, free, state, device_node, _, _ = at
    state[i] = UNPLACED
    for k in range(offsets[i], offsets[i + 1]):
        owner[devices[k]] = FREE
        free[device_node[devices[k]]] += 1


@kernel("i8(i8, i8, i8, i8, Occupancy)", allocates=False)
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


@kernel("b1(i8, i8[::1], Occupancy)", allocates=False)
def keep(i: int, old: Ints, at: Occupancy) -> bool:
    """Give row i these devices if they are free."""
    offsets, devices, owner, free, state, device_node, _, _ = at
    for d in old:
        if owner[d] != FREE:
            return False
    state[i] = KEPT
    for k in range(len(old)):
        d = old[k]
        devices[offsets[i] + k] = d
        owner[d] = i
        free[device_node[d]] -= 1
    return True


@kernel("i8(i8, Occupancy)", allocates=False)
def servers_of(i: int, at: Occupancy) -> int:
    """Return the number of nodes that row i is on; its devices on one node are contiguous."""
    devices, device_node = at.devices, at.device_node
    count = 1
    for k in range(at.offsets[i] + 1, at.offsets[i + 1]):
        if device_node[devices[k]] != device_node[devices[k - 1]]:
            count += 1
    return count


@kernel("i8(i8, RowNeeds, Occupancy)", allocates=False)
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
