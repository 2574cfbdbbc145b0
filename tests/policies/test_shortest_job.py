"""Shortest job first and shortest remaining time first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from fairlead.model.allocation_checks import devices_used
from fairlead.model.cluster import Cluster
from fairlead.model.plan import Policy
from fairlead.model.snapshot import Snapshot
from fairlead.policies.shortest_job import ShortestJobFirst, ShortestRemainingTimeFirst
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, snapshots, table
from tests.small import jct, job, run

BOTH = (ShortestJobFirst(), ShortestRemainingTimeFirst())


def problem(steps: list[float], scales: list[int], **devices: int) -> Snapshot:
    """Jobs at 10 steps/s on a, 1 on the others."""
    rate = np.ones((12, 3))
    rate[:, 0] = 10.0
    jobs = [
        InstanceJob(i, FAMILIES[0], s, steps_left=left)
        for i, (left, s) in enumerate(zip(steps, scales, strict=True))
    ]
    return snapshot_of(jobs, Cluster.of(devices), table(rate))


def given_out(policy: Policy, snapshot: Snapshot) -> dict[int, int]:
    share = policy.allocate(snapshot).share
    return {int(j): int(share[j].argmax()) for j in np.flatnonzero(share.any(axis=1))}


@pytest.mark.parametrize("policy", BOTH)
def test_the_shortest_has_the_fastest_and_what_does_not_fit_is_skipped(policy: Policy) -> None:
    snapshot = problem([50.0, 40.0, 30.0, 20.0], [1, 1, 4, 1], a=1, b=2)
    assert given_out(policy, snapshot) == {3: 0, 1: 1, 0: 1}


def test_total_length_decides_for_one_and_what_is_left_for_the_other() -> None:
    snapshot = problem([50.0, 40.0], [1, 1], a=1)
    snapshot = replace(snapshot, steps_left=np.array([10.0, 40.0]))
    first, left = BOTH
    assert given_out(first, snapshot) == {1: 0}
    assert given_out(left, snapshot) == {0: 0}


def test_only_one_of_them_takes_devices_away() -> None:
    snapshot = problem([50.0, 40.0], [1, 1], a=1)
    snapshot = replace(snapshot, share=np.array([[1.0], [0.0]]))
    first, left = BOTH
    assert given_out(first, snapshot) == {0: 0}
    assert given_out(left, snapshot) == {1: 0}


def test_a_job_moves_to_a_faster_type_if_it_is_done_earlier_so() -> None:
    snapshot = problem([100.0], [1], a=1, b=1)
    on_b = replace(snapshot, share=np.array([[0.0, 1.0]]))
    for restart_s, slot in ((89.0, 0), (91.0, 1)):
        costly = replace(on_b, restart_s=np.array([restart_s]))
        assert given_out(ShortestRemainingTimeFirst(), costly) == {0: slot}


@given(snapshots(max_jobs=14))
@settings(max_examples=60, deadline=None)
def test_nobody_waits_who_would_fit(snapshot: Snapshot) -> None:
    for policy in BOTH:
        made = policy.allocate(snapshot)
        free = snapshot.capacity - devices_used(made, snapshot)
        assert (free >= 0).all()
        waits = ~made.share.any(axis=1)
        fits = free[snapshot.accelerator_of_slot] >= snapshot.scale[:, None]
        assert not (fits & (snapshot.solo_rate > 0))[waits].any()
        assert not made.share[snapshot.solo_rate == 0].any()


def test_runs_end_in_the_order_of_length_left() -> None:
    arrivals = [job(0, 0.0, 36_000), job(1, 400.0, 18_000), job(2, 400.0, 3_600)]
    first = jct(run(arrivals, policy="sjf"))
    assert first == {0: 3600.0, 2: pytest.approx(3560.0), 1: pytest.approx(5360.0)}
    left = jct(run(arrivals, policy="srtf"))  # all rounds of 360 s end on multiples of it
    assert left == {2: pytest.approx(680.0), 1: pytest.approx(2480.0), 0: pytest.approx(5760.0)}
