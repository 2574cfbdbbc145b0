"""What a node is worth to the jobs that there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairlead.cluster.autoscaling.demand import (
    LEAST_GAIN,
    JobClass,
    NodeDemand,
    NodeSize,
    wanted_nodes,
)

V100 = NodeSize(accelerator="v100", devices=4, maximum=3)
K80 = NodeSize(accelerator="k80", devices=4, maximum=3)
BOTH = (V100, K80)


def jobs(count: int, rates: dict[str, float], devices: int = 1, weight: float = 1.0) -> JobClass:
    return JobClass(count=count, devices=devices, weight=weight, rates=rates, left_s=100.0)


FAST = jobs(6, {"v100": 4.0, "k80": 1.0})


def asked(demand: NodeDemand, capacity: dict[str, int], most: int = 10) -> list[str]:
    nodes = {one.accelerator: capacity.get(one.accelerator, 0) // one.devices for one in BOTH}
    return [
        one.size.accelerator for one in wanted_nodes(demand, BOTH, capacity, nodes=nodes, most=most)
    ]


def test_the_type_of_the_highest_price_comes_first() -> None:
    demand = NodeDemand([FAST], BOTH)
    assert demand.gain({}, V100) == pytest.approx(4.0)
    assert demand.gain({}, K80) == pytest.approx(1.0)
    assert asked(demand, {}) == ["v100", "v100"], "six devices are all that six jobs can use"


def test_nothing_is_asked_for_without_jobs_or_above_the_maximum() -> None:
    assert asked(NodeDemand([], BOTH), {}) == []
    assert asked(NodeDemand([jobs(100, {"v100": 1.0})], BOTH), {}) == ["v100"] * 3
    assert asked(NodeDemand([jobs(100, {"v100": 1.0})], BOTH), {"v100": 8}) == ["v100"]
    assert asked(NodeDemand([jobs(100, {"v100": 1.0})], BOTH), {}, most=2) == ["v100"] * 2


def test_slower_devices_are_asked_for_when_the_fast_ones_are_at_their_maximum() -> None:
    demand = NodeDemand([jobs(20, {"v100": 4.0, "k80": 1.0})], BOTH)
    assert asked(demand, {}) == ["v100"] * 3 + ["k80"] * 2


def test_a_job_that_needs_more_devices_than_there_may_be_wants_no_node() -> None:
    assert asked(NodeDemand([jobs(1, {"v100": 1.0}, devices=16)], BOTH), {}) == []
    assert asked(NodeDemand([jobs(1, {"v100": 1.0}, devices=12)], BOTH), {}) == ["v100"] * 3


def test_devices_that_others_brought_count() -> None:
    demand = NodeDemand([jobs(2, {"v100": 1.0, "a100": 2.0})], BOTH)
    assert asked(demand, {"a100": 2}) == []
    assert asked(demand, {"a100": 1}) == ["v100"]


def test_the_weight_of_jobs_counts() -> None:
    light, heavy = jobs(4, {"v100": 1.0}), jobs(4, {"k80": 1.0}, weight=3.0)
    assert asked(NodeDemand([light, heavy], BOTH), {}) == ["k80", "v100"]


def test_a_node_is_kept_as_long_as_jobs_would_miss_it() -> None:
    demand = NodeDemand([jobs(5, {"v100": 1.0})], BOTH)
    assert demand.is_worth_keeping({"v100": 8}, V100)
    assert not demand.is_worth_keeping({"v100": 12}, V100)
    assert not NodeDemand([], BOTH).is_worth_keeping({"v100": 4}, V100)


def test_what_brings_next_to_nothing_is_not_asked_for() -> None:
    demand = NodeDemand([jobs(4, {"v100": 1.0, "k80": 0.99})], BOTH)
    assert demand.gain({"k80": 4}, V100) == pytest.approx(0.04)
    assert demand.gain({"k80": 4}, V100) < LEAST_GAIN
    assert asked(demand, {"k80": 4}) == []


RATES = st.dictionaries(st.sampled_from(["v100", "k80"]), st.floats(0.1, 10), min_size=1)
CLASSES = st.lists(
    st.builds(
        JobClass,
        count=st.integers(1, 20),
        devices=st.integers(1, 8),
        weight=st.floats(0.5, 4),
        rates=RATES,
        left_s=st.just(10.0),
    ),
    min_size=1,
    max_size=5,
)


@given(CLASSES, st.integers(0, 12), st.integers(0, 12))
def test_the_worth_is_the_optimum_of_the_programme(
    classes: list[JobClass], v100: int, k80: int
) -> None:
    """Stated anew, and solved by another solver."""
    capacity = {"v100": v100, "k80": k80}
    most = {one.accelerator: max(one.most_devices, capacity[one.accelerator]) for one in BOTH}
    cost, upper = [], []
    time, used = np.zeros((len(classes), 2 * len(classes))), np.zeros((2, 2 * len(classes)))
    for c, one in enumerate(classes):
        for t, name in enumerate(("v100", "k80")):
            rate = one.rates.get(name, 0.0) if one.devices <= most[name] else 0.0
            cost.append(-one.weight * rate / max(one.rates.values()))
            upper.append((0.0, None if rate else 0.0))
            time[c, 2 * c + t] = 1.0
            used[t, 2 * c + t] = one.devices
    limits = [*(one.count for one in classes), v100, k80]
    expected = linprog(cost, np.vstack([time, used]), limits, bounds=upper)
    assert expected.fun is not None
    assert NodeDemand(classes, BOTH).worth(capacity) == pytest.approx(-expected.fun, abs=1e-6)
