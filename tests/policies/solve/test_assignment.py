"""Jobs to positions in the queues of devices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog

from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.assignment import assign


def device_by_device(time_s: Floats, devices: Ints) -> float:
    """The cost of the best matching with every position of every device, the literal program."""
    kind = np.repeat(np.arange(len(devices)), devices)
    every = np.minimum(time_s, 1e12)[:, kind]
    cost = np.concatenate([k * every for k in range(1, len(time_s) + 1)], axis=1)
    row, column = linear_sum_assignment(cost)
    return float(cost[row, column].sum())


def relaxed(time_s: Floats, scale: Ints, devices: Ints) -> float:
    """The literal relaxation for jobs of several devices, with every position that could matter."""
    jobs, types = time_s.shape
    last = int(scale.sum()) + 1
    kind, k = (a.ravel() for a in np.meshgrid(np.arange(types), np.arange(1, last + 1)))
    cost = np.minimum(time_s, 1e12)[:, kind] * (1 + np.outer(scale, k - 1))
    nodes = len(kind)
    room = np.zeros((nodes, jobs * nodes))
    once = np.zeros((jobs, jobs * nodes))
    for i in range(jobs):
        once[i, i * nodes : (i + 1) * nodes] = 1.0
        room[np.arange(nodes), i * nodes + np.arange(nodes)] = scale[i]
    found = linprog(cost.ravel(), room, devices[kind], once, np.ones(jobs), method="highs")
    assert found.status == 0
    assert found.fun is not None
    return float(found.fun)


TIMES = st.lists(st.floats(1.0, 1e4), min_size=30, max_size=30)


@given(st.integers(1, 10), TIMES, st.lists(st.integers(1, 3), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_devices_of_a_type_as_one_cost_the_same(
    n: int, times: list[float], count: list[int]
) -> None:
    time_s, devices = np.array(times).reshape(10, 3)[:n], np.array(count)
    found = assign(time_s, np.ones(n, np.int64), devices)
    assert found.cost == pytest.approx(device_by_device(time_s, devices), rel=1e-9)
    assert found.bound == pytest.approx(found.cost, rel=1e-9)


@given(
    st.integers(1, 6),
    TIMES,
    st.lists(st.sampled_from([1, 1, 2, 4]), min_size=6, max_size=6),
    st.lists(st.integers(4, 6), min_size=3, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_jobs_of_several_devices_reach_the_relaxations_bound(
    n: int, times: list[float], scales: list[int], count: list[int]
) -> None:
    time_s, devices, scale = (
        np.array(times).reshape(10, 3)[:n],
        np.array(count),
        np.array(scales[:n]),
    )
    found = assign(time_s, scale, devices)
    assert found.bound == pytest.approx(relaxed(time_s, scale, devices), rel=1e-7)
    assert found.cost >= found.bound * (1 - 1e-9)


def test_a_job_that_no_type_can_run_is_left_out() -> None:
    inf = np.inf
    found = assign(np.array([[inf, inf], [inf, 5.0]]), np.ones(2, np.int64), np.array([1, 1]))
    assert found.type.tolist() == [-1, 1]
    assert found.cost == found.bound == 5.0
    assert assign(np.full((1, 1), inf), np.ones(1, np.int64), np.array([1])).type.tolist() == [-1]


def test_deep_queues_open_as_many_positions_as_they_need() -> None:
    time_s = np.column_stack([np.arange(1.0, 201.0), np.full(200, 1e6)])
    found = assign(time_s, np.ones(200, np.int64), np.array([1, 3]))
    assert found.type.tolist() == [0] * 200
    assert found.cost == sum(k * (201.0 - k) for k in range(1, 201))
    assert found.bound == pytest.approx(found.cost, rel=1e-9)
    zero = assign(np.zeros((5, 1)), np.ones(5, np.int64), np.array([2]))
    assert (zero.cost, zero.bound) == (0.0, 0.0)
