"""Jobs that move from round to round in a circle, so that every round keeps its load.

A graph has the rounds as nodes, and a node for devices that are free. An arc leads from a round to
another where a job, or some jobs of equal size, could go; its length is what that costs. Around a cycle
of negative length everybody moves on by one arc, at a gain. No job is asked for two moves that exclude
each other: it would have to run in a round for the one, and to be idle in it for the other.
"""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel

_SURE = 1e-10  # a cycle is negative if it is so by more than this part of its arcs' lengths


@kernel("f8(i8[:,::1], i8, i8, i8, i8, i8, f8[::1], i8[::1], i8[::1])")
def _movers(
    grid: Ints,
    origin: int,
    to: int,
    kind: int,
    c: int,
    many: int,
    worth: Floats,
    class_of: Ints,
    out: Ints,
) -> float:
    """The best ``many`` jobs of one size to move between two rounds, and what their move costs; inf if
    there are not so many. Those worth most go to an earlier round, those worth least to a later one."""
    jobs = grid.shape[1]
    found, total = 0, 0.0
    for i in range(jobs):
        job = i if to < origin else jobs - 1 - i
        if class_of[job] == c and grid[origin, job] == kind and grid[to, job] == -1:
            out[found] = job
            found += 1
            total += worth[job]
            if found == many:
                return float(total * (to - origin))
    return np.inf


@kernel("void(i8[:,::1], i8, i8, i8, f8[::1], i8[::1], i8[::1], f8[:,::1], i8[:,::1], i8[::1])")
def _arc(
    grid: Ints,
    origin: int,
    to: int,
    kind: int,
    worth: Floats,
    class_of: Ints,
    sizes: Ints,
    length: Floats,
    by: Ints,
    scratch: Ints,
) -> None:
    """The shortest arc between two rounds for a load of the largest of the sizes."""
    load = sizes[-1]
    length[origin, to] = np.inf
    for c in range(len(sizes)):
        if load % sizes[c] == 0:
            cost = _movers(grid, origin, to, kind, c, load // sizes[c], worth, class_of, scratch)
            if cost < length[origin, to]:
                length[origin, to], by[origin, to] = cost, c


@kernel("i8(f8[:,::1], i8[::1])")
def negative_cycle(length: Floats, cycle: Ints) -> int:
    """The number of nodes of a cycle of negative length, in the order of its arcs; 0 if there is none.

    length: (nodes, nodes) inf where there is no arc; cycle: (nodes,) receives the nodes. Bellman and Ford's
    labels, from all nodes at once.
    """
    nodes = len(length)
    label, before = np.zeros(nodes), np.full(nodes, -1)
    last = -1
    for _ in range(nodes):
        last = -1
        for a in range(nodes):
            for b in range(nodes):
                reach = label[a] + length[a, b]
                if reach < label[b] - _SURE * (abs(label[b]) + abs(label[a])):
                    label[b], before[b], last = reach, a, b
        if last < 0:
            return 0
    for _ in range(nodes):  # labels still fall: behind this node is a cycle
        last = before[last]
    n, at = 0, last
    while n == 0 or at != last:
        cycle[n] = at
        n += 1
        at = before[at]
    for i in range(n // 2):
        cycle[i], cycle[n - 1 - i] = cycle[n - 1 - i], cycle[i]
    total, weight = 0.0, 0.0
    for i in range(n):
        arc = length[cycle[i], cycle[(i + 1) % n]]
        total, weight = total + arc, weight + abs(arc)
    return n if total < -_SURE * weight else 0


@kernel("b1(i8[:,::1], i8, i8, f8[::1], i8[::1], i8[::1], i8[::1], i8)")
def turn(
    grid: Ints,
    kind: int,
    devices: int,
    worth: Floats,
    size: Ints,
    class_of: Ints,
    sizes: Ints,
    most: int,
) -> bool:
    """Move loads of the largest of the sizes, on one type, around negative cycles until there is none, or
    ``most`` times; was there any?

    grid: (rounds, jobs) type or -1; jobs by falling worth within each size.
    """
    rounds, jobs = grid.shape
    load = sizes[-1]
    length = np.full((rounds + 1, rounds + 1), np.inf)
    by, scratch = np.zeros((rounds, rounds), np.int64), np.zeros(load, np.int64)
    stale = np.ones(rounds + 1, np.bool_)
    cycle = np.empty(rounds + 1, np.int64)
    movers, count = np.empty((rounds + 1, load), np.int64), np.empty(rounds + 1, np.int64)
    for turns in range(most):
        for a in range(rounds):
            if stale[a]:
                used = 0
                for job in range(jobs):
                    if grid[a, job] == kind:
                        used += size[job]
                length[a, rounds] = 0.0 if devices - used >= load else np.inf
                length[rounds, a] = 0.0
            for b in range(rounds):
                if a != b and (stale[a] or stale[b]):
                    _arc(grid, a, b, kind, worth, class_of, sizes, length, by, scratch)
        stale[:] = False
        n = negative_cycle(length, cycle)
        if n == 0:
            return turns > 0
        for i in range(n):
            a, b = cycle[i], cycle[(i + 1) % n]
            count[i] = 0
            stale[a] = True
            if a < rounds and b < rounds:
                count[i] = load // sizes[by[a, b]]
                _movers(grid, a, b, kind, by[a, b], count[i], worth, class_of, movers[i])
        for i in range(n):
            a, b = cycle[i], cycle[(i + 1) % n]
            for m in range(count[i]):
                grid[a, movers[i, m]] = -1
                grid[b, movers[i, m]] = kind
    return True
