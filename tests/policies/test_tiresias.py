"""Tiresias: discretised two-dimensional least attained service."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import ConfigError
from fairlead.model.cluster import Cluster
from fairlead.model.plan import Change, Planner
from fairlead.model.snapshot import Snapshot
from fairlead.policies import registry
from fairlead.policies.tiresias import Tiresias, TiresiasState
from fairlead.scheduler.journal import replay
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, snapshots, table
from tests.small import jct, job, run


def problem(ran_s: list[float], scales: list[int] | None = None, **devices: int) -> Snapshot:
    scale = scales or [1] * len(ran_s)
    jobs = [InstanceJob(i, FAMILIES[0], s, age_s=10_000.0) for i, s in enumerate(scale)]
    snapshot = snapshot_of(jobs, Cluster.of(devices), table(np.ones((12, 3))))
    return replace(snapshot, ran_s=np.array(ran_s))


def planned(planner: Tiresias, snapshot: Snapshot) -> dict[int, int]:
    plan, _ = planner.plan(snapshot, planner.start())
    return dict(zip(plan.job_group.tolist(), plan.slot.tolist(), strict=True))


def test_service_is_devices_times_time_and_queues_are_first_in_first_out() -> None:
    planner = Tiresias(seed=0, thresholds=(3600.0, 7200.0))
    snapshot = problem([1799.0, 1800.0, 0.0, 7200.0], [2, 2, 1, 1], a=1)
    queue, _ = planner.queues(snapshot, planner.start())
    assert queue.tolist() == [0, 1, 0, 2]
    assert planned(planner, problem([3600.0, 100.0, 0.0], a=2)) == {1: 0, 2: 0}
    assert planned(planner, problem([3500.0, 100.0, 0.0], a=2)) == {0: 0, 1: 0}


def test_what_does_not_fit_is_skipped() -> None:
    assert planned(Tiresias(seed=0), problem([0.0, 0.0, 0.0], [1, 4, 1], a=2)) == {0: 0, 2: 0}


def test_a_job_stays_on_its_type_and_a_new_one_goes_where_nobody_gives_way() -> None:
    for seed in range(5):
        snapshot = problem([3600.0, 0.0], a=1, b=1)
        for slot in (0, 1):
            runs = replace(snapshot, running_on=np.array([slot, -1]))
            assert planned(Tiresias(seed=seed), runs) == {0: slot, 1: 1 - slot}


def test_a_starved_job_is_promoted_and_its_service_counts_anew() -> None:
    planner = Tiresias(seed=0, promote_knob=1.0)
    snapshot = problem([5000.0, 5001.0], a=1)  # of 10,000 s: as long as they ran, and a little less
    queue, state = planner.queues(snapshot, planner.start())
    assert queue.tolist() == [0, 1]
    assert state.promoted == {0: (5000.0, 10_000.0)}
    later = replace(snapshot, age_s=snapshot.age_s + 4000, ran_s=np.array([8599.0, 5001.0]))
    queue, after = planner.queues(later, state)
    assert queue.tolist() == [0, 0]
    assert after.promoted[0] == state.promoted[0]
    sunk = replace(later, age_s=later.age_s + 10, ran_s=np.array([8609.0, 5001.0]))
    assert planner.queues(sunk, after)[0].tolist() == [1, 0]
    off, nothing = Tiresias(seed=0).queues(snapshot, TiresiasState())
    assert off.tolist() == [1, 1]
    assert not nothing.promoted


@given(snapshots(max_jobs=14), st.integers(0, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_a_round_fits_and_nobody_waits_who_would_fit(
    snapshot: Snapshot, seed: int, data: st.DataObject
) -> None:
    n = len(snapshot.jobs)
    ran = data.draw(st.lists(st.sampled_from([0.0, 5000.0]), min_size=n, max_size=n))
    snapshot = replace(snapshot, ran_s=np.array(ran))
    plan = planned(Tiresias(seed=seed), snapshot)
    free = snapshot.capacity.copy()
    for job_, slot in plan.items():
        assert snapshot.solo_rate[job_, slot] > 0
        free[snapshot.accelerator_of_slot[slot]] -= snapshot.scale[job_]
    assert (free >= 0).all()
    fits = free[snapshot.accelerator_of_slot] >= snapshot.scale[:, None]
    waits = [job_ for job_ in range(n) if job_ not in plan]
    assert not (fits & (snapshot.solo_rate > 0))[waits].any()


def test_a_short_job_overtakes_one_that_has_run_for_long(tmp_path: Path) -> None:
    arrivals = [job(0, 0.0, 100_000), job(1, 4000.0, 3_000)]
    result = run(arrivals, policy="tiresias", out=tmp_path)
    assert jct(result) == {0: pytest.approx(10_320.0, abs=60.1), 1: pytest.approx(620.0, abs=1.0)}
    assert jct(run(arrivals, policy="fifo"))[1] == pytest.approx(6300.0, abs=360.0)
    assert replay(tmp_path / "journal")[0] > 50


def test_promotions_are_replayed(tmp_path: Path) -> None:
    arrivals = [job(i, 0.0, 60_000) for i in range(4)]
    result = run(arrivals, policy="tiresias:1000,promote=0.5", out=tmp_path)
    assert result.complete
    assert replay(tmp_path / "journal")[0] > 50
    plain = run(arrivals, policy="tiresias:1000")
    assert jct(plain) != jct(result)


def test_thresholds_are_checked() -> None:
    made = registry.make("tiresias:3600,7200,promote=8", seed=3, profile="default")
    assert made == Tiresias(seed=3, thresholds=(3600.0, 7200.0), promote_knob=8.0)
    assert isinstance(made, Planner)
    for wrong, says in (
        ("x", "expected device-seconds > 0, or promote=K with K > 0, got 'x'"),
        ("-1", "got '-1'"),
        ("demote=3", "got 'demote=3'"),
        ("3600,", "got ''"),
        ("2,1", "thresholds must ascend"),
    ):
        with pytest.raises(ConfigError, match=says):
            registry.make(f"tiresias:{wrong}", seed=0, profile="default")
    planner = Tiresias(seed=0)
    assert not planner.due(0.0, Change.JOBS, True, planner.start())
    with pytest.raises(ConfigError, match="plans rounds itself"):
        planner.solve(problem([0.0], a=1), None)
