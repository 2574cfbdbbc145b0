"""Move units off nodes that they shall avoid, after a rule of placement has given them devices.

A device id is a position; the devices of a node are neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Ints


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
class Site:
    """What there is to place on."""

    device_type: Ints  # (devices,)
    device_node: Ints  # (devices,)
    works: Bools  # (devices,)
    fewest: Ints  # as ``Cluster.fewest_servers``
    sibling: Ints  # (slots,) the slot of the other locality, -1 = locality does not matter


def move_away(placed: Placement, barred: Mapping[int, Bools], site: Site) -> Placement:
    """The placement with rows moved off the nodes that are barred to them, where other devices of the same
    type can take them: free ones, else by exchange with a row of the same size and slot, one that has just
    been placed rather than one that runs on. Where neither is possible a row stays.

    barred: row -> (nodes,). The slot of a row does not change.
    """
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
            kept[row] = False
            continue
        other = _partner(result, row, barred, site)
        if other is not None:
            theirs = result.of(other)
            mine[:], theirs[:] = theirs.copy(), mine.copy()
            kept[[row, other]] = False
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
    room = np.bincount(site.device_node[usable], minlength=len(barred))
    need = len(mine)
    if room.sum() < need:
        return None
    whole = np.flatnonzero(room >= need)
    if len(whole):
        nodes = whole[[np.argmin(room[whole])]]
    else:
        nodes = np.argsort(-room, kind="stable")
        nodes = nodes[: np.searchsorted(np.cumsum(room[nodes]), need) + 1]
    if site.sibling[placed.slot[row]] >= 0:
        fewest = site.fewest[accelerator, need]
        before = len(np.unique(site.device_node[mine]))
        if (len(nodes) > fewest) != (before > fewest):
            return None
    found: Ints = np.concatenate(
        [np.flatnonzero(usable & (site.device_node == node)) for node in nodes.tolist()]
    )
    return np.sort(found[:need])


def _partner(placed: Placement, row: int, barred: Mapping[int, Bools], site: Site) -> int | None:
    """The row to change places with; of those that are equal, the last of the plan."""
    mine = site.device_node[placed.of(row)]
    best: tuple[bool, int] | None = None
    for other in range(len(placed.slot)):
        theirs = site.device_node[placed.of(other)]
        if placed.slot[other] != placed.slot[row] or len(theirs) != len(mine):
            continue
        if barred[row][theirs].any() or (other in barred and barred[other][mine].any()):
            continue
        rank = (not bool(placed.kept[other]), other)
        best = rank if best is None or rank > best else best
    return None if best is None else best[1]
