"""Progressive filling of a tree: how a level at the root divides among entities, and among their jobs.

A *vertex* is a row of like jobs, or an entity. Every row has a height to which it can still rise; the sum of
the heights below a vertex is its volume. What reaches an entity goes on to its children:

    fairness   to all that are not full, in proportion to their weights
    fifo       to the first that is not full

Since what a subtree takes in does not depend on when, no events need be followed: of an amount A an
entity with fairness gives each child min(volume, weight * level) with the level at which these add up to
A, and one with fifo fills its children in order. The root has fairness and its own level is given.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel


@dataclass(frozen=True, slots=True)
class EntityTree:
    """Vertices: the rows first, then the entities, parents before their children; the first is the root."""

    parent: Ints  # (vertices,) an entity; the root's is itself
    weight: Floats  # (vertices,) of a row: that of all its jobs together
    rank: Ints  # (vertices,) order among the children of an entity with fifo
    fifo: Bools  # (entities,) False = fairness

    @property
    def rows(self) -> int:
        """Return how many vertices are rows."""
        return len(self.parent) - len(self.fifo)

    def child_of_root(self) -> Ints:
        """(rows,) the child of the root that a row is in, or is."""
        root = self.rows
        top = np.arange(len(self.parent))
        for entity in range(root, len(top)):  # parents first
            above = self.parent[entity]
            top[entity] = entity if above == root else top[above]
        above = self.parent[:root]
        return np.where(above == root, top[:root], top[above])

    def with_capacity(self, capacity: Floats) -> "FillTree":
        """The tree to be filled, with so much room in each row. capacity: (rows,)."""
        volume = np.concatenate([capacity, np.zeros(len(self.fifo))])
        _volumes(self.parent, volume, self.rows)
        ratio = volume / self.weight
        by_rank = self.fifo[self.parent - self.rows]
        inside = np.delete(np.arange(len(volume)), self.rows)  # the root is nobody's child
        key = np.where(by_rank, self.rank, ratio)[inside]
        child = inside[np.lexsort((key, self.parent[inside]))]
        begin = np.searchsorted(self.parent[child], np.arange(self.rows, len(volume) + 1))
        of_root = child[begin[0] : begin[1]]
        return FillTree(
            tree=self,
            volume=volume,
            child=child,
            begin=begin,
            full=float(ratio[of_root].max(initial=0.0)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FillTree:
    """An ``EntityTree`` with room in its rows."""

    tree: EntityTree
    volume: Floats  # (vertices,)
    child: Ints  # (vertices - 1,) by parent, then in the order in which they are full
    begin: Ints  # (entities + 1,) where each entity's children begin
    full: float  # the root's level at which everything is full

    def fill(self, level: float) -> Floats:
        """(rows,) how much each row rises when the root's level rises by ``level``."""
        tree = self.tree
        return _fill(level, self.volume, tree.weight, tree.fifo, self.child, self.begin)


@kernel("void(i8[::1], f8[::1], i8)", allocates=False)
def _volumes(parent: Ints, volume: Floats, rows: int) -> None:
    """Add up the volumes of rows into entities, in place."""
    for v in range(rows):
        volume[parent[v]] += volume[v]
    for v in range(len(volume) - 1, rows, -1):
        volume[parent[v]] += volume[v]


@kernel("f8[::1](f8, f8[::1], f8[::1], b1[::1], i8[::1], i8[::1])")
def _fill(
    level: float, volume: Floats, weight: Floats, fifo: Bools, child: Ints, begin: Ints
) -> Floats:
    rows = len(volume) - len(fifo)
    amount = np.zeros(len(volume))
    for i in range(begin[0], begin[1]):
        v = child[i]
        amount[v] = min(volume[v], weight[v] * level)
    above = np.empty(len(child) + 1)  # weight of a child and of those that are full later
    for e in range(1, len(fifo)):
        left = amount[rows + e]
        if left <= 0:
            continue
        if fifo[e]:
            for i in range(begin[e], begin[e + 1]):
                v = child[i]
                amount[v] = min(volume[v], left)
                left -= amount[v]
            continue
        above[begin[e + 1]] = 0.0
        for i in range(begin[e + 1] - 1, begin[e] - 1, -1):
            above[i] = above[i + 1] + weight[child[i]]
        for i in range(begin[e], begin[e + 1]):
            v = child[i]
            amount[v] = min(volume[v], left * (weight[v] / above[i]))
            left = max(0.0, left - amount[v])
    return amount[:rows].copy()
