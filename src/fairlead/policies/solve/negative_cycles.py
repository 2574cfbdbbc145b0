"""Jobs that move from round to round in a circle, so that every round keeps its load.

A graph has the rounds as nodes, and a node for devices that are free. An arc leads from a round to
another where a job, or some jobs of equal size, could go; its length is what that costs. Around a cycle
of negative length everybody moves on by one arc, at a gain. No job is asked for two moves that exclude
each other: it would have to run in a round for the one, and to be idle in it for the other.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Floats2, Ints1, Ints2

# A cycle is negative if its length is below 0 by more than this part of its arcs' lengths
_CYCLE_TOLERANCE = 1e-10


class RoundJobs(NamedTuple):
    """The jobs that run in each round, and each job's gain from running a round earlier."""

    grid: Ints2  # (rounds, jobs) accelerator type, -1 = does not run; kernels change it
    worth: Floats1  # (jobs,) falling within each size
    size: Ints1  # (jobs,) devices
    class_of: Ints1  # (jobs,) position of the size in ``sizes``
    sizes: Ints1  # (sizes,) distinct, ascending


class _Arcs(NamedTuple):
    """The graph of rounds, with a last node for free devices."""

    length: Floats2  # (rounds + 1, rounds + 1) cost of a move; inf = there is none
    by: Ints2  # (rounds, rounds) position of the size of the jobs that move
    moving_jobs: Ints1  # room for the jobs of one move


@kernel("f8(RoundJobs, UniTuple(i8, 2), i8, i8, i8, i8[::1])", allocates=False)
def _moving_jobs(
    jobs: RoundJobs, arc: tuple[int, int], accelerator: int, c: int, members: int, out: Ints
) -> float:
    """The best ``members`` jobs of one size to move along an arc, from one round to another, and what their
    move costs; inf if there are not so many. Those worth most go to an earlier round, those worth least to
    a later one."""
    source, to = arc
    n_jobs = jobs.grid.shape[1]
    found, total = 0, 0.0
    for i in range(n_jobs):
        job = i if to < source else n_jobs - 1 - i
        runs = jobs.class_of[job] == c and jobs.grid[source, job] == accelerator
        if runs and jobs.grid[to, job] == -1:
            out[found] = job
            found += 1
            total += jobs.worth[job]
            if found == members:
                return float(total * (to - source))
    return np.inf


@kernel("void(RoundJobs, _Arcs, i8, i8, i8)", allocates=False)
def _arc(jobs: RoundJobs, arcs: _Arcs, source: int, to: int, accelerator: int) -> None:
    """The shortest arc between two rounds for a load of the largest of the sizes, into ``arcs``."""
    sizes = jobs.sizes
    load = sizes[-1]
    arcs.length[source, to] = np.inf
    for c in range(len(sizes)):
        if load % sizes[c] == 0:
            cost = _moving_jobs(
                jobs, (source, to), accelerator, c, load // sizes[c], arcs.moving_jobs
            )
            if cost < arcs.length[source, to]:
                arcs.length[source, to], arcs.by[source, to] = cost, c


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
                length_here = label[a] + length[a, b]
                if length_here < label[b] - _CYCLE_TOLERANCE * (abs(label[b]) + abs(label[a])):
                    label[b], before[b], last = length_here, a, b
        if last < 0:
            return 0
    for _ in range(nodes):  # labels still fall: the nodes before this one form a cycle
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
    return n if total < -_CYCLE_TOLERANCE * weight else 0


@kernel("b1(RoundJobs, i8, i8, i8)")
def cancel_cycles(jobs: RoundJobs, accelerator: int, devices: int, limit: int) -> bool:
    """Move loads of the largest of the sizes, on one type of so many devices, around negative cycles until
    there is none, or ``limit`` times. Returns whether there was any."""
    grid, sizes = jobs.grid, jobs.sizes
    rounds, n_jobs = grid.shape
    load = sizes[-1]
    length = np.full((rounds + 1, rounds + 1), np.inf)
    by = np.zeros((rounds, rounds), np.int64)
    arcs = _Arcs(length, by, np.zeros(load, np.int64))
    stale = np.ones(rounds + 1, np.bool_)
    cycle = np.empty(rounds + 1, np.int64)
    moving_jobs, count = np.empty((rounds + 1, load), np.int64), np.empty(rounds + 1, np.int64)
    for turns in range(limit):
        for a in range(rounds):
            if stale[a]:
                used = 0
                for job in range(n_jobs):
                    if grid[a, job] == accelerator:
                        used += jobs.size[job]
                length[a, rounds] = 0.0 if devices - used >= load else np.inf
                length[rounds, a] = 0.0
            for b in range(rounds):
                if a != b and (stale[a] or stale[b]):
                    _arc(jobs, arcs, a, b, accelerator)
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
                _moving_jobs(jobs, (a, b), accelerator, by[a, b], count[i], moving_jobs[i])
        for i in range(n):
            a, b = cycle[i], cycle[(i + 1) % n]
            for m in range(count[i]):
                grid[a, moving_jobs[i, m]] = -1
                grid[b, moving_jobs[i, m]] = accelerator
    return True
