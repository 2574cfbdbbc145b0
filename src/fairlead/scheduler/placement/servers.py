"""Place job groups on the fewest servers, and move running ones only where that pays.

A job group is consolidated on one server, or on as few as could hold it if all were empty; otherwise it is
scattered. A device id is a position; the devices of a node, and the nodes of a type, are neighbours.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1
from fairlead.scheduler.placement.occupancy import (
    EVICTED,
    KEPT,
    UNPLACED,
    Occupancy,
    RowNeeds,
    consolidate,
    copied,
    empty_occupancy,
    keep,
    needs_of,
    release,
    scatter,
    servers_of,
    take,
)
from fairlead.scheduler.placement.records import (
    MoveTradeoffs,
    Placement,
    PlannedGroups,
    PreviousRound,
    Topology,
)

_MAX_SERVER_TRIES = 4  # servers that are tried to make room for one job group, cheapest first


class _Claim(NamedTuple):
    """A row that takes devices from others, and from whom it may."""

    row: int
    after: int  # only rows of the plan after this one lose theirs
    move_cost: (
        Floats1  # (rows,) device-seconds that a move of a row loses, if it is on its old devices
    )


@kernel(
    "b1[::1](i8[::1], i8[::1], Array(i8, 1, 'C', readonly=True), Array(i8, 1, 'C', readonly=True), i8[:,::1])"
)
def are_scattered(
    offsets: Ints, devices: Ints, device_type: Ints, device_node: Ints, fewest: Ints
) -> Bools:
    """(groups,) whether each job group is on more servers than it needs. Job group u holds
    devices[offsets[u]:offsets[u + 1]], those on one server next to each other; fewest: of
    ``Cluster.fewest_servers``."""
    n = len(offsets) - 1
    scattered = np.zeros(n, np.bool_)
    for u in range(n):
        begin, end = offsets[u], offsets[u + 1]
        servers = 1
        for k in range(begin + 1, end):
            servers += device_node[devices[k]] != device_node[devices[k - 1]]
        scattered[u] = servers > fewest[device_type[devices[begin]], end - begin]
    return scattered


@kernel("i8(i8, _Claim, Occupancy)", allocates=False)
def _cheapest_victim(node: int, claim: _Claim, at: Occupancy) -> int:
    """The row on a node that costs least to move for a claim; of equals the one with the fewest devices
    there. -1 = none."""
    owner, state, cost, after = at.owner, at.state, claim.move_cost, claim.after
    begin, end = at.node_first[node], at.node_first[node + 1]
    best, best_cost, best_here = -1, np.inf, 0
    for d in range(begin, end):
        j = owner[d]
        if j <= after or j < 0 or j == claim.row or state[j] == EVICTED:
            continue
        here = 0
        for e in range(begin, end):
            here += owner[e] == j
        price = cost[j] if state[j] == KEPT else 0.0
        if price < best_cost or (price == best_cost and here < best_here):
            best, best_cost, best_here = j, price, here
    return best


@kernel("Tuple((f8, i8))(i8, i8, _Claim, i8[:,::1], Occupancy)", allocates=False)
def _mark_evicted(
    node: int, need: int, claim: _Claim, evicted: Ints, at: Occupancy
) -> tuple[float, int]:
    """Mark rows as EVICTED, cheapest first, until a node has so many devices for a claim. Returns what their
    moves cost, inf = it cannot be done, and how many they are; evicted: (2, rows) is filled with them and
    their states before."""
    state, owner, cost = at.state, at.owner, claim.move_cost
    begin, end = at.node_first[node], at.node_first[node + 1]
    free, total, count = at.free[node], 0.0, 0
    while free < need:
        j = _cheapest_victim(node, claim, at)
        if j < 0:
            total = np.inf
            break
        total += cost[j] if state[j] == KEPT else 0.0
        evicted[0, count], evicted[1, count] = j, state[j]
        count += 1
        state[j] = EVICTED
        for d in range(begin, end):
            free += owner[d] == j
    return total, count


@kernel("f8(i8, i8, _Claim, Occupancy)")
def _eviction_cost(node: int, need: int, claim: _Claim, at: Occupancy) -> float:
    """Return the cost of freeing so many devices of a node for a claim, inf = cannot. Nothing changes."""
    evicted = np.empty((2, max(need, 0)), np.int64)
    total, count = _mark_evicted(node, need, claim, evicted, at)
    for k in range(count):
        at.state[evicted[0, k]] = evicted[1, k]
    return total


@kernel("f8(i8, i8, _Claim, Occupancy)")
def _evict(node: int, need: int, claim: _Claim, at: Occupancy) -> float:
    """Free so many devices of a node for a claim; what that costs. The rows that leave are EVICTED."""
    evicted = np.empty((2, max(need, 0)), np.int64)
    total, count = _mark_evicted(node, need, claim, evicted, at)
    for k in range(count):
        release(evicted[0, k], at)
        at.state[evicted[0, k]] = EVICTED
    return total


@kernel("i8(_Claim, f8, b1[::1], RowNeeds, Occupancy)", allocates=False)
def _make_room(claim: _Claim, budget: float, excluded: Bools, rows: RowNeeds, at: Occupancy) -> int:
    """Put the claim's row on the fewest nodes, each time on the one that costs least to clear.

    excluded: (nodes,) not to be the first one. Returns the first node; -1, with part of it done, where it is
    impossible or does not cost less than the budget.
    """
    i, free, size = claim.row, at.free, at.size
    position, one = at.offsets[i], -1
    for left in range(rows.fewest_servers[i], 0, -1):
        need = at.offsets[i + 1] - position
        best, best_cost = -1, np.inf
        for node in range(rows.node_begin[i], rows.node_end[i]):
            if (one < 0 and excluded[node]) or size[node] * left < need:
                continue
            price = _eviction_cost(node, min(size[node], need), claim, at)
            if price < best_cost or (price == best_cost and best >= 0 and free[node] > free[best]):
                best, best_cost = node, price
        if best < 0 or best_cost >= budget:
            return -1
        count = min(size[best], need)
        budget -= _evict(best, count, claim, at)
        position = take(i, position, best, count, at)
        one = best if one < 0 else one
    return one


@kernel("b1(b1, RowNeeds, Occupancy)", allocates=False)
def _place_evicted(force: bool, rows: RowNeeds, at: Occupancy) -> bool:
    """Give other devices to the rows that are EVICTED, or with ``force`` none. False, with part of it done,
    where one that is to be consolidated cannot be."""
    for j in rows.by_size:
        if at.state[j] != EVICTED:
            continue
        at.state[j] = UNPLACED
        if force:
            continue
        if rows.scattered[j]:
            scatter(j, rows, at)
        elif consolidate(j, rows, at) > rows.fewest_servers[j]:
            return False
    return True


@kernel("b1(i8, f8, b1, RowNeeds, Occupancy, f8[::1])")
def _consolidate_by_evicting(
    i: int, budget: float, force: bool, rows: RowNeeds, at: Occupancy, cost: Floats1
) -> bool:
    """Consolidate row i, moving others for less than the budget if they can be consolidated elsewhere.
    With ``force``, later rows of the plan lose their devices, whatever that costs.

    If False, nothing has changed.
    """
    excluded = np.zeros(len(at.free), np.bool_)
    claim = _Claim(i, i if force else -1, cost)
    for _ in range(1 if force else _MAX_SERVER_TRIES):
        trial = copied(at)
        node = _make_room(claim, budget, excluded, rows, trial)
        if node < 0:
            return False
        if _place_evicted(force, rows, trial):
            at.devices[:], at.owner[:] = trial.devices, trial.owner
            at.free[:], at.state[:] = trial.free, trial.state
            return True
        excluded[node] = True
    return False


@kernel("b1(i8, i8, f8, RowNeeds, Occupancy)", allocates=False)
def _pack_into_free(i: int, most: int, budget: float, rows: RowNeeds, at: Occupancy) -> bool:
    """Put row i, which has no devices, on free ones of at most so many nodes, where the budget is above 0.
    If False, it still has none."""
    if budget <= 0:
        return False
    if consolidate(i, rows, at) <= most:
        return True
    release(i, at)
    return False


@kernel("void(PlannedGroups, PreviousRound, Topology, Occupancy)")
def _keep_previous(
    plan: PlannedGroups, before: PreviousRound, topology: Topology, at: Occupancy
) -> None:
    """Rows that stay on their accelerator type keep the devices of the round before."""
    _keep_where_before(plan, before, topology, np.full(len(plan.scale), -1, np.int64), at)


@kernel("void(PlannedGroups, PreviousRound, Topology, i8[::1], Occupancy)", allocates=False)
def _keep_where_before(
    plan: PlannedGroups, before: PreviousRound, topology: Topology, was: Ints, at: Occupancy
) -> None:
    """``_keep_previous``. was: (groups,) of -1, to be filled with where each stands in the round before."""
    group, slot, accelerator = plan.group, plan.slot, topology.accelerator_of_slot
    old_group, old_slot, offsets, devices = before
    for k in range(len(old_group)):
        if old_group[k] >= 0:
            was[old_group[k]] = k
    for i in range(len(group)):
        k = was[group[i]]
        if k >= 0 and accelerator[old_slot[k]] == accelerator[slot[i]]:
            keep(i, devices[offsets[k] : offsets[k + 1]], at)


@kernel("void(RowNeeds, Occupancy)", allocates=False)
def _place_new(rows: RowNeeds, at: Occupancy) -> None:
    """Rows without devices, big ones first, go where they are consolidated or where that does not matter."""
    state, scattered, any_locality, fewest = (
        at.state,
        rows.scattered,
        rows.any_locality,
        rows.fewest_servers,
    )
    for i in rows.by_size:
        if state[i] == UNPLACED and not scattered[i]:
            most = len(at.free) if any_locality[i] else fewest[i]
            _pack_into_free(i, most, 1.0, rows, at)


@kernel("void(i8, RowNeeds, MoveTradeoffs, Occupancy)")
def _improve(i: int, rows: RowNeeds, tradeoffs: MoveTradeoffs, at: Occupancy) -> None:
    """Consolidate a row that has no devices or is scattered, if that gains more than the moves cost or if it
    cannot run otherwise; where it is impossible nothing changes."""
    old = at.devices[at.offsets[i] : at.offsets[i + 1]].copy()
    state_before, budget = at.state[i], tradeoffs.consolidation_gain[i]
    if state_before != UNPLACED:
        budget -= tradeoffs.move_cost[i] if state_before == KEPT else 0.0
        release(i, at)
    done = _pack_into_free(i, rows.fewest_servers[i], budget, rows, at)
    if not done and budget > 0:
        done = _consolidate_by_evicting(i, budget, False, rows, at, tradeoffs.move_cost)
    if not done and tradeoffs.fallback_rate[i] <= 0:
        done = _consolidate_by_evicting(i, np.inf, True, rows, at, tradeoffs.move_cost)
    if not done and state_before != UNPLACED:
        keep(i, old, at)
        at.state[i] = state_before


@kernel("void(RowNeeds, MoveTradeoffs, Occupancy)", allocates=False)
def _improve_all(rows: RowNeeds, tradeoffs: MoveTradeoffs, at: Occupancy) -> None:
    """``_improve`` those that have something to gain, big ones first."""
    state, scattered, any_locality, fewest = (
        at.state,
        rows.scattered,
        rows.any_locality,
        rows.fewest_servers,
    )
    for i in rows.by_size:
        if scattered[i] or any_locality[i]:
            continue
        if state[i] == UNPLACED or servers_of(i, at) > fewest[i]:
            _improve(i, rows, tradeoffs, at)


@kernel("void(RowNeeds, MoveTradeoffs, Occupancy)", allocates=False)
def _place_rest(rows: RowNeeds, tradeoffs: MoveTradeoffs, at: Occupancy) -> None:
    """Rows that are still without devices are consolidated if there is room by now, else scattered if they
    can run so."""
    state, scattered = at.state, rows.scattered
    for i in rows.by_size:
        if state[i] != UNPLACED:
            continue
        if not scattered[i] and _pack_into_free(i, rows.fewest_servers[i], 1.0, rows, at):
            continue
        if scattered[i] or tradeoffs.fallback_rate[i] > 0:
            scatter(i, rows, at)


@kernel("Placement(i8[::1], Topology, RowNeeds, Occupancy)")
def _result(slot: Ints, topology: Topology, rows: RowNeeds, at: Occupancy) -> Placement:
    """The rows that have devices, in order, as ``place_on_fewest_servers`` returns them."""
    placed = devices = 0
    for i in range(len(slot)):
        if at.state[i] != UNPLACED:
            placed += 1
            devices += at.offsets[i + 1] - at.offsets[i]
    result = Placement(
        order=np.empty(placed, np.int64),
        offsets=np.zeros(placed + 1, np.int64),
        devices=np.empty(devices, np.int64),
        kept=np.empty(placed, np.bool_),
        slot=np.empty(placed, np.int64),
    )
    _enter_result(slot, topology, rows, at, result)
    return result


@kernel("void(i8[::1], Topology, RowNeeds, Occupancy, Placement)", allocates=False)
def _enter_result(
    slot: Ints, topology: Topology, rows: RowNeeds, at: Occupancy, result: Placement
) -> None:
    """Fill the rows that have devices, in order."""
    offsets, other_locality = at.offsets, topology.other_locality
    k = 0
    for i in range(len(slot)):
        if at.state[i] == UNPLACED:
            continue
        position = result.offsets[k]
        for d in range(offsets[i], offsets[i + 1]):
            result.devices[position] = at.devices[d]
            position += 1
        result.order[k], result.offsets[k + 1] = i, position
        result.kept[k], result.slot[k] = at.state[i] == KEPT, slot[i]
        is_scattered = servers_of(i, at) > rows.fewest_servers[i]
        if other_locality[slot[i]] >= 0 and topology.scattered[slot[i]] != is_scattered:
            result.slot[k] = other_locality[slot[i]]
        k += 1


@kernel("Placement(PlannedGroups, PreviousRound, Topology, MoveTradeoffs)")
def place_on_fewest_servers(
    plan: PlannedGroups, before: PreviousRound, topology: Topology, tradeoffs: MoveTradeoffs
) -> Placement:
    """Give devices to the job groups of a plan.

    1. Whoever ran on a type and stays there keeps its devices.
    2. The others, big ones first, go to the fullest server that holds them whole, else to the emptiest
       servers one after the other.
    3. Who should be consolidated and is not takes room from job groups that can be consolidated elsewhere,
       if that gains more than their moves, and its own, cost. A job group that cannot run scattered takes
       it also from those that come later in the plan; it might wait for ever otherwise.
    4. The rest, scattered, fills servers in part used, and so do job groups whose plan says scattered. Who
       cannot run scattered is left out.
    On a type without a scattered slot there is nothing to lose, and the first two steps place everybody.

    """
    at = empty_occupancy(plan, topology)
    rows = needs_of(plan, topology)
    _keep_previous(plan, before, topology, at)
    _place_new(rows, at)
    _improve_all(rows, tradeoffs, at)
    _place_rest(rows, tradeoffs, at)
    return _result(plan.slot, topology, rows, at)
