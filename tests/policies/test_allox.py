"""AlloX."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from fairlead.errors import ConfigError
from fairlead.model.allocation_checks import devices_used
from fairlead.model.arrays import Ints
from fairlead.model.cluster import Cluster
from fairlead.model.snapshot import Snapshot
from fairlead.policies import registry
from fairlead.policies.allox import AlloX
from fairlead.policies.gavel_reference.allox import GavelAlloX
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, snapshots, table


def problem(steps: list[float], scales: list[int] | None = None, **devices: int) -> Snapshot:
    """Jobs at 10 steps/s on a, 1 on the others; the first is the oldest."""
    rate = np.ones((12, 3))
    rate[:, 0] = 10.0
    scale = scales or [1] * len(steps)
    jobs = [
        InstanceJob(i, FAMILIES[0], scale[i], steps_left=left, age_s=100.0 - i)
        for i, left in enumerate(steps)
    ]
    return snapshot_of(jobs, Cluster.of(devices), table(rate))


def begun(policy: AlloX, snapshot: Snapshot) -> dict[int, int]:
    """{job: slot}"""
    share = policy.allocate(snapshot).share
    assert set(np.unique(share)) <= {0.0, 1.0}
    return {int(job): int(share[job].argmax()) for job in np.flatnonzero(share.any(axis=1))}


def running(snapshot: Snapshot, slots: dict[int, int]) -> Snapshot:
    share = np.zeros_like(snapshot.share)
    for job, slot in slots.items():
        share[job, slot] = 1.0
    return replace(snapshot, share=share)


def test_the_shortest_begins_where_it_is_fast() -> None:
    assert begun(AlloX(), problem([500.0, 100.0, 300.0], a=1)) == {1: 0}


def test_a_long_job_waits_for_a_fast_device_or_takes_a_slow_one_whatever_is_earlier() -> None:
    assert begun(AlloX(), problem([100.0, 110.0], a=1, b=1)) == {0: 0}  # 21 s with a wait, or 110 s
    assert begun(AlloX(), problem([100.0, 10.0], a=1, b=1)) == {1: 0}  # both on a: 1 s, 11 s
    busy = begun(AlloX(), problem([30.0] * 12, a=1, b=1))  # 36 s behind eleven others, or 30 s
    assert sorted(busy.values()) == [0, 1]


def test_a_job_that_has_begun_keeps_its_type_and_others_wait_or_go_elsewhere() -> None:
    assert begun(AlloX(), running(problem([1000.0, 150.0], a=1, b=1), {0: 0})) == {0: 0}
    assert begun(AlloX(), running(problem([100.0, 5.0], a=1, b=1), {0: 1})) == {0: 1, 1: 0}
    many = begun(AlloX(), running(problem([30.0] * 12, a=1, b=1), {0: 0}))
    assert many.pop(0) == 0
    assert list(many.values()) == [1]


def test_the_release_takes_what_is_free() -> None:
    snapshot = running(problem([1000.0, 150.0], a=1, b=1), {0: 0})
    assert begun(GavelAlloX(), snapshot) == {0: 0, 1: 1}


def test_a_large_problem_as_released_is_the_same_plan() -> None:
    rng = np.random.default_rng(1)
    steps = rng.uniform(10.0, 2000.0, 260).tolist()
    snapshot = problem(steps, a=100, b=100, c=60)
    assert len(steps) * 260 > 1 << 16
    made = GavelAlloX().allocate(snapshot)
    assert made.report.gap == pytest.approx(0.0, abs=1e-9)
    assert (devices_used(made, snapshot) <= snapshot.capacity).all()
    assert (made.share == AlloX().allocate(snapshot).share).all()  # nobody runs yet


def test_alpha_keeps_to_the_oldest_but_fills_what_is_free() -> None:
    steps = [900.0, 800.0, 700.0, 100.0]
    assert begun(AlloX(), problem(steps, a=1)) == {3: 0}
    assert begun(AlloX(alpha=0.5), problem(steps, a=1)) == {1: 0}
    assert begun(AlloX(alpha=0.0), problem(steps, a=2)) == {0: 0, 1: 0}


def test_a_job_of_several_devices_holds_up_those_that_are_longer() -> None:
    snapshot = problem([400.0, 100.0, 900.0], [1, 2, 1], a=2)
    assert begun(AlloX(), snapshot) == {1: 0}
    wide = running(problem([10.0, 1000.0, 5000.0], [1, 2, 1], a=2), {0: 0})
    assert begun(AlloX(), wide) == {0: 0}  # one device stays free for job 1
    assert begun(AlloX(), problem([10.0, 10.0], [4, 1], a=2)) == {1: 0}  # 4 never fit


def test_where_devices_were_lost_the_last_jobs_give_way() -> None:
    snapshot = running(problem([100.0, 100.0, 100.0], a=3), {0: 0, 1: 0, 2: 0})
    assert begun(AlloX(), replace(snapshot, capacity=np.array([2.0]))) == {0: 0, 1: 0}


def finish(snapshot: Snapshot, policy: AlloX) -> list[float]:
    """When each job is done if the policy is asked whenever one is."""
    slot: dict[int, int] = {}
    done = np.zeros(len(snapshot.jobs))
    now, ids = 0.0, np.arange(len(snapshot.jobs))
    while len(ids):
        shot = part(snapshot, ids, slot)
        slot = {int(ids[row]): s for row, s in begun(policy, shot).items()}
        rate = {job: snapshot.solo_rate[job, s] for job, s in slot.items()}
        lasts = min(snapshot.steps_left[job] / rate[job] for job in slot)
        now += lasts
        left = snapshot.steps_left.copy()
        for job in slot:
            left[job] -= lasts * rate[job]
        gone = [job for job in slot if left[job] <= 1e-6]
        done[gone] = now
        snapshot = replace(snapshot, steps_left=left)
        slot = {job: s for job, s in slot.items() if job not in gone}
        ids = ids[~np.isin(ids, gone)]
    return [float(one) for one in done]


def part(snapshot: Snapshot, rows: Ints, slot: dict[int, int]) -> Snapshot:
    share = running(snapshot, slot).share[rows]
    names = ("jobs", "weight", "steps_left", "age_s", "job_type", "scale", "rate")
    return replace(
        snapshot,
        **{name: getattr(snapshot, name)[rows] for name in names},
        group_members=np.arange(len(rows))[:, None],
        share=share,
    )


def test_the_plan_comes_true() -> None:
    """Nobody arrives: asked again and again, the policy realises the mean that it planned."""
    rng = np.random.default_rng(4)
    for _ in range(10):
        snapshot = problem(rng.uniform(10.0, 2000.0, 9).tolist(), a=1, b=2, c=1)
        planned = AlloX().allocate(snapshot).report
        assert planned.status == "optimal"
        assert sum(finish(snapshot, AlloX())) == pytest.approx(planned.objective)


@given(snapshots(max_jobs=14))
@settings(max_examples=60, deadline=None)
def test_answers_are_certified_and_fit(snapshot: Snapshot) -> None:
    made = AlloX().allocate(snapshot)
    assert set(np.unique(made.share)) <= {0.0, 1.0}
    assert not made.share[snapshot.solo_rate == 0].any()
    assert made.report.gap is not None
    assert made.report.objective is not None
    assert made.report.bound is not None
    assert made.report.bound <= made.report.objective * (1 + 1e-9)
    if (snapshot.scale == 1).all():
        assert made.report.gap <= 1e-6
    again = AlloX().allocate(replace(snapshot, share=made.share))
    assert (again.share[made.share > 0] == 1).all()


def test_alpha_is_checked() -> None:
    made = [registry.make(s, seed=0, profile="gavel") for s in ("allox:0.5", "allox_alpha=0.5")]
    assert made == [GavelAlloX(alpha=0.5)] * 2
    assert registry.make("allox", seed=0, profile="default") == AlloX(alpha=1.0)
    for wrong in ("allox:x", "allox:1.5", "allox:nan"):
        with pytest.raises(ConfigError, match="ALPHA must be a number from 0 to 1"):
            registry.make(wrong, seed=0, profile="default")
