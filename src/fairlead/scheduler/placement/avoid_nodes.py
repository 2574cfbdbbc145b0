"""Move job groups off nodes that they shall avoid, after a rule of placement has given them devices.

A device id is a position; the devices of a node are neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.scheduler.placement.records import Site


@dataclass(frozen=True, slots=True)
class Placement:
    """Rows of a plan and their devices: row i holds devices[first[i]:first[i + 1]]."""

    first: Ints  # (rows + 1,)
    devices: Ints  # (all devices of all rows,)
    kept: Bools  # (rows,) are they those of the round before?
    slot: Ints  # (rows,) slot types

    def of(self, row: int) -> Ints:
        """Devices of a row, a view."""
        return self.devices[self.first[row] : self.first[row + 1]]


@dataclass(frozen=True, slots=True)
class OtherTypes:
    """What rows may change to another accelerator type by."""

    speed: Floats  # (rows, slots) 0 = the row cannot run there
    before: Mapping[int, tuple[int, Ints]]  # row -> slot and devices of the round before


def change_types(
    placed: Placement, barred: Mapping[int, Bools], site: Site, others: OtherTypes
) -> Placement:
    """The placement with rows moved off the nodes that are barred to them onto free devices of another type,
    where there are none of their own: those they had before, else those where they are fastest."""
    slot = placed.slot.copy()
    result = Placement(placed.first, placed.devices.copy(), placed.kept.copy(), slot)
    free = site.works.copy()
    free[result.devices] = False
    for row in sorted(barred):
        mine = result.of(row)
        if not barred[row][site.device_node[mine]].any():
            continue
        if _free_devices(result, row, free, barred[row], site) is not None:
            continue  # ``move_away`` finds them
        found = _elsewhere(result, row, free, barred[row], site, others)
        if found is None:
            continue
        slot[row], devices = found
        before = others.before.get(row)
        result.kept[row] = before is not None and np.array_equal(before[1], devices)
        free[mine] = site.works[mine]
        free[devices] = False
        mine[:] = devices
    return result


def _elsewhere(
    placed: Placement, row: int, free: Bools, barred: Bools, site: Site, others: OtherTypes
) -> tuple[int, Ints] | None:
    """Slot and free devices of another type for a row; None = there are none."""
    own_accelerator, speed = site.accelerator_of_slot[placed.slot[row]], others.speed[row]
    before = others.before.get(row)
    if before is not None and speed[before[0]] > 0:
        good = free[before[1]] & ~barred[site.device_node[before[1]]]
        if good.all():
            return before
    need = len(placed.of(row))
    for slot in np.argsort(-speed, kind="stable").tolist():
        accelerator = int(site.accelerator_of_slot[slot])
        if speed[slot] <= 0 or accelerator == own_accelerator:
            continue
        usable = free & (site.device_type == accelerator) & ~barred[site.device_node]
        nodes = _fullest(usable, need, site, len(barred))
        if nodes is None:
            continue
        is_scattered = len(nodes) > site.fewest[accelerator, need]
        if site.sibling[slot] < 0 or is_scattered == bool(site.scattered[slot]):
            return slot, _some_of(usable, need, nodes, site)
    return None


def move_away(
    placed: Placement, barred: Mapping[int, Bools], site: Site, *, runs_on: Bools | None = None
) -> Placement:
    """The placement with rows moved off the nodes that are barred to them, where other devices of the same
    type can take them: free ones, else by exchange with a row of the same size and slot that has to start as
    well. Who runs on keeps its devices: a wish of one is worth no other's start. Where neither is possible
    a row stays.

    barred: row -> (nodes,). runs_on: (rows,) who need not start; by default those that are kept, but a job
    that was paused and is back on its devices has to. The slot of a row does not change.
    """
    runs_on = placed.kept.copy() if runs_on is None else runs_on.copy()
    devices, kept = placed.devices.copy(), placed.kept.copy()
    result = Placement(placed.first, devices, kept, placed.slot)
    free = site.works.copy()
    free[devices] = False
    for row in sorted(barred):
        mine = result.of(row)
        if not barred[row][site.device_node[mine]].any():
            continue
        found = _free_devices(result, row, free, barred[row], site)
        if found is not None:
            free[mine] = site.works[mine]
            free[found] = False
            mine[:] = found
            kept[row] = runs_on[row] = False
            continue
        other = _partner(result, row, barred, site, runs_on)
        if other is not None:
            theirs = result.of(other)
            mine[:], theirs[:] = theirs.copy(), mine.copy()
            kept[[row, other]] = runs_on[[row, other]] = False
    return result


def _free_devices(
    placed: Placement, row: int, free: Bools, barred: Bools, site: Site
) -> Ints | None:
    """As many devices as a row has, on nodes that are not barred: of the fullest node that holds it whole,
    else of the emptiest ones. None where there are not enough, or the locality would be another."""
    mine = placed.of(row)
    accelerator = site.device_type[mine[0]]
    usable = free.copy()
    usable[mine] = site.works[mine]
    usable &= (site.device_type == accelerator) & ~barred[site.device_node]
    need = len(mine)
    nodes = _fullest(usable, need, site, len(barred))
    if nodes is None:
        return None
    if site.sibling[placed.slot[row]] >= 0:
        fewest = site.fewest[accelerator, need]
        before = len(np.unique(site.device_node[mine]))
        if (len(nodes) > fewest) != (before > fewest):
            return None
    return _some_of(usable, need, nodes, site)


def _fullest(usable: Bools, need: int, site: Site, count: int) -> Ints | None:
    """The fullest node with so many usable devices, else the emptiest ones together; None where there are
    not enough. count: of all nodes."""
    free = np.bincount(site.device_node[usable], minlength=count)
    if free.sum() < need:
        return None
    whole = np.flatnonzero(free >= need)
    if len(whole):
        return np.asarray(whole[[np.argmin(free[whole])]])
    nodes = np.argsort(-free, kind="stable")
    return np.asarray(nodes[: np.searchsorted(np.cumsum(free[nodes]), need) + 1])


def _some_of(usable: Bools, need: int, nodes: Ints, site: Site) -> Ints:
    """So many usable devices of these nodes, in the order of the nodes; sorted."""
    found: Ints = np.concatenate(
        [np.flatnonzero(usable & (site.device_node == node)) for node in nodes.tolist()]
    )
    return np.sort(found[:need])


def _partner(
    placed: Placement, row: int, barred: Mapping[int, Bools], site: Site, runs_on: Bools
) -> int | None:
    """The row to change places with, which does not run yet: the last one of the plan."""
    mine = site.device_node[placed.of(row)]
    for other in reversed(range(len(placed.slot))):
        theirs = site.device_node[placed.of(other)]
        if placed.slot[other] != placed.slot[row] or len(theirs) != len(mine):
            continue
        if barred[row][theirs].any() or (other in barred and barred[other][mine].any()):
            continue
        if not runs_on[other]:
            return other
    return None
