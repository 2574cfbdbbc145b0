"""Move job groups off devices which programs that were told to leave still hold, after a rule of placement
has given them devices."""

import numpy as np

from fairlead.model.arrays import Bools
from fairlead.scheduler.placement.avoid_nodes import (
    AlternativeTypes,
    DeviceAssignment,
    find_other_type,
    free_devices,
)
from fairlead.scheduler.placement.records import Topology


def leave_occupied(
    assignment: DeviceAssignment,
    occupied: Bools,
    topology: Topology,
    alternatives: AlternativeTypes,
    *,
    bound: Bools,
    same_nodes: bool,
) -> DeviceAssignment:
    """The placement with rows moved off occupied devices, where free ones can take them: on the same node
    first, then of the same type, then those that they had before, at last of the type on which they are
    fastest. Nobody trains on occupied devices, so that no start is lost by a move.

    occupied: (devices,); bound: (rows,) those that run on these devices or not at all; same_nodes: whether
    the plan names the nodes of each row.
    """
    if not occupied[assignment.devices].any():
        return assignment
    result = assignment.copied()
    usable = topology.usable & ~occupied
    topology = topology._replace(usable=usable)
    free = usable.copy()
    free[result.devices] = False
    nobody = np.zeros(int(topology.device_node.max(initial=0)) + 1, np.bool_)
    for row in range(len(result.slot)):
        mine = result.of(row)
        if bound[row] or not occupied[mine].any():
            continue
        own = nobody.copy()
        own[topology.device_node[mine]] = True
        found = free_devices(result, row, free, ~own, topology)
        if found is None and not same_nodes:
            found = free_devices(result, row, free, nobody, topology)
        slot, before = int(result.slot[row]), alternatives.before.get(row)
        if found is None and not same_nodes:
            other = find_other_type(result, row, free, nobody, topology, alternatives)
            slot, found = (slot, None) if other is None else other
        if found is None:
            continue
        free[mine] = usable[mine]
        free[found] = False
        mine[:] = found
        result.slot[row] = slot
        result.kept[row] = before is not None and np.array_equal(before[1], found)
    return result
