"""The heap gives what a full stable sort gives."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from fairlead.scheduler.mechanism.gavel_reference.type_by_type import select_type_by_type
from fairlead.scheduler.mechanism.selection import Candidates, Priorities, select


def by_sorting(
    keys: list[np.ndarray],
    eligible: np.ndarray,
    group_members: np.ndarray,
    scale: np.ndarray,
    capacity: np.ndarray,
    order: np.ndarray,
    type_by_type: bool,
) -> list[tuple[int, int]]:
    """Selection as it is described: sort all entries, take what fits."""
    left, selection = capacity.copy(), []
    taken: set[int] = set()
    groups = range(len(scale))
    queue = []
    for t in order.tolist():
        priorities = [(u, t) for u in groups if eligible[u, t]]
        if type_by_type:
            priorities.sort(key=lambda e: [-k[e] for k in keys])
        queue += priorities
    if not type_by_type:
        queue.sort(key=lambda e: [-k[e] for k in keys])
    for u, t in queue:
        jobs = {int(j) for j in group_members[u] if j >= 0}
        if jobs & taken or scale[u] > left[t]:
            continue
        left[t] -= scale[u]
        taken |= jobs
        selection.append((u, t))
    return selection


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_selection_equals_a_stable_sort(seed: int, type_by_type: bool, packed: bool) -> None:
    rng = np.random.default_rng(seed)
    jobs, slots = int(rng.integers(1, 30)), int(rng.integers(1, 4))
    job_scale = rng.choice([1, 2, 4, 8], jobs)
    group_members = [[j, -1] for j in range(jobs)]
    if packed:
        for a in range(jobs):
            same = [b for b in range(a + 1, jobs) if job_scale[a] == job_scale[b]]
            group_members += [[a, b] for b in same]
    table = np.array(group_members)[:, : 2 if packed else 1].copy()
    scale = job_scale[table[:, 0]]
    # few distinct values, so that ties are common
    keys = [rng.integers(0, 3, (len(table), slots)).astype(float) for _ in range(3)]
    eligible = rng.random((len(table), slots)) < 0.8
    capacity = rng.integers(0, 12, slots)
    order = rng.permutation(slots)
    priorities = Priorities(keys[0], keys[1], keys[2], eligible)
    candidates = Candidates(table, scale, np.arange(slots))
    rule = select_type_by_type if type_by_type else select
    group, slot = rule(priorities, candidates, capacity, order, jobs)
    expected = by_sorting(keys, eligible, table, scale, capacity, order, type_by_type)
    assert list(zip(group.tolist(), slot.tolist(), strict=True)) == expected
