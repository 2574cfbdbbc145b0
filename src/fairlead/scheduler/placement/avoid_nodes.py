"""Move job groups off nodes that they shall avoid, after a rule of placement has given them devices.

A device id is a position; the devices of a node are neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.scheduler.placement.records import Topology


@dataclass(frozen=True, slots=True)
class DeviceAssignment:
    """Rows of a plan and their devices: row i holds devices[offsets[i]:offsets[i + 1]]."""

    offsets: Ints  # (rows + 1,)
    devices: Ints  # (all devices of all rows,)
    kept: Bools  # (rows,) are they those of the round before?
    slot: Ints  # (rows,) slot types

    def of(self, row: int) -> Ints:
        """Devices of a row, a view."""
        return self.devices[self.offsets[row] : self.offsets[row + 1]]

    def only(self, rows: Bools) -> "DeviceAssignment":
        """Return the assignment of these rows alone. rows: (rows,)."""
        sizes = np.diff(self.offsets)
        offsets = np.concatenate([[0], np.cumsum(sizes[rows])]).astype(np.int64)
        devices = self.devices[np.repeat(rows, sizes)]
        return DeviceAssignment(offsets, devices, self.kept[rows], self.slot[rows])

    def copied(self) -> "DeviceAssignment":
        """Return a copy whose devices, slots and ``kept`` can be changed."""
        return DeviceAssignment(
            self.offsets, self.devices.copy(), self.kept.copy(), self.slot.copy()
        )


@dataclass(frozen=True, slots=True)
class AlternativeTypes:
    """Alternatives of rows on other accelerator types, and their devices before."""

    speed: Floats  # (rows, slots) steps/s, 0 = the row cannot run there
    before: Mapping[int, tuple[int, Ints]]  # row -> slot and devices of the round before


def change_types(
    assignment: DeviceAssignment,
    avoided: Mapping[int, Bools],
    topology: Topology,
    alternatives: AlternativeTypes,
) -> DeviceAssignment:
    """The placement with rows moved off the nodes that they avoid onto free devices of another type,
    where there are none of their own: those they had before, else those where they are fastest."""
    slot = assignment.slot.copy()
    result = DeviceAssignment(
        assignment.offsets, assignment.devices.copy(), assignment.kept.copy(), slot
    )
    free = topology.usable.copy()
    free[result.devices] = False
    for row in sorted(avoided):
        mine = result.of(row)
        if not avoided[row][topology.device_node[mine]].any():
            continue
        if free_devices(result, row, free, avoided[row], topology) is not None:
            continue  # ``move_away`` finds them
        found = find_other_type(result, row, free, avoided[row], topology, alternatives)
        if found is None:
            continue
        slot[row], devices = found
        before = alternatives.before.get(row)
        result.kept[row] = before is not None and np.array_equal(before[1], devices)
        free[mine] = topology.usable[mine]
        free[devices] = False
        mine[:] = devices
    return result


def find_other_type(
    assignment: DeviceAssignment,
    row: int,
    free: Bools,
    avoided: Bools,
    topology: Topology,
    alternatives: AlternativeTypes,
) -> tuple[int, Ints] | None:
    """Slot and free devices of another type for a row; None = there are none."""
    own_accelerator, speed = (
        topology.accelerator_of_slot[assignment.slot[row]],
        alternatives.speed[row],
    )
    before = alternatives.before.get(row)
    if before is not None and speed[before[0]] > 0:
        good = free[before[1]] & ~avoided[topology.device_node[before[1]]]
        if good.all():
            return before
    need = len(assignment.of(row))
    for slot in np.argsort(-speed, kind="stable").tolist():
        accelerator = int(topology.accelerator_of_slot[slot])
        if speed[slot] <= 0 or accelerator == own_accelerator:
            continue
        usable = free & (topology.device_type == accelerator) & ~avoided[topology.device_node]
        nodes = _nodes_with(usable, need, topology, len(avoided))
        if nodes is None:
            continue
        is_scattered = len(nodes) > topology.fewest_servers[accelerator, need]
        if topology.other_locality[slot] < 0 or is_scattered == bool(topology.scattered[slot]):
            return slot, _first_devices(usable, need, nodes, topology)
    return None


def move_away(
    assignment: DeviceAssignment,
    avoided: Mapping[int, Bools],
    topology: Topology,
    *,
    keeps_running: Bools | None = None,
) -> DeviceAssignment:
    """The placement with rows moved off the nodes that they avoid, where other devices of the same
    type can take them: free ones, else by exchange with a row of the same size and slot that has to start as
    well. Who runs on keeps its devices: a wish of one is worth no other's start. Where neither is possible
    a row stays.

    avoided: row -> (nodes,) whether it avoids the node. keeps_running: (rows,) who need not start; by
    default those that are kept, but a job that was paused and is back on its devices has to. The slot of a
    row does not change.
    """
    keeps_running = assignment.kept.copy() if keeps_running is None else keeps_running.copy()
    devices, kept = assignment.devices.copy(), assignment.kept.copy()
    result = DeviceAssignment(assignment.offsets, devices, kept, assignment.slot)
    free = topology.usable.copy()
    free[devices] = False
    for row in sorted(avoided):
        mine = result.of(row)
        if not avoided[row][topology.device_node[mine]].any():
            continue
        found = free_devices(result, row, free, avoided[row], topology)
        if found is not None:
            free[mine] = topology.usable[mine]
            free[found] = False
            mine[:] = found
            kept[row] = keeps_running[row] = False
            continue
        other = _partner(result, row, avoided, topology, keeps_running)
        if other is not None:
            theirs = result.of(other)
            mine[:], theirs[:] = theirs.copy(), mine.copy()
            kept[[row, other]] = keeps_running[[row, other]] = False
    return result


def free_devices(
    assignment: DeviceAssignment, row: int, free: Bools, avoided: Bools, topology: Topology
) -> Ints | None:
    """Return as many devices as a row has, on nodes that it does not avoid: on the fullest node that holds it
    whole, else on the emptiest ones. None if there are not enough, or the locality would change."""
    mine = assignment.of(row)
    accelerator = topology.device_type[mine[0]]
    usable = free.copy()
    usable[mine] = topology.usable[mine]
    usable &= (topology.device_type == accelerator) & ~avoided[topology.device_node]
    need = len(mine)
    nodes = _nodes_with(usable, need, topology, len(avoided))
    if nodes is None:
        return None
    if topology.other_locality[assignment.slot[row]] >= 0:
        fewest = topology.fewest_servers[accelerator, need]
        before = len(np.unique(topology.device_node[mine]))
        if (len(nodes) > fewest) != (before > fewest):
            return None
    return _first_devices(usable, need, nodes, topology)


def _nodes_with(usable: Bools, need: int, topology: Topology, count: int) -> Ints | None:
    """(nodes,) the fullest node with so many usable devices, else the emptiest ones together; None where
    there are not enough. count: of all nodes."""
    free = np.bincount(topology.device_node[usable], minlength=count)
    if free.sum() < need:
        return None
    whole = np.flatnonzero(free >= need)
    if len(whole):
        return np.asarray(whole[[np.argmin(free[whole])]])
    nodes = np.argsort(-free, kind="stable")
    return np.asarray(nodes[: np.searchsorted(np.cumsum(free[nodes]), need) + 1])


def _first_devices(usable: Bools, need: int, nodes: Ints, topology: Topology) -> Ints:
    """The first so many usable devices of these nodes, in the order of the nodes; sorted."""
    found: Ints = np.concatenate(
        [np.flatnonzero(usable & (topology.device_node == node)) for node in nodes.tolist()]
    )
    return np.sort(found[:need])


def _partner(
    assignment: DeviceAssignment,
    row: int,
    avoided: Mapping[int, Bools],
    topology: Topology,
    keeps_running: Bools,
) -> int | None:
    """The row to change places with, which does not run yet: the last one of the plan."""
    mine = topology.device_node[assignment.of(row)]
    for other in reversed(range(len(assignment.slot))):
        theirs = topology.device_node[assignment.of(other)]
        if assignment.slot[other] != assignment.slot[row] or len(theirs) != len(mine):
            continue
        if avoided[row][theirs].any() or (other in avoided and avoided[other][mine].any()):
            continue
        if not keeps_running[other]:
            return other
    return None
