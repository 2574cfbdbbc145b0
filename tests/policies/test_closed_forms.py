"""Isolated, proportional and agnostic LAS."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.policies.isolated import Isolated
from fairlead.policies.las import AgnosticLas, max_min_times
from fairlead.policies.proportional import Proportional
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests import oracle
from tests.policies.problems import FAMILIES, snapshots, table


def test_isolated_divides_the_cluster() -> None:
    jobs = [InstanceJob(i, FAMILIES[0], scale) for i, scale in enumerate([1, 1, 2, 4])]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 2, "b": 8}), table(np.ones((12, 3))))
    share = Isolated().allocate(snapshot).share
    assert share == pytest.approx(np.array([[0.2, 0.8], [0.2, 0.8], [0.2, 0.8], [0.125, 0.5]]))


def test_proportional_promises_more_than_there_is_and_says_so() -> None:
    jobs = [InstanceJob(i, FAMILIES[0]) for i in range(30)]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 2, "b": 8}), table(np.ones((12, 3))))
    allocation = Proportional().allocate(snapshot)
    assert allocation.share == pytest.approx(np.tile([0.2, 0.8], (30, 1)))
    assert allocation.report.violation == pytest.approx(2.0)


@given(snapshots(max_jobs=12))
@settings(max_examples=60, deadline=None)
def test_agnostic_las_is_the_literal_optimum(snapshot: Snapshot) -> None:
    allocation = AgnosticLas().allocate(snapshot)
    assert allocation.report.objective == pytest.approx(oracle.las(snapshot), rel=1e-9)
    assert allocation.report.gap is not None
    assert allocation.report.gap <= 1e-9


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.5, 20)), min_size=1, max_size=12),
    st.floats(0, 100),
)
def test_filling_uses_all_devices_or_gives_all_time(
    classes: list[tuple[float, float]], supply: float
) -> None:
    worth, devices = np.array(classes).T
    time = max_min_times(worth, devices, supply)
    assert time.min() >= 0
    assert time.max() <= 1
    assert devices @ time == pytest.approx(min(supply, devices.sum()))
    rising = time < 1 - 1e-12
    if rising.any():  # all that still rise are at one level, and nobody who is full is above it
        level = (worth * time)[rising]
        assert level == pytest.approx(np.full(len(level), level[0]))
        assert (worth[~rising] <= level[0] * (1 + 1e-9)).all()
