"""Both placement rules: no device twice, the right type, kept where possible."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from fairlead.model.arrays import Ints
from fairlead.placement.pack import fewest_servers, in_order

NODES = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3])  # two servers of four, two of two
TYPES = np.array([0] * 8 + [1] * 4)
NONE = np.zeros(0, np.int64)


Old = tuple[Ints, Ints, Ints, Ints]
NOBODY: Old = (NONE, NONE, np.zeros(1, np.int64), NONE)


def place(
    rule: Callable[..., Any],
    unit: Any,
    slot: Any,
    scale: Any,
    old: Old = NOBODY,
    works: Any = None,
) -> tuple[dict[int, list[int]], dict[int, bool], Any]:
    """Devices by unit, whether they were kept, and the rule's own answer."""
    works = np.ones(12, np.bool_) if works is None else works
    result = rule(
        np.array(unit, np.int64),
        np.array(slot, np.int64),
        np.array(scale, np.int64),
        *old,
        TYPES,
        NODES,
        works,
        len(scale),
        np.arange(2),
    )
    order, first, devices, kept = result
    where = {int(unit[i]): devices[first[n] : first[n + 1]].tolist() for n, i in enumerate(order)}
    return where, {int(unit[i]): bool(kept[n]) for n, i in enumerate(order)}, result


def test_a_small_job_takes_the_fullest_server_that_holds_it() -> None:
    where, _, _ = place(fewest_servers, [0, 1, 2], [0, 0, 0], [3, 2, 1])
    assert where == {0: [0, 1, 2], 1: [4, 5], 2: [3]}


def test_a_big_job_goes_first_whatever_the_order() -> None:
    where, _, _ = place(fewest_servers, [0, 1], [0, 0], [1, 4])
    assert where == {0: [4], 1: [0, 1, 2, 3]}


def test_a_job_larger_than_a_server_takes_as_few_as_can_hold_it() -> None:
    where, _, _ = place(fewest_servers, [0], [0], [6])
    assert where == {0: [0, 1, 2, 3, 4, 5]}


def test_a_server_that_is_down_is_not_used() -> None:
    works = NODES != 0
    where, _, _ = place(fewest_servers, [0], [0], [2], works=works)
    assert where == {0: [4, 5]}


@pytest.mark.parametrize("rule", [in_order, fewest_servers])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_devices_are_given_once_and_kept_where_possible(
    rule: Callable[..., Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scale = rng.choice([1, 2, 4], 8)
    plans = []
    for _ in range(2):
        left, unit, slot = [8, 4], [], []
        for u in rng.permutation(8).tolist():
            t = int(rng.integers(0, 2))
            if scale[u] <= left[t]:
                left[t] -= scale[u]
                unit.append(u)
                slot.append(t)
        by_type = np.argsort(slot, kind="stable")
        plans.append((np.array(unit)[by_type], np.array(slot)[by_type]))
    _, _, first = place(rule, *plans[0], scale)
    order, starts, devices, _ = first
    old = (plans[0][0][order], plans[0][1][order], starts, devices)
    where, kept, _ = place(rule, *plans[1], scale, old)
    used = [d for mine in where.values() for d in mine]
    assert len(used) == len(set(used))
    before = {int(u): devices[starts[n] : starts[n + 1]].tolist() for n, u in enumerate(old[0])}
    was_on = dict(zip(old[0].tolist(), old[1].tolist(), strict=True))
    for u, t in zip(plans[1][0].tolist(), plans[1][1].tolist(), strict=True):
        assert len(where[u]) == scale[u]
        assert set(TYPES[where[u]]) == {t}
        assert kept[u] == (before.get(u) == where[u] and was_on.get(u) == t)
        if rule is fewest_servers and was_on.get(u) == t:
            assert kept[u]
