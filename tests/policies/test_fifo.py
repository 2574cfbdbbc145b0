"""First in, first out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ConfigError
from fairlead.model.allocation_checks import devices_used
from fairlead.model.cluster import Cluster
from fairlead.model.plan import Change, Planner, RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.fifo import FastestFirstFifo, FifoPlanner, FifoShares
from fairlead.policies.hash_random import hash_choice
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, snapshots, table


def planned(planner: FifoPlanner, snapshot: Snapshot) -> dict[int, int]:
    plan, _ = planner.plan(snapshot, planner.start())
    assert isinstance(plan, RoundPlan)
    return dict(zip(plan.job_group.tolist(), plan.slot.tolist(), strict=True))


def after(snapshot: Snapshot, plan: dict[int, int]) -> Snapshot:
    running = np.full(len(snapshot.jobs), -1)
    for unit, slot in plan.items():
        running[unit] = slot
    return replace(snapshot, running_on=running)


def used(snapshot: Snapshot, plan: dict[int, int]) -> list[float]:
    out = np.zeros(len(snapshot.capacity))
    for unit, slot in plan.items():
        out[snapshot.accelerator_of_slot[slot]] += snapshot.scale[unit]
    return [float(one) for one in out]


@given(snapshots(max_jobs=14))
@settings(max_examples=100, deadline=None)
def test_an_aware_round_is_gavels_allocation_and_stays_so(snapshot: Snapshot) -> None:
    planner = FifoPlanner(0, True)
    first = planned(planner, snapshot)
    assert planned(planner, after(snapshot, first)) == first
    large_enough = snapshot.capacity[snapshot.accelerator_of_slot] >= snapshot.scale[:, None]
    if ((snapshot.solo_rate > 0) & large_enough).any(axis=1).all():
        share = FastestFirstFifo().allocate(snapshot).share
        assert first == {int(j): int(share[j].argmax()) for j in np.flatnonzero(share.any(axis=1))}


def test_an_aware_job_moves_on_when_a_faster_type_is_free_and_the_start_is_worth_it() -> None:
    rate = np.ones((12, 3))
    rate[:, 1] = 2.0
    jobs = [InstanceJob(0, FAMILIES[0], steps_left=100.0)]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 1, "b": 1}), table(rate))
    on_a = replace(snapshot, running_on=np.array([0]))
    for restart_s, slot in ((49.0, 1), (51.0, 0)):
        costly = replace(on_a, restart_s=np.array([restart_s]))
        assert planned(FifoPlanner(0, True), costly) == {0: slot}
        assert planned(FifoPlanner(0, False), costly) == {0: 0}


@given(snapshots(max_jobs=14), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_a_round_fits_keeps_and_lets_nobody_overtake(snapshot: Snapshot, seed: int) -> None:
    planner = FifoPlanner(seed, False)
    assert isinstance(planner, Planner)
    first = planned(planner, snapshot)
    second = planned(planner, after(snapshot, first))
    assert second == first
    free = snapshot.capacity - used(snapshot, first)
    assert (free >= 0).all()
    could = (snapshot.solo_rate > 0) & (
        snapshot.capacity[snapshot.accelerator_of_slot] >= snapshot.scale[:, None]
    )
    waiting = [job for job in range(len(snapshot.jobs)) if job not in first and could[job].any()]
    if waiting:
        head = waiting[0]
        assert max(first, default=-1) < head
        fits = free[snapshot.accelerator_of_slot] >= snapshot.scale[head]
        assert not (fits & (snapshot.solo_rate[head] > 0)).any()
    for job, slot in first.items():
        assert snapshot.solo_rate[job, slot] > 0


@given(snapshots(max_jobs=14), st.data())
@settings(max_examples=60, deadline=None)
def test_when_devices_are_lost_the_last_to_come_give_way(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    planner = FifoPlanner(0, False)
    ran = planned(planner, snapshot)
    left = np.array(
        [float(data.draw(st.integers(0, int(devices)))) for devices in snapshot.capacity]
    )
    smaller = replace(after(snapshot, ran), capacity=left)
    plan = planned(planner, smaller)
    assert (np.array(used(smaller, plan)) <= left).all()
    for job, slot in ran.items():
        if job not in plan:  # no room beside the earlier ones that stayed
            kept = {j: s for j, s in plan.items() if j < job and ran.get(j) == s}
            room = left - used(smaller, kept)
            assert room[snapshot.accelerator_of_slot[slot]] < snapshot.scale[job]


def test_the_head_of_the_line_holds_up_those_behind_it() -> None:
    jobs = [
        InstanceJob(0, FAMILIES[0], 1),
        InstanceJob(1, FAMILIES[0], 4),
        InstanceJob(2, FAMILIES[0], 1),
    ]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 4}), table(np.ones((12, 3))))
    assert planned(FifoPlanner(0, True), snapshot) == {0: 0}


def test_a_job_that_no_type_could_ever_hold_is_passed_over() -> None:
    jobs = [InstanceJob(0, FAMILIES[0], 4), InstanceJob(1, FAMILIES[0], 1)]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 2}), table(np.ones((12, 3))))
    assert planned(FifoPlanner(0, True), snapshot) == {1: 0}


def test_the_aware_one_takes_the_fastest_and_the_agnostic_one_draws() -> None:
    rate = np.ones((12, 3))
    rate[:, 2] = 9.0
    jobs = [InstanceJob(i, FAMILIES[0]) for i in range(300)]
    cluster = Cluster.of({"a": 300, "b": 300, "c": 300})
    snapshot = snapshot_of(jobs, cluster, table(rate))
    assert set(planned(FifoPlanner(0, True), snapshot).values()) == {2}
    drawn = np.bincount(list(planned(FifoPlanner(0, False), snapshot).values()))
    assert drawn.min() > 70
    assert planned(FifoPlanner(0, False), snapshot) != planned(FifoPlanner(1, False), snapshot)


def test_draws_do_not_depend_on_who_else_is_there() -> None:
    jobs = [InstanceJob(i, FAMILIES[0]) for i in range(20)]
    cluster = Cluster.of({"a": 30, "b": 30})
    everyone = snapshot_of(jobs, cluster, table(np.ones((12, 3))))
    some = snapshot_of(jobs[5:], cluster, table(np.ones((12, 3))))
    all_of = planned(FifoPlanner(3, False), everyone)
    assert planned(FifoPlanner(3, False), some) == {j: all_of[j + 5] for j in range(15)}


def test_a_planner_without_shares_says_so() -> None:
    snapshot = snapshot_of(
        [InstanceJob(0, FAMILIES[0])], Cluster.of({"a": 1}), table(np.ones((12, 3)))
    )
    planner = FifoPlanner(0, True)
    assert not planner.due(0.0, Change.JOBS, True, planner.start())
    with pytest.raises(ConfigError, match="plans rounds itself"):
        planner.solve(snapshot, None)


@given(snapshots(max_jobs=14), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_agnostic_shares_keep_their_type(snapshot: Snapshot, seed: int) -> None:
    policy = FifoShares(seed=seed)
    first = policy.allocate(snapshot)
    assert set(np.unique(first.share)) <= {0.0, 1.0}
    assert (devices_used(first, snapshot) <= snapshot.capacity).all()
    again = policy.allocate(replace(snapshot, share=first.share))
    assert (again.share == first.share).all()


def test_aware_shares_pass_over_a_job_that_its_free_types_cannot_run() -> None:
    """As Gavel does: devices are free on a type where its rate is 0, so it does not block."""
    rate = np.ones((12, 3))
    rate[:3, 1] = 0.0
    jobs = [InstanceJob(0, FAMILIES[1]), InstanceJob(1, FAMILIES[0]), InstanceJob(2, FAMILIES[1])]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 1, "b": 4}), table(rate))
    share = FastestFirstFifo().allocate(snapshot).share
    assert share.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]


def test_draws_are_even() -> None:
    counts = np.bincount([hash_choice(7, number, 5) for number in range(20_000)])
    assert len(counts) == 5
    assert (abs(counts - 4000) < 300).all()
    assert hash_choice(7, 3, 5) == hash_choice(7, 3, 5)
