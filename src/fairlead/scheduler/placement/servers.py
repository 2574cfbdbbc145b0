"""Place job groups on the fewest servers, and move running ones only where that pays.

A job group is consolidated on one server, or on as few as could hold it if all were empty; otherwise it is
scattered. A device id is a position; the devices of a node, and the nodes of a type, are neighbours.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1, Floats1, Ints1
from fairlead.scheduler.placement.records import (
    Placed,
    PlannedGroups,
    PreviousRound,
    Site,
    Stakes,
)

_FREE, _BROKEN = -1, -2  # owners
# States of a row: it has no devices, new ones, those of the round before, or must leave its devices.
_OUT, _NEW, _KEPT, _GOING = 0, 1, 2, 3
_TRIES = 4  # servers that are tried to make room for one job group, cheapest first


class _Occupancy(NamedTuple):
    """Who holds which devices. A row is a job group of the plan; row i holds
    devices[first[i]:first[i + 1]] unless its state is _OUT."""

    first: Ints1  # (rows + 1,)
    devices: Ints1  # (devices of all rows,)
    owner: Ints1  # (devices of the cluster,) the row that holds it, or _FREE or _BROKEN
    free: Ints1  # (nodes,) free devices
    state: Ints1  # (rows,)
    device_node: Ints1  # (devices of the cluster,)
    node_first: Ints1  # (nodes + 1,) the node's first device
    size: Ints1  # (nodes,) devices that work


class _Rows(NamedTuple):
    """What each row of the plan is to have."""

    low: Ints1  # (rows,) the first node of its accelerator type
    high: Ints1  # (rows,) the node after the last of its accelerator type
    fewest: Ints1  # (rows,) nodes that would hold it if they were empty
    scattered: Bools1  # (rows,) does the plan say so?
    anywhere: Bools1  # (rows,) does locality not matter on its accelerator type?
    by_size: Ints1  # (rows,) rows, those with the most devices first


class _Claim(NamedTuple):
    """A row that takes devices from others, and from whom it may."""

    row: int
    after: int  # only rows of the plan after this one lose theirs
    cost: Floats1  # (rows,) device-seconds that a move of a row loses, if it is on its old devices


@kernel(
    "b1[::1](i8[::1], i8[::1], Array(i8, 1, 'C', readonly=True), Array(i8, 1, 'C', readonly=True), i8[:,::1])"
)
def are_scattered(
    first: Ints, devices: Ints, device_type: Ints, device_node: Ints, fewest: Ints
) -> Bools:
    """(groups,) is a job group on more servers than it needs? Job group u holds
    devices[first[u]:first[u + 1]], those on one server next to each other; fewest: of
    ``Cluster.fewest_servers``."""
    n = len(first) - 1
    scattered = np.zeros(n, np.bool_)
    for u in range(n):
        begin, end = first[u], first[u + 1]
        servers = 1
        for k in range(begin + 1, end):
            servers += device_node[devices[k]] != device_node[devices[k - 1]]
        scattered[u] = servers > fewest[device_type[devices[begin]], end - begin]
    return scattered


@kernel("void(i8, _Occupancy)")
def _release(i: int, at: _Occupancy) -> None:
    """Take its devices from row i."""
    first, devices, owner, free, state, device_node, _, _ = at
    state[i] = _OUT
    for k in range(first[i], first[i + 1]):
        owner[devices[k]] = _FREE
        free[device_node[devices[k]]] += 1


@kernel("i8(i8, i8, i8, i8, _Occupancy)")
def _take(i: int, position: int, node: int, most: int, at: _Occupancy) -> int:
    """Give row i up to ``most`` free devices of a node, entered in ``at.devices`` from ``position`` on.
    Returns the position after the last one."""
    _, devices, owner, free, state, _, node_first, _ = at
    state[i] = _NEW
    d = node_first[node]
    while most > 0 and free[node] > 0:
        if owner[d] == _FREE:
            owner[d] = i
            free[node] -= 1
            most -= 1
            devices[position] = d
            position += 1
        d += 1
    return position


@kernel("b1(i8, i8[::1], _Occupancy)")
def _keep(i: int, old: Ints, at: _Occupancy) -> bool:
    """Give row i these devices if they are free."""
    first, devices, owner, free, state, device_node, _, _ = at
    for d in old:
        if owner[d] != _FREE:
            return False
    devices[first[i] : first[i + 1]] = old
    state[i] = _KEPT
    for d in old:
        owner[d] = i
        free[device_node[d]] -= 1
    return True


@kernel("i8(i8, _Occupancy)")
def _servers(i: int, at: _Occupancy) -> int:
    """On how many nodes row i is; its devices on one node are neighbours."""
    devices, device_node = at.devices, at.device_node
    count = 1
    for k in range(at.first[i] + 1, at.first[i + 1]):
        if device_node[devices[k]] != device_node[devices[k - 1]]:
            count += 1
    return count


@kernel("i8(i8, _Rows, _Occupancy)")
def _consolidate(i: int, rows: _Rows, at: _Occupancy) -> int:
    """Put row i on the fullest of its nodes that holds it whole, else on the emptiest, one after the other.
    Returns how many nodes that takes. There must be as many free devices as it needs."""
    free, low, high = at.free, rows.low[i], rows.high[i]
    position, stop, count = at.first[i], at.first[i + 1], 0
    while position < stop:
        need = stop - position
        best = -1
        for node in range(low, high):
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
        position = _take(i, position, best, need, at)
        count += 1
    return count


@kernel("void(i8, _Rows, _Occupancy)")
def _scatter(i: int, rows: _Rows, at: _Occupancy) -> None:
    """Put row i on the fullest of its nodes, so that whole ones stay free, and on two at least."""
    free, low, high = at.free, rows.low[i], rows.high[i]
    position, stop = at.first[i], at.first[i + 1]
    most = max(stop - position - 1, 1)
    last = -1
    while position < stop:
        best = -1
        for node in range(low, high):
            if free[node] > 0 and node != last and (best < 0 or free[node] < free[best]):
                best = node
        last = best if best >= 0 else last
        position = _take(i, position, last, min(stop - position, most), at)
    at.devices[at.first[i] : stop].sort()


@kernel("i8(i8, _Claim, _Occupancy)")
def _cheapest(node: int, claim: _Claim, at: _Occupancy) -> int:
    """The row on a node that costs least to move for a claim; of equals the one with the fewest devices
    there. -1 = none."""
    owner, state, cost, after = at.owner, at.state, claim.cost, claim.after
    begin, end = at.node_first[node], at.node_first[node + 1]
    best, best_cost, best_here = -1, np.inf, 0
    for d in range(begin, end):
        j = owner[d]
        if j <= after or j < 0 or j == claim.row or state[j] == _GOING:
            continue
        here = 0
        for e in range(begin, end):
            here += owner[e] == j
        price = cost[j] if state[j] == _KEPT else 0.0
        if price < best_cost or (price == best_cost and here < best_here):
            best, best_cost, best_here = j, price, here
    return best


@kernel("Tuple((f8, i8))(i8, i8, _Claim, i8[:,::1], _Occupancy)")
def _call_out(
    node: int, need: int, claim: _Claim, called: Ints, at: _Occupancy
) -> tuple[float, int]:
    """Mark rows as _GOING, cheapest first, until a node has so many devices for a claim. Returns what their
    moves cost, inf = it cannot be done, and how many they are; called: (2, rows) is filled with them and
    their states before."""
    state, owner, cost = at.state, at.owner, claim.cost
    begin, end = at.node_first[node], at.node_first[node + 1]
    free, total, count = at.free[node], 0.0, 0
    while free < need:
        j = _cheapest(node, claim, at)
        if j < 0:
            total = np.inf
            break
        total += cost[j] if state[j] == _KEPT else 0.0
        called[0, count], called[1, count] = j, state[j]
        count += 1
        state[j] = _GOING
        for d in range(begin, end):
            free += owner[d] == j
    return total, count


@kernel("f8(i8, i8, _Claim, _Occupancy)")
def _price(node: int, need: int, claim: _Claim, at: _Occupancy) -> float:
    """What it costs to free so many devices of a node for a claim, inf = cannot. Nothing changes."""
    called = np.empty((2, max(need, 0)), np.int64)
    total, count = _call_out(node, need, claim, called, at)
    for k in range(count):
        at.state[called[0, k]] = called[1, k]
    return total


@kernel("f8(i8, i8, _Claim, _Occupancy)")
def _evict(node: int, need: int, claim: _Claim, at: _Occupancy) -> float:
    """Free so many devices of a node for a claim; what that costs. The rows that leave are _GOING."""
    called = np.empty((2, max(need, 0)), np.int64)
    total, count = _call_out(node, need, claim, called, at)
    for k in range(count):
        _release(called[0, k], at)
        at.state[called[0, k]] = _GOING
    return total


@kernel("i8(_Claim, f8, b1[::1], _Rows, _Occupancy)")
def _clear(claim: _Claim, budget: float, barred: Bools, rows: _Rows, at: _Occupancy) -> int:
    """Put the claim's row on the fewest nodes, each time on the one that costs least to clear.

    barred: (nodes,) not to be the first one. Returns the first node; -1, with part of it done, where it is
    impossible or does not cost less than the budget.
    """
    i, free, size = claim.row, at.free, at.size
    position, one = at.first[i], -1
    for left in range(rows.fewest[i], 0, -1):
        need = at.first[i + 1] - position
        best, best_cost = -1, np.inf
        for node in range(rows.low[i], rows.high[i]):
            if (one < 0 and barred[node]) or size[node] * left < need:
                continue
            price = _price(node, min(size[node], need), claim, at)
            if price < best_cost or (price == best_cost and best >= 0 and free[node] > free[best]):
                best, best_cost = node, price
        if best < 0 or best_cost >= budget:
            return -1
        count = min(size[best], need)
        budget -= _evict(best, count, claim, at)
        position = _take(i, position, best, count, at)
        one = best if one < 0 else one
    return one


@kernel("b1(b1, _Rows, _Occupancy)")
def _rehouse(force: bool, rows: _Rows, at: _Occupancy) -> bool:
    """Give other devices to the rows that are _GOING, or with ``force`` none. False, with part of it done,
    where one that is to be consolidated cannot be."""
    for j in rows.by_size:
        if at.state[j] != _GOING:
            continue
        at.state[j] = _OUT
        if force:
            continue
        if rows.scattered[j]:
            _scatter(j, rows, at)
        elif _consolidate(j, rows, at) > rows.fewest[j]:
            return False
    return True


@kernel("_Occupancy(_Occupancy)")
def _copied(at: _Occupancy) -> _Occupancy:
    """The same, to try something on."""
    return _Occupancy(
        first=at.first,
        devices=at.devices.copy(),
        owner=at.owner.copy(),
        free=at.free.copy(),
        state=at.state.copy(),
        device_node=at.device_node,
        node_first=at.node_first,
        size=at.size,
    )


@kernel("b1(i8, f8, b1, _Rows, _Occupancy, f8[::1])")
def _clear_server(
    i: int, budget: float, force: bool, rows: _Rows, at: _Occupancy, cost: Floats1
) -> bool:
    """Consolidate row i, moving others for less than the budget if they can be consolidated elsewhere.
    With ``force``, later rows of the plan lose their devices, whatever that costs.

    If False, nothing has changed.
    """
    barred = np.zeros(len(at.free), np.bool_)
    claim = _Claim(i, i if force else -1, cost)
    for _ in range(1 if force else _TRIES):
        trial = _copied(at)
        node = _clear(claim, budget, barred, rows, trial)
        if node < 0:
            return False
        if _rehouse(force, rows, trial):
            at.devices[:], at.owner[:] = trial.devices, trial.owner
            at.free[:], at.state[:] = trial.free, trial.state
            return True
        barred[node] = True
    return False


@kernel("b1(i8, i8, f8, _Rows, _Occupancy)")
def _pack_into_free(i: int, most: int, budget: float, rows: _Rows, at: _Occupancy) -> bool:
    """Put row i, which has no devices, on free ones of at most so many nodes, where the budget is above 0.
    If False, it still has none."""
    if budget <= 0:
        return False
    if _consolidate(i, rows, at) <= most:
        return True
    _release(i, at)
    return False


@kernel("_Occupancy(PlannedGroups, Site)")
def _vacant(plan: PlannedGroups, site: Site) -> _Occupancy:
    """No row has devices."""
    group, scale, device_node, works = plan.group, plan.scale, site.device_node, site.works
    n, nodes, count = len(group), device_node[-1] + 1, len(device_node)
    first = np.zeros(n + 1, np.int64)
    for i in range(n):
        first[i + 1] = first[i] + scale[group[i]]
    node_first, size = np.full(nodes + 1, count, np.int64), np.zeros(nodes, np.int64)
    for d in range(count):
        node = device_node[d]
        node_first[node] = min(node_first[node], d)
        size[node] += works[d]
    owner = np.where(works, _FREE, _BROKEN)
    owned, state = np.zeros(first[n], np.int64), np.full(n, _OUT)
    return _Occupancy(
        first=first,
        devices=owned,
        owner=owner,
        free=size.copy(),
        state=state,
        device_node=device_node,
        node_first=node_first,
        size=size,
    )


@kernel("_Rows(PlannedGroups, Site)")
def _read_rows(plan: PlannedGroups, site: Site) -> _Rows:
    """What each row of the plan is to have."""
    group, slot, scale = plan
    accelerator, node, fewest = site.device_type, site.device_node, site.fewest
    n, nodes, types = len(group), node[-1] + 1, accelerator[-1] + 1
    begin, end = np.full(types, nodes, np.int64), np.zeros(types, np.int64)  # nodes of a type
    for d in range(len(node)):
        of = accelerator[d]
        begin[of], end[of] = min(begin[of], node[d]), max(end[of], node[d] + 1)
    of_slot = site.accelerator_of_slot[slot]
    full = np.empty(n, np.int64)
    for i in range(n):
        full[i] = fewest[of_slot[i], scale[group[i]]]
    return _Rows(
        low=begin[of_slot],
        high=end[of_slot],
        fewest=full,
        scattered=site.scattered[slot],
        anywhere=site.sibling[slot] < 0,
        by_size=np.argsort(-scale[group], kind="mergesort"),
    )


@kernel("void(PlannedGroups, PreviousRound, Site, _Occupancy)")
def _keep_old(plan: PlannedGroups, before: PreviousRound, site: Site, at: _Occupancy) -> None:
    """Rows that stay on their accelerator type keep the devices of the round before."""
    group, slot, accelerator = plan.group, plan.slot, site.accelerator_of_slot
    old_group, old_slot, first, devices = before
    was = np.full(len(plan.scale), -1, np.int64)
    for k in range(len(old_group)):
        if old_group[k] >= 0:
            was[old_group[k]] = k
    for i in range(len(group)):
        k = was[group[i]]
        if k >= 0 and accelerator[old_slot[k]] == accelerator[slot[i]]:
            _keep(i, devices[first[k] : first[k + 1]], at)


@kernel("void(_Rows, _Occupancy)")
def _place_new(rows: _Rows, at: _Occupancy) -> None:
    """Rows without devices, big ones first, go where they are consolidated or where that does not matter."""
    state, scattered, anywhere, fewest = at.state, rows.scattered, rows.anywhere, rows.fewest
    for i in rows.by_size:
        if state[i] == _OUT and not scattered[i]:
            most = len(at.free) if anywhere[i] else fewest[i]
            _pack_into_free(i, most, 1.0, rows, at)


@kernel("void(i8, _Rows, Stakes, _Occupancy)")
def _improve(i: int, rows: _Rows, stakes: Stakes, at: _Occupancy) -> None:
    """Consolidate a row that has no devices or is scattered, if that gains more than the moves cost or if it
    cannot run otherwise; where it is impossible nothing changes."""
    old = at.devices[at.first[i] : at.first[i + 1]].copy()
    had, budget = at.state[i], stakes.gain[i]
    if had != _OUT:
        budget -= stakes.cost[i] if had == _KEPT else 0.0
        _release(i, at)
    done = _pack_into_free(i, rows.fewest[i], budget, rows, at)
    if not done and budget > 0:
        done = _clear_server(i, budget, False, rows, at, stakes.cost)
    if not done and stakes.fallback[i] <= 0:
        done = _clear_server(i, np.inf, True, rows, at, stakes.cost)
    if not done and had != _OUT:
        _keep(i, old, at)
        at.state[i] = had


@kernel("void(_Rows, Stakes, _Occupancy)")
def _improve_all(rows: _Rows, stakes: Stakes, at: _Occupancy) -> None:
    """``_improve`` those that have something to gain, big ones first."""
    state, scattered, anywhere, fewest = at.state, rows.scattered, rows.anywhere, rows.fewest
    for i in rows.by_size:
        if scattered[i] or anywhere[i]:
            continue
        if state[i] == _OUT or _servers(i, at) > fewest[i]:
            _improve(i, rows, stakes, at)


@kernel("void(_Rows, Stakes, _Occupancy)")
def _place_rest(rows: _Rows, stakes: Stakes, at: _Occupancy) -> None:
    """Rows that are still without devices are consolidated if there is room by now, else scattered if they
    can run so."""
    state, scattered = at.state, rows.scattered
    for i in rows.by_size:
        if state[i] != _OUT:
            continue
        if not scattered[i] and _pack_into_free(i, rows.fewest[i], 1.0, rows, at):
            continue
        if scattered[i] or stakes.fallback[i] > 0:
            _scatter(i, rows, at)


@kernel("Placed(i8[::1], Site, _Rows, _Occupancy)")
def _result(slot: Ints, site: Site, rows: _Rows, at: _Occupancy) -> Placed:
    """The rows that have devices, in order, as ``fewest_servers`` returns them."""
    first, devices, sibling, fewest = at.first, at.devices, site.sibling, rows.fewest
    order = np.flatnonzero(at.state != _OUT)
    starts = np.zeros(len(order) + 1, np.int64)
    for k in range(len(order)):
        starts[k + 1] = starts[k] + first[order[k] + 1] - first[order[k]]
    owned = np.empty(starts[-1], np.int64)
    real = slot[order]
    for k in range(len(order)):
        i = order[k]
        owned[starts[k] : starts[k + 1]] = devices[first[i] : first[i + 1]]
        is_scattered = _servers(i, at) > fewest[i]
        if sibling[slot[i]] >= 0 and site.scattered[slot[i]] != is_scattered:
            real[k] = sibling[slot[i]]
    return Placed(order, starts, owned, at.state[order] == _KEPT, real)


@kernel("Placed(PlannedGroups, PreviousRound, Site, Stakes)")
def fewest_servers(
    plan: PlannedGroups, before: PreviousRound, site: Site, stakes: Stakes
) -> Placed:
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
    at = _vacant(plan, site)
    rows = _read_rows(plan, site)
    _keep_old(plan, before, site, at)
    _place_new(rows, at)
    _improve_all(rows, stakes, at)
    _place_rest(rows, stakes, at)
    return _result(plan.slot, site, rows, at)
