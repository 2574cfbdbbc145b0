"""The heap gives what a full stable sort gives."""

from dataclasses import fields
from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from tests.drawn import examples

from fairlead.model.plan import BasePolicy
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.gavel_reference.rules import OnlyAllocated, TypeByType
from fairlead.scheduler.mechanism.gavel_reference.type_by_type import select_type_by_type
from fairlead.scheduler.mechanism.rules import FillingRule, LargestDeficitFirst
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


@examples(300)
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


class OneQueue(BasePolicy):
    """The traits that rules ask for."""

    global_queue = True


def some_snapshot(rng: np.random.Generator) -> Snapshot:
    """Jobs alone, with what rules of filling look at."""
    jobs, slots = int(rng.integers(1, 30)), 3
    total = rng.integers(1, 4, jobs).astype(float)
    known: dict[str, Any] = {
        "now_s": 720.0,
        "jobs": np.arange(jobs),
        "group_members": np.arange(jobs)[:, None].copy(),
        "scale": rng.choice([1, 2, 4], jobs),
        "rate": rng.integers(0, 3, (jobs, slots, 1)).astype(float),
        "share": rng.integers(0, 3, (jobs, slots)) / 2,
        "received_s": rng.integers(0, 3, (jobs, slots)) * 180.0,
        "deficit_s": rng.integers(-1, 2, (jobs, slots)) * 180.0,
        "allocated_s": rng.integers(0, 3, slots) * 720.0,
        "allocated": rng.random(jobs) < 0.8,
        "running_on": rng.integers(-1, slots, jobs),
        "restart_s": rng.integers(0, 3, jobs) * 90.0,
        "steps_left": np.maximum(total - rng.integers(0, 2, jobs), 0.0),
        "total_steps": total,
        "capacity": rng.integers(0, 12, slots).astype(float),
        "accelerator_of_slot": np.arange(slots),
    }
    named: dict[str, Any] = {field.name: known.get(field.name) for field in fields(Snapshot)}
    return Snapshot(**named)


@pytest.mark.parametrize(
    "rule",
    [
        LargestDeficitFirst(360.0, 1.0),
        LargestDeficitFirst(360.0, 0.0),
        TypeByType(Random(0)),
        OnlyAllocated(TypeByType(Random(0))),
    ],
)
@pytest.mark.parametrize("policy", [BasePolicy(), OneQueue()])
def test_filling_in_one_pass_chooses_the_same(rule: FillingRule, policy: Any) -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        snapshot, order = some_snapshot(rng), rng.permutation(3)
        expected = rule.select(rule.priorities(snapshot, 360.0), snapshot, order, policy)
        found = rule.fill(snapshot, 360.0, order, policy)
        assert [array.tolist() for array in found] == [array.tolist() for array in expected]
