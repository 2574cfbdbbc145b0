"""Place job groups on the fewest servers, and move running ones only where that pays.

A job group is consolidated on one server, or on as few as could hold it if all were empty; otherwise it is
spread. A device id is a position; the devices of a node, and the nodes of a type, are neighbours.
"""

from typing import TypeAlias

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel

# What the steps below work on, row i being a job group of the plan: first (rows + 1,) and devices: row i
# holds
# devices[first[i]:first[i + 1]]; owner (devices of the cluster,): the row that holds it, or one of the
# two below; room (nodes,): free devices; state (rows,); device_node; node_first (nodes + 1,): its first
# device; size (nodes,): devices that work.
Occupancy: TypeAlias = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
_BOOKS = "UniTuple(i8[::1], 8)"

_FREE, _BROKEN = -1, -2  # owners
_OUT, _NEW, _KEPT, _GOING = (
    0,
    1,
    2,
    3,
)  # states: has no devices, new ones, its old ones, must leave them
_TRIES = 4  # servers that are tried to make room for one job group, cheapest first


@kernel("b1[::1](i8[::1], i8[::1], i8[::1], i8[::1], i8[:,::1])")
def are_scattered(
    first: Ints, devices: Ints, device_type: Ints, device_node: Ints, fewest: Ints
) -> Bools:
    """(groups,) is a job group on more servers than it needs? Job group u holds
    devices[first[u]:first[u + 1]], those on one server side by side; fewest: of
    ``Cluster.fewest_servers``."""
    n = len(first) - 1
    spread = np.zeros(n, np.bool_)
    for u in range(n):
        begin, end = first[u], first[u + 1]
        servers = 1
        for k in range(begin + 1, end):
            servers += device_node[devices[k]] != device_node[devices[k - 1]]
        spread[u] = servers > fewest[device_type[devices[begin]], end - begin]
    return spread


@kernel(f"void(i8, {_BOOKS})")
def _release(i: int, books: Occupancy) -> None:
    """Take its devices from row i."""
    first, devices, owner, room, state, device_node, _, _ = books
    state[i] = _OUT
    for k in range(first[i], first[i + 1]):
        owner[devices[k]] = _FREE
        room[device_node[devices[k]]] += 1


@kernel(f"i8(i8, i8, i8, i8, {_BOOKS})")
def _take(i: int, position: int, node: int, most: int, books: Occupancy) -> int:
    """Give row i up to ``most`` free devices of a node; the position behind the last one."""
    _, devices, owner, room, state, _, node_first, _ = books
    state[i] = _NEW
    d = node_first[node]
    while most > 0 and room[node] > 0:
        if owner[d] == _FREE:
            owner[d] = i
            room[node] -= 1
            most -= 1
            devices[position] = d
            position += 1
        d += 1
    return position


@kernel(f"b1(i8, i8[::1], {_BOOKS})")
def _keep(i: int, old: Ints, books: Occupancy) -> bool:
    """Give row i these devices if they are free."""
    first, devices, owner, room, state, device_node, _, _ = books
    for d in old:
        if owner[d] != _FREE:
            return False
    devices[first[i] : first[i + 1]] = old
    state[i] = _KEPT
    for d in old:
        owner[d] = i
        room[device_node[d]] -= 1
    return True


@kernel(f"i8(i8, {_BOOKS})")
def _servers(i: int, books: Occupancy) -> int:
    """On how many nodes row i is; its devices on one node are neighbours."""
    first, devices, _, _, _, device_node, _, _ = books
    count = 1
    for k in range(first[i] + 1, first[i + 1]):
        if device_node[devices[k]] != device_node[devices[k - 1]]:
            count += 1
    return count


@kernel(f"i8(i8, i8, i8, {_BOOKS})")
def _consolidate(i: int, low: int, high: int, books: Occupancy) -> int:
    """Put row i on the fullest of the nodes low .. high-1 that holds it whole, else on the emptiest, one
    after the other. Returns how many nodes that takes; the room must be there."""
    first, room = books[0], books[3]
    position, stop, count = first[i], first[i + 1], 0
    while position < stop:
        need = stop - position
        best = -1
        for node in range(low, high):
            if room[node] > 0:
                if best < 0:
                    best = node
                elif room[node] >= need:
                    if room[best] < need or room[node] < room[best]:
                        best = node
                elif room[best] < need and room[node] > room[best]:
                    best = node
                if room[best] == need:
                    break
        position = _take(i, position, best, need, books)
        count += 1
    return count


@kernel(f"void(i8, i8, i8, {_BOOKS})")
def _scatter(i: int, low: int, high: int, books: Occupancy) -> None:
    """Put row i on the fullest of the nodes, so that whole ones stay free, and on two at least."""
    first, devices, room = books[0], books[1], books[3]
    position, stop = first[i], first[i + 1]
    most = max(stop - position - 1, 1)
    last = -1
    while position < stop:
        best = -1
        for node in range(low, high):
            if room[node] > 0 and node != last and (best < 0 or room[node] < room[best]):
                best = node
        last = best if best >= 0 else last
        position = _take(i, position, last, min(stop - position, most), books)
    devices[first[i] : stop].sort()


@kernel(f"i8(i8, i8, i8, {_BOOKS}, f8[::1])")
def _cheapest(i: int, node: int, after: int, books: Occupancy, cost: Floats) -> int:
    """The row on a node, not i and behind row ``after``, that costs least to move; of equals the one
    with the fewest devices there. -1 = none."""
    owner, state, node_first = books[2], books[4], books[6]
    best, best_cost, best_here = -1, np.inf, 0
    for d in range(node_first[node], node_first[node + 1]):
        j = owner[d]
        if j <= after or j < 0 or j == i or state[j] == _GOING:
            continue
        here = 0
        for e in range(node_first[node], node_first[node + 1]):
            here += owner[e] == j
        price = cost[j] if state[j] == _KEPT else 0.0
        if price < best_cost or (price == best_cost and here < best_here):
            best, best_cost, best_here = j, price, here
    return best


@kernel(f"f8(i8, i8, i8, i8, b1, {_BOOKS}, f8[::1])")
def _evict(
    i: int, node: int, need: int, after: int, really: bool, books: Occupancy, cost: Floats
) -> float:
    """What it costs to free so many devices of a node for row i, inf = cannot; if ``really``, it is
    done."""
    _, _, owner, room, state, _, node_first, _ = books
    free, total, count = room[node], 0.0, 0
    found, had = np.empty(max(need, 0), np.int64), np.empty(max(need, 0), np.int64)
    while free < need:
        j = _cheapest(i, node, after, books, cost)
        if j < 0:
            total = np.inf
            break
        total += cost[j] if state[j] == _KEPT else 0.0
        found[count], had[count] = j, state[j]
        count += 1
        state[j] = _GOING
        for d in range(node_first[node], node_first[node + 1]):
            free += owner[d] == j
    for k in range(count):
        if really:
            _release(found[k], books)
            state[found[k]] = _GOING
        else:
            state[found[k]] = had[k]
    return total


@kernel(f"i8(i8, i8, i8, i8, i8, f8, b1[::1], {_BOOKS}, f8[::1])")
def _clear(
    i: int,
    low: int,
    high: int,
    full: int,
    after: int,
    budget: float,
    barred: Bools,
    books: Occupancy,
    cost: Floats,
) -> int:
    """Put row i on ``full`` nodes, each time on the one that costs least to clear.

    after: only rows behind this one may have to go; barred: (nodes,) not to be the first one. Returns the
    first node; -1, with part of it done, where it is impossible or does not cost less than the budget.
    """
    first, room, size = books[0], books[3], books[7]
    position, one = first[i], -1
    for left in range(full, 0, -1):
        need = first[i + 1] - position
        best, best_cost = -1, np.inf
        for node in range(low, high):
            if (one < 0 and barred[node]) or size[node] * left < need:
                continue
            price = _evict(i, node, min(size[node], need), after, False, books, cost)
            if price < best_cost or (price == best_cost and best >= 0 and room[node] > room[best]):
                best, best_cost = node, price
        if best < 0 or best_cost >= budget:
            return -1
        take = min(size[best], need)
        budget -= _evict(i, best, take, after, True, books, cost)
        position = _take(i, position, best, take, books)
        one = best if one < 0 else one
    return one


@kernel(f"b1(i8, f8, b1, i8[::1], i8[::1], i8[::1], i8[::1], b1[::1], {_BOOKS}, f8[::1])")
def _make_room(
    i: int,
    budget: float,
    force: bool,
    by_size: Ints,
    low: Ints,
    high: Ints,
    full: Ints,
    apart: Bools,
    books: Occupancy,
    cost: Floats,
) -> bool:
    """Consolidate row i, moving others for less than the budget if they can be consolidated elsewhere.
    With ``force``, later rows of the plan lose their devices, whatever that costs.

    low, high, full, apart: (rows,) nodes of its type, how many of them would hold it, does it run spread.
    If False, nothing has changed.
    """
    first, devices, owner, room, state, device_node, node_first, size = books
    barred = np.zeros(len(room), np.bool_)
    for _ in range(1 if force else _TRIES):
        d, o, r, s = devices.copy(), owner.copy(), room.copy(), state.copy()
        trial = (first, d, o, r, s, device_node, node_first, size)
        after = i if force else -1
        node = _clear(i, low[i], high[i], full[i], after, budget, barred, trial, cost)
        if node < 0:
            return False
        good = True
        for j in by_size:
            if s[j] != _GOING:
                continue
            s[j] = _OUT
            if force:
                continue
            if apart[j]:
                _scatter(j, low[j], high[j], trial)
            elif _consolidate(j, low[j], high[j], trial) > full[j]:
                good = False
                break
        if good:
            devices[:], owner[:], room[:], state[:] = d, o, r, s
            return True
        barred[node] = True
    return False


@kernel(f"b1(i8, i8, i8, i8, f8, {_BOOKS})")
def _pack_into_free(
    i: int, low: int, high: int, full: int, budget: float, books: Occupancy
) -> bool:
    """Consolidate row i, which has no devices, in the room that there is. If False, it still has none."""
    if budget <= 0:
        return False
    if _consolidate(i, low, high, books) <= full:
        return True
    _release(i, books)
    return False


@kernel(
    f"Tuple((i8[::1], i8[::1], i8[::1], b1[::1], i8[::1]))(i8[::1], i8[::1], b1[::1], i8[::1], {_BOOKS})"
)
def _result(
    slot: Ints, sibling: Ints, spread: Bools, full: Ints, books: Occupancy
) -> tuple[Ints, Ints, Ints, Bools, Ints]:
    """The rows that have devices, in order, as ``fewest_servers`` returns them."""
    first, devices, _, _, state, _, _, _ = books
    order = np.flatnonzero(state != _OUT)
    starts = np.zeros(len(order) + 1, np.int64)
    for k in range(len(order)):
        starts[k + 1] = starts[k] + first[order[k] + 1] - first[order[k]]
    held = np.empty(starts[-1], np.int64)
    real = slot[order]
    for k in range(len(order)):
        i = order[k]
        held[starts[k] : starts[k + 1]] = devices[first[i] : first[i + 1]]
        if sibling[slot[i]] >= 0 and spread[slot[i]] != (_servers(i, books) > full[i]):
            real[k] = sibling[slot[i]]
    return order, starts, held, state[order] == _KEPT, real


@kernel(
    "Tuple((i8[::1], i8[::1], i8[::1], b1[::1], i8[::1]))"
    "(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], b1[::1], i8,"
    " i8[::1], i8[::1], b1[::1], i8[:,::1], f8[::1], f8[::1], f8[::1])"
)
def fewest_servers(
    group: Ints,
    slot: Ints,
    scale: Ints,
    old_group: Ints,
    old_slot: Ints,
    old_first: Ints,
    old_devices: Ints,
    device_type: Ints,
    device_node: Ints,
    works: Bools,
    groups: int,
    accelerator_of_slot: Ints,
    sibling: Ints,
    spread: Bools,
    fewest: Ints,
    fallback: Floats,
    gain: Floats,
    cost: Floats,
) -> tuple[Ints, Ints, Ints, Bools, Ints]:
    """Give devices to the job groups of a plan.

    1. Whoever ran on a type and stays there keeps its devices.
    2. The others, big ones first, go to the fullest server that holds them whole, else to the emptiest
       servers one after the other.
    3. Who should be consolidated and is not takes room from job groups that can be consolidated elsewhere,
       if that gains more than their moves, and its own, cost. A job group that cannot run spread takes it
       also from those that come later in the plan; it might wait for ever otherwise.
    4. The rest, spread, fills servers in part used, and so do job groups whose plan says spread. Who cannot
       run spread is left out.
    On a type without a spread slot there is nothing to lose, and the first two steps place everybody.

    job group, slot: (running,) the plan in order of choice; scale: (groups,); old_*: the round before,
    old_unit holding rows of today's job groups, -1 where the job group has left; works: (devices,); draws_on,
    sibling, spread: (slots,) accelerator type, the slot of the other locality (-1 = none), is it the
    spread one; fewest: as ``Cluster.fewest_servers``. For each row of the plan: fallback, rate on the
    sibling over rate on the slot; gain, device-seconds won by being consolidated; cost, device-seconds
    that a move loses.
    Returns (order, first, devices, kept, slot): the rows that run, and for each its devices, whether
    they are those of the round before, and the slot that they make.
    """
    n, nodes, types = len(group), device_node[-1] + 1, device_type[-1] + 1
    first = np.zeros(n + 1, np.int64)
    for i in range(n):
        first[i + 1] = first[i] + scale[group[i]]
    node_first = np.full(nodes + 1, len(device_node), np.int64)
    size = np.zeros(nodes, np.int64)
    begin, end = np.full(types, nodes, np.int64), np.zeros(types, np.int64)  # nodes of a type
    for d in range(len(device_node)):
        node, accelerator_index = device_node[d], device_type[d]
        node_first[node] = min(node_first[node], d)
        begin[accelerator_index], end[accelerator_index] = (
            min(begin[accelerator_index], node),
            max(end[accelerator_index], node + 1),
        )
        size[node] += works[d]
    owner = np.where(works, _FREE, _BROKEN)
    devices, state = np.zeros(first[n], np.int64), np.full(n, _OUT)
    books = (first, devices, owner, size.copy(), state, device_node, node_first, size)

    low, high, full = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    apart, fixed = np.empty(n, np.bool_), np.empty(n, np.bool_)
    was = np.full(groups, -1, np.int64)
    for i in range(len(old_group)):
        if old_group[i] >= 0:
            was[old_group[i]] = i
    for i in range(n):
        accelerator_index, w = accelerator_of_slot[slot[i]], was[group[i]]
        low[i], high[i] = begin[accelerator_index], end[accelerator_index]
        apart[i], fixed[i] = spread[slot[i]], sibling[slot[i]] < 0
        full[i] = fewest[accelerator_index, scale[group[i]]]
        if w >= 0 and accelerator_of_slot[old_slot[w]] == accelerator_index:
            _keep(i, old_devices[old_first[w] : old_first[w + 1]], books)

    by_size = np.argsort(-scale[group], kind="mergesort")
    for i in by_size:
        if state[i] == _OUT and not apart[i]:
            everywhere = nodes if fixed[i] else full[i]
            _pack_into_free(i, low[i], high[i], everywhere, 1.0, books)

    for i in by_size:
        if apart[i] or fixed[i] or (state[i] != _OUT and _servers(i, books) <= full[i]):
            continue
        old = devices[first[i] : first[i + 1]].copy()
        had, budget = state[i], gain[i]
        if had != _OUT:
            budget -= cost[i] if had == _KEPT else 0.0
            _release(i, books)
        done = _pack_into_free(i, low[i], high[i], full[i], budget, books)
        if not done and budget > 0:
            done = _make_room(i, budget, False, by_size, low, high, full, apart, books, cost)
        if not done and fallback[i] <= 0:
            done = _make_room(i, np.inf, True, by_size, low, high, full, apart, books, cost)
        if not done and had != _OUT:
            _keep(i, old, books)
            state[i] = had

    for i in by_size:
        if state[i] != _OUT:
            continue
        if not apart[i] and _pack_into_free(i, low[i], high[i], full[i], 1.0, books):
            continue
        if apart[i] or fallback[i] > 0:
            _scatter(i, low[i], high[i], books)
    return _result(slot, sibling, spread, full, books)
