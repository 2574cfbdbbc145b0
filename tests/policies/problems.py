"""Random allocation problems, and the literal programmes that the policies are compared with."""

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughput import Throughputs
from fairlead.traces.instances import JobRow, snapshot_of

ACCELERATORS = ("a", "b", "c")
FAMILIES = ("f0", "f1", "f2", "f3")


def table(rate: Floats) -> Throughputs:
    """A table of FAMILIES x scale factor 1, 2, 4 on ACCELERATORS from (12, 3) rates."""
    kinds = tuple((family, scale) for family in FAMILIES for scale in (1, 2, 4))
    return Throughputs(tuple(SlotType(a) for a in ACCELERATORS), kinds, rate)


@st.composite
def snapshots(draw: st.DrawFn, least_rate: float = 0.0, max_jobs: int = 10) -> Snapshot:
    """A few jobs of a few classes on a small cluster."""
    one = st.one_of(st.just(least_rate), st.floats(0.5, 50.0))
    rate = np.array(draw(st.lists(one, min_size=36, max_size=36))).reshape(12, 3)
    counts = draw(
        st.dictionaries(st.sampled_from(ACCELERATORS), st.integers(1, 6), min_size=1, max_size=3)
    )
    n = draw(st.integers(1, max_jobs))
    jobs = [
        JobRow(
            10 + 3 * i,
            draw(st.sampled_from(FAMILIES)),
            draw(st.sampled_from([1, 1, 2, 4])),
            draw(st.sampled_from([1.0, 1.0, 0.5, 5.0])),
        )
        for i in range(n)
    ]
    return snapshot_of(jobs, Cluster.of(counts), table(rate))


def literal_las(snapshot: Snapshot, rate: Floats) -> float:
    """The objective of LAS from one linear program over jobs, as spec (c) writes it."""
    n, slots = rate.shape
    p = rate @ snapshot.capacity / snapshot.capacity.sum()
    can = p > 0
    worth = np.zeros_like(rate)
    worth[can] = rate[can] * (snapshot.scale / snapshot.weight)[can, None] / p[can, None]
    if not can.any():
        return 0.0
    rows, right = [], []
    for i in range(n):
        level, time = np.zeros(n * slots + 1), np.zeros(n * slots + 1)
        level[i * slots : (i + 1) * slots], level[-1] = -worth[i], 1.0
        time[i * slots : (i + 1) * slots] = 1.0
        rows += [level, time] if can[i] else [time]
        right += [0.0, 1.0] if can[i] else [1.0]
    for j in range(slots):
        devices = np.zeros(n * slots + 1)
        devices[j : n * slots : slots] = snapshot.scale
        rows.append(devices)
        right.append(snapshot.capacity[j])
    cost = np.zeros(n * slots + 1)
    cost[-1] = -1.0
    found = linprog(cost, A_ub=np.array(rows), b_ub=np.array(right), method="highs")
    assert found.status == 0
    assert found.fun is not None
    return -float(found.fun)
