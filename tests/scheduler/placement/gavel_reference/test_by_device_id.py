"""Both placement rules: no device twice, the right type, kept where possible."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from tests.drawn import examples
from tests.scheduler.placement.places import (
    NO_PREVIOUS_ROUND,
    NODES,
    TYPES,
    Placement,
    place_by_device_id,
    place_on_servers,
)


def test_gavels_rule_takes_the_lowest_free_devices_big_jobs_first() -> None:
    placed = place_by_device_id([0, 1, 2], [0, 0, 0], [1, 4, 2], NO_PREVIOUS_ROUND)
    assert placed.where == {1: [0, 1, 2, 3], 2: [4, 5], 0: [6]}


@pytest.mark.parametrize("rule", [place_by_device_id, place_on_servers])
@examples(150)
@given(seed=st.integers(0, 2**32 - 1))
def test_devices_are_given_once_and_kept_where_possible(
    rule: Callable[..., Placement], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scale = rng.choice([1, 2, 4], 8)
    plans: list[Any] = []
    for _ in range(2):
        left, group, slot = [8, 4], [], []
        for u in rng.permutation(8).tolist():
            t = int(rng.integers(0, 2))
            if scale[u] <= left[t]:
                left[t] -= scale[u]
                group.append(u)
                slot.append(t)
        by_type = np.argsort(slot, kind="stable")
        plans.append((np.array(group)[by_type], np.array(slot)[by_type]))
    before = rule(*plans[0], scale, NO_PREVIOUS_ROUND)
    after = rule(*plans[1], scale, before.old)
    used = [d for mine in after.where.values() for d in mine]
    assert len(used) == len(set(used))
    was_on = dict(zip(before.old[0].tolist(), before.old[1].tolist(), strict=True))
    for u, t in zip(plans[1][0].tolist(), plans[1][1].tolist(), strict=True):
        assert len(after.where[u]) == scale[u]
        assert set(TYPES[after.where[u]]) == {t}
        stays = before.where.get(u) == after.where[u] and was_on.get(u) == t
        assert after.kept[u] == stays
        if rule is place_on_servers and was_on.get(u) == t:
            assert stays


def test_a_server_that_is_down_is_not_used() -> None:
    usable = NODES != 0
    for rule in (place_by_device_id, place_on_servers):
        assert rule([0], [0], [2], NO_PREVIOUS_ROUND, usable=usable).where == {0: [4, 5]}
