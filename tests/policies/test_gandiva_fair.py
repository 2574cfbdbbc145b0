"""Gandiva_fair: parts by tickets, then trade."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.policies.gandiva_fair import GandivaFair, fair_shares, tenants
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, snapshots, table


def problem(jobs: list[InstanceJob], **devices: int) -> Snapshot:
    """The first family is 4 times as fast on a as on b, the second 2 times."""
    rate = np.ones((12, 3))
    rate[0:3, 0], rate[3:6, 0] = 4.0, 2.0
    return snapshot_of(jobs, Cluster.of(devices), table(rate))


def fair(snapshot: Snapshot) -> Floats:
    """(jobs, types); slots are types here."""
    able = (snapshot.solo_rate > 0) & (snapshot.scale[:, None] <= snapshot.capacity)
    return fair_shares(snapshot, np.asarray(able.any(axis=1)))


def oracle(snapshot: Snapshot, equal: Floats) -> float:
    """max sum_i t_i / t_i^eq  s.t.  t_i >= t_i^eq, time, capacity, literally. equal: (jobs,) t^eq."""
    n, types = snapshot.solo_rate.shape
    can = equal > 0
    able = snapshot.scale[:, None] <= snapshot.capacity
    gain = np.zeros((n, types))
    gain[can] = (snapshot.solo_rate * able)[can] / equal[can, None]
    time = np.kron(np.eye(n), np.ones(types))
    devices = np.kron(snapshot.scale[None, :], np.eye(types))
    progress = np.zeros((n, n * types))
    for i in range(n):
        progress[i, i * types : (i + 1) * types] = -gain[i]
    found = linprog(
        -gain.ravel(),
        np.vstack([time, devices, progress[can]]),
        np.concatenate([np.ones(n), snapshot.capacity, np.full(can.sum(), -1 + 1e-9)]),
        method="highs",
    )
    assert found.status == 0
    assert found.fun is not None
    return -float(found.fun)


def test_tenants_have_equal_parts_however_many_jobs_they_have() -> None:
    jobs = [InstanceJob(i, FAMILIES[0], tenant="x" if i == 0 else "y") for i in range(9)]
    snapshot = problem(jobs, a=1, b=1)
    devices = fair(snapshot).sum(axis=1)
    assert devices[0] == pytest.approx(1.0)
    assert devices[1:] == pytest.approx(np.full(8, 1 / 8))


def test_tickets_are_the_largest_weight_and_jobs_without_a_tenant_stand_for_themselves() -> None:
    jobs = [
        InstanceJob(0, FAMILIES[0], weight=3.0, tenant="x"),
        InstanceJob(1, FAMILIES[0], weight=1.0, tenant="x"),
        InstanceJob(2, FAMILIES[0], weight=2.0),
        InstanceJob(3, FAMILIES[0], weight=1.0),
    ]
    snapshot = problem(jobs, a=1, b=1)
    assert len(set(tenants(snapshot).tolist())) == 3
    devices = fair(snapshot).sum(axis=1)
    assert devices == pytest.approx(np.array([0.75, 0.25, 2 / 3, 1 / 3]))


def test_what_a_tenant_cannot_use_goes_to_the_others() -> None:
    jobs = [InstanceJob(i, FAMILIES[0], tenant="x" if i == 0 else "y") for i in range(5)]
    devices = fair(problem(jobs, a=2, b=2)).sum(axis=1)
    assert devices == pytest.approx(np.array([1.0] + [0.75] * 4))


def test_two_tenants_trade() -> None:
    """x gains 4 from a fast device and y 2: y sells at 2 slow ones each, the second largest ratio."""
    jobs = [InstanceJob(i, FAMILIES[i // 8], tenant="xy"[i // 8]) for i in range(16)]
    snapshot = problem(jobs, a=4, b=4)
    share = GandivaFair().allocate(snapshot).share
    assert share[:8].sum(axis=0) == pytest.approx([3.0, 0.0])
    assert share[8:].sum(axis=0) == pytest.approx([1.0, 4.0])


def test_free_fast_devices_are_used() -> None:
    snapshot = problem([InstanceJob(0, FAMILIES[0])], a=4, b=4)
    assert GandivaFair().allocate(snapshot).share.tolist() == [[1.0, 0.0]]


@given(snapshots(max_jobs=10), st.integers(0, 3), st.integers(0, 10**6))
@settings(max_examples=120, deadline=None)
def test_nobody_loses_by_trade_and_the_oracle_is_not_passed(
    snapshot: Snapshot, named: int, seed: int
) -> None:
    n = len(snapshot.jobs)
    names = ("", "x", "y", "z")
    whose = np.random.default_rng(seed).integers(0, named + 1, n)
    snapshot = replace(snapshot, tenant=whose, tenants=names)
    made = GandivaFair().allocate(snapshot)
    able = snapshot.scale[:, None] <= snapshot.capacity
    equal = (snapshot.solo_rate * able * fair(snapshot)).sum(axis=1)
    progress = (snapshot.solo_rate * able * made.share).sum(axis=1)
    assert (progress >= equal * (1 - 1e-7)).all()
    for one in set(tenants(snapshot).tolist()):
        its = tenants(snapshot) == one
        assert progress[its].sum() >= equal[its].sum() * (1 - 1e-7)
    assert made.report.violation <= 1e-7
    assert made.report.objective is not None
    assert made.report.objective >= (equal > 0).sum() * (1 - 1e-7)
    assert made.report.objective <= oracle(snapshot, equal) * (1 + 1e-6)


def test_trade_comes_close_to_the_oracle() -> None:
    """Mean ratio to the linear program over random problems; 0.79 of it is there without trade."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(60):
        rate = rng.lognormal(0, 1, (12, 3))
        jobs = [
            InstanceJob(
                i,
                FAMILIES[rng.integers(4)],
                int(rng.choice([1, 1, 2])),
                tenant="xyz"[rng.integers(3)],
            )
            for i in range(12)
        ]
        snapshot = snapshot_of(jobs, Cluster.of({"a": 2, "b": 3, "c": 4}), table(rate))
        equal = (snapshot.solo_rate * fair(snapshot)).sum(axis=1)
        objective = GandivaFair().allocate(snapshot).report.objective
        assert objective is not None
        ratios.append(objective / oracle(snapshot, equal))
    assert np.mean(ratios) > 0.85
