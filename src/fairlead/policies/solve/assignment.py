"""The matching of AlloX: jobs with positions in the queues of devices, where devices of a type are one node.

A job that runs for p seconds on a device, and is the k-th from the end there, delays k jobs by p: itself
and the k - 1 behind it. So the sum of completion times is the cost of a matching of jobs with (device,
position) at cost k p (Horn 1973; Bruno, Coffman, Sethi 1974). Devices of one type cost the same, so the N
positions k of a type are one node that takes N jobs. Exchanging equal devices maps matchings with devices
on matchings with nodes at the same cost and back, so the optimum is the same. Few k are needed: a node is
open only when the one before it is full, since it costs every job more.

A job of s devices that is k-th from the end on each of them delays itself and s (k - 1) others, at cost
p (1 + s (k - 1)), and takes s of the N places. The program is then a relaxation: jobs may be divided
between nodes. At a vertex at most as many jobs are divided as there are full nodes, and each of those goes
where most of it is; with s = 1 everywhere the matrix is totally unimodular and no job is divided.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.policies.solve.highs import (
    BASIC,
    INFINITY,
    LOWER,
    Basis,
    HighsModel,
    LinearProgram,
    Optimum,
)


@dataclass(frozen=True, slots=True)
class Matching:
    """Accelerator type of each job."""

    type: Ints  # (jobs,) -1 = no type can run it
    cost: float  # of the best positions on those types
    bound: float  # no matching costs less
    iterations: int


def assign(time_s: Floats, scale: Ints, devices: Ints) -> Matching:
    """The cheapest matching. time_s: (jobs, types) run time, inf = cannot run there; scale: (jobs,)
    devices of a job; devices: (types,), a type with fewer than a job needs must have inf for it."""
    runs = np.isfinite(time_s).any(axis=1)
    chosen = np.full(len(time_s), -1, np.int64)
    if not runs.any():
        return Matching(chosen, 0.0, 0.0, 0)
    program = _Program(time_s[runs], scale[runs].astype(np.float64), devices.astype(np.float64))
    chosen[runs], bound, iterations = program.solve()
    cost = sum(
        _cost(time_s[chosen == t, t], scale[chosen == t], int(devices[t]))
        for t in range(len(devices))
    )
    return Matching(chosen, cost, bound, iterations)


def _cost(time_s: Floats, scale: Ints, devices: int) -> float:
    """The cost of jobs on one type, each in the first position that has room, longest first. time_s, scale:
    (jobs,)."""
    order = np.argsort(-time_s, kind="stable")
    return float(
        time_s[order] @ (1 + scale[order] * (_completion_positions(scale[order], devices) - 1))
    )


def _completion_positions(scale: Ints, devices: int) -> Ints:
    """(jobs,) positions from the end, from 1 on, filled one after the other."""
    if (scale == 1).all():
        return np.arange(len(scale)) // max(devices, 1) + 1
    position = np.ones(len(scale), np.int64)
    k, free = 1, devices
    for i, width in enumerate(scale.tolist()):
        if width > free:
            k, free = k + 1, devices
        position[i] = k
        free -= width
    return position


class _Program:
    """The linear program over nodes (type, position), and its dual bound."""

    def __init__(self, time_s: Floats, scale: Floats, devices: Floats) -> None:
        self.time_s, self.scale, self.devices = time_s, scale, devices
        self.unit_rate = float(time_s.min(axis=1).mean()) or 1.0  # cost of order one

    def solve(self) -> tuple[Ints, float, int]:
        """(jobs,) types, the bound, and simplex iterations. Opens more positions until some are free."""
        start = self._greedy()
        depth = np.zeros(len(self.devices), np.int64)
        for t in range(len(depth)):
            widths = self.scale[start == t].astype(np.int64)
            depth[t] = 2 + _completion_positions(widths, int(self.devices[t])).max(initial=0)
        while True:
            nodes = [(t, k) for t in range(len(depth)) for k in range(1, depth[t] + 1)]
            self.node_type, self.node_k = np.array(nodes, np.int64).T
            share, dual, iterations = self._optimum(start)
            last = self.node_k == depth[self.node_type]
            used = (self.scale @ share)[last] > 1e-6
            if not used.any():
                break
            depth[used] *= 2
        by_type = np.zeros((len(share), len(depth)))
        np.add.at(by_type.T, self.node_type, share.T)
        return by_type.argmax(axis=1), self._bound(dual), iterations

    def _greedy(self) -> Ints:
        """(jobs,) types: longest job first, each where it costs least after those before it."""
        load = np.zeros(len(self.devices))
        chosen = np.zeros(len(self.time_s), np.int64)
        size = np.maximum(self.devices, 1.0)
        for i in np.argsort(-self.time_s.min(axis=1), kind="stable").tolist():
            t = int((self.time_s[i] * (1 + load / size)).argmin())
            chosen[i] = t
            load[t] += self.scale[i]
        return chosen

    def _costs(self) -> Floats:
        """(jobs, nodes) cost of each job in each node; inf where it cannot run."""
        by_node = self.time_s[:, self.node_type]
        return np.asarray(by_node * (1 + np.outer(self.scale, self.node_k - 1)))

    def _optimum(self, start: Ints) -> tuple[Floats, Floats, int]:
        """(jobs, nodes) shares, (nodes,) prices of a place, iterations; from a start that fits."""
        jobs, nodes = len(self.time_s), len(self.node_type)
        cost = self._costs()
        job, node = np.nonzero(np.isfinite(cost))
        columns = len(job)
        index = np.column_stack([job, jobs + node]).astype(np.int32)
        value = np.column_stack([np.ones(columns), self.scale[job]])
        program = LinearProgram(
            cost=-cost[job, node] / self.unit_rate,
            col_lower=np.zeros(columns),
            col_upper=np.full(columns, INFINITY),
            row_lower=np.append(np.ones(jobs), np.full(nodes, -INFINITY)),
            row_upper=np.append(np.ones(jobs), self.devices[self.node_type]),
            start=np.arange(0, 2 * columns + 1, 2, dtype=np.int32),
            index=index.ravel(),
            value=value.ravel(),
        )
        model = HighsModel(program)
        model.load(self._basis(start, job, node))
        optimum: Optimum = model.maximise()
        share = np.zeros((jobs, nodes))
        share[job, node] = optimum.value
        return share, optimum.dual[jobs:] * self.unit_rate, optimum.iterations

    def _basis(self, start: Ints, job: Ints, node: Ints) -> Basis:
        """The basis in which every job is in its node of ``start``, and every node has room to spare."""
        at = np.zeros(len(self.time_s), np.int64)
        for t in range(len(self.devices)):
            here = np.flatnonzero(start == t)
            here = here[np.argsort(-self.time_s[here, t], kind="stable")]
            widths = self.scale[here].astype(np.int64)
            first = int(np.flatnonzero(self.node_type == t)[0])
            at[here] = first + _completion_positions(widths, int(self.devices[t])) - 1
        chosen: Bools = at[job] == node
        rows = np.append(np.full(len(at), LOWER), np.full(len(self.node_type), BASIC))
        return Basis(np.where(chosen, BASIC, LOWER).astype(np.uint8), rows.astype(np.uint8))

    def _bound(self, price: Floats) -> float:
        """Return a lower bound on the cost of every matching, by weak duality.
        A place beyond the open positions has no price, but costs a job no less than in the first of them."""
        price = np.maximum(price, 0.0)
        charged = self._costs() + np.outer(self.scale, price)
        deepest = np.bincount(self.node_type)
        beyond = self.time_s * (1 + np.outer(self.scale, deepest))
        least = np.minimum(charged.min(axis=1), beyond.min(axis=1))
        return float(least.sum() - self.devices[self.node_type] @ price)
