"""Shares of jobs and of pairs of jobs, from those of classes.

A class's time alone is divided evenly. The time y that classes c and d spend in pairs is laid out twice
on one line, once divided among the jobs of c and once among those of d; jobs whose pieces overlap are a
pair for as long as they overlap. That gives every job of a class the same, with at most n_c + n_d - 1
pairs. The jobs of a class with itself go two by two, the first three in a ring if their number is odd.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats2, Ints1
from fairlead.model.snapshot import Snapshot
from fairlead.policies.solve.program import ProgramSolution
from fairlead.policies.solve.share_problem import ShareProblem


def pair_shares(
    problem: ShareProblem, solution: ProgramSolution, snapshot: Snapshot
) -> tuple[Ints, Floats]:
    """(pairs, 2) positions of jobs, ascending, and (pairs, slots) their shares.

    Jobs that run in a pair now come first in their classes, next to each other, so that pairs which go
    on are mostly the same; apart from that in order of submission.
    """
    return _laid_out(problem, solution, snapshot, np.arange(len(snapshot.jobs)), 0)


def group_shares(
    problem: ShareProblem, solution: ProgramSolution, snapshot: Snapshot
) -> tuple[Ints, Floats]:
    """(groups, 2) ids of jobs, -1 = none, and (groups, slots) their shares: all jobs alone, then the pairs
    as ``pair_shares`` has them."""
    n = len(snapshot.jobs)
    groups, share = _laid_out(problem, solution, snapshot, snapshot.jobs, n)
    groups[:n, 0], groups[:n, 1] = snapshot.jobs, -1
    np.take(solution.per_job(problem), problem.classes.of, axis=0, out=share[:n], mode="clip")
    return groups, share


def _laid_out(
    problem: ShareProblem, solution: ProgramSolution, snapshot: Snapshot, name: Ints, front: int
) -> tuple[Ints, Floats]:
    """The pairs, by the names (jobs,) of their jobs, and their shares, behind ``front`` empty rows."""
    configurations = solution.configurations
    used = np.flatnonzero((configurations.second >= 0) & (solution.time > 0))
    slots = problem.rate.shape[1]
    classes = len(problem.scale)
    code, which = np.unique(
        configurations.first[used] * classes + configurations.second[used], return_inverse=True
    )
    time = np.zeros((len(code), slots))
    time[which, configurations.slot[used]] = solution.time[used]
    first, second = code // max(classes, 1), code % max(classes, 1)
    members, begin = _members(problem, snapshot)
    n, m = (problem.classes.count[row].astype(np.int64) for row in (first, second))
    twins = n // 2 + np.where(n % 2 == 1, 2, 0)
    rows = front + int(np.where(first == second, twins, n + m - np.gcd(n, m)).sum())
    pair, share = np.empty((rows, 2), np.int64), np.empty((rows, slots))
    pairs = _ClassPairs(
        first=first, second=second, time=time, members=members, begin=begin, name=name
    )
    _pairs(pairs, pair[front:], share[front:])
    return pair, share


def _members(problem: ShareProblem, snapshot: Snapshot) -> tuple[Ints, Ints]:
    """(jobs,) positions class by class, and (classes + 1,) where each class begins. Jobs that run in a pair
    now come first in their class."""
    of = problem.classes.of
    begin = np.concatenate([[0], np.cumsum(problem.classes.count.astype(np.int64))])
    if not (
        snapshot.space_sharing
        and (snapshot.running_on[snapshot.group_members[:, 1] >= 0] >= 0).any()
    ):
        members = np.empty(len(of), np.int64)
        _by_class(of, begin, members)
        return members, begin
    together = snapshot.group_members[
        (snapshot.group_members[:, 1] >= 0) & (snapshot.running_on >= 0)
    ]
    rank = np.arange(len(of)) + len(of)
    rank[together] = together.min(axis=1)[:, None]
    return np.lexsort((rank, of)), begin


@kernel("void(i8[::1], i8[::1], i8[::1])")
def _by_class(of: Ints, begin: Ints, out: Ints) -> None:
    """(jobs,) positions ordered by class, then by position (a counting sort)."""
    at = begin.copy()
    for i in range(len(of)):
        out[at[of[i]]] = i
        at[of[i]] += 1


class _ClassPairs(NamedTuple):
    """Pairs of classes, and the jobs of each class."""

    first: Ints1  # (class pairs,) class
    second: Ints1  # (class pairs,) class
    time: Floats2  # (class pairs, slots) of all their pairs together
    members: Ints1  # (jobs,) positions, class by class
    begin: Ints1  # (classes + 1,) where each class begins in members
    name: Ints1  # (jobs,) what a position is called in the answer


@kernel("void(_ClassPairs, i8[:,::1], f8[:,::1])", allocates=False)
def _pairs(of: _ClassPairs, pair: Ints, share: Floats) -> None:
    """Fill in the pairs of jobs, (pairs, 2), and their shares, (pairs, slots), which have as many rows as
    there will be pairs."""
    first, second, time, members, begin, name = of
    out = 0
    for p in range(len(first)):
        a, b = begin[first[p]], begin[second[p]]
        n, m = begin[first[p] + 1] - a, begin[second[p] + 1] - b
        i, j, done = 0, 0, 0  # on a line of n * m
        twins = first[p] == second[p]
        ring = 3 if n % 2 == 1 else 0
        whole = float(n) if twins else float(n) * m
        while i < n and j < m:
            if twins and i < ring:
                x, y, part = members[a + i], members[a + (i + 1) % 3], 1.0
                i += 1
            elif twins:
                x, y, part = members[a + i], members[a + i + 1], 2.0
                i += 2
            else:
                x, y = members[a + i], members[b + j]
                end_i, end_j = (i + 1) * m, (j + 1) * n
                end = min(end_i, end_j)
                part = float(end - done)
                done = end
                if end_i == end:
                    i += 1
                if end_j == end:
                    j += 1
            pair[out, 0], pair[out, 1] = name[min(x, y)], name[max(x, y)]
            part /= whole
            for t in range(time.shape[1]):
                share[out, t] = time[p, t] * part
            out += 1
