"""Random pairs, drawn as Gavel's release draws them."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.analysis.simulate import simulate
from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import group_members
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies.gandiva_packing import GandivaPacking
from fairlead.policies.isolated import Isolated
from fairlead.policies.python_random_stream import PythonRandomStream
from fairlead.scheduler.journal import replay
from tests.job_types import job_types
from tests.policies.pairs import group_shares, problem, with_colocated_rates
from tests.policies.problems import snapshots


def allocate(snapshot: Snapshot, seed: int = 0) -> Allocation:
    """By a policy that has never been asked before."""
    return GandivaPacking(random=PythonRandomStream(seed)).allocate(snapshot)


def pairs(made: Allocation) -> set[tuple[int, int]]:
    return (
        {(a, b) for a, b in made.job_groups.tolist() if b >= 0}
        if made.job_groups.shape[1] > 1
        else set()
    )


def without(snapshot: Snapshot, gone: int) -> Snapshot:
    """The same after a job has left; jobs are all of one kind."""
    stay = snapshot.jobs != gone
    rows = np.flatnonzero(stay)
    return replace(
        snapshot,
        jobs=snapshot.jobs[rows],
        weight=snapshot.weight[rows],
        job_type=snapshot.job_type[rows],
        scale=snapshot.scale[rows],
        rate=snapshot.rate[rows],
        group_members=np.arange(len(rows))[:, None],
        share=snapshot.share[rows],
    )


def test_jobs_without_a_common_type_are_no_pair() -> None:
    snapshot = problem([1, 1, 1, 1], 0.9, a=1, b=1)
    rate = snapshot.rate.copy()
    rate[0, 1:] = rate[1, 1:] = 0.0  # on the first type alone
    rate[2, :1] = rate[3, :1] = 0.0  # on the others
    apart = replace(snapshot, rate=rate)
    made = [pairs(allocate(apart, seed)) for seed in range(20)]
    assert set().union(*made) == {(0, 1), (2, 3)}


def test_without_overload_everybody_has_a_part_alone() -> None:
    snapshot = problem([1, 1, 2], 0.9, a=2, b=2)
    made = allocate(snapshot)
    assert not pairs(made)
    assert made.share[:3] == pytest.approx(Isolated().allocate(snapshot).share)


def test_pairs_are_those_that_random_sample_draws() -> None:
    snapshot = problem([1] * 30, 0.9, a=2)
    stream, single = random.Random(3), list(range(30))
    drawn = set()
    while len(single) > 1:
        two = sorted(stream.sample(single, 2))
        drawn.add((two[0], two[1]))
        single = [job for job in single if job not in two]
    made = allocate(snapshot, 3)
    assert pairs(made) == drawn
    assert set(np.unique(made.share[30:])) == {2 / 15}


def test_pairs_last_and_the_stream_goes_on_where_it_stood() -> None:
    snapshot = problem([1] * 7, 0.9, a=2)
    first = allocate(snapshot)
    again = allocate(replace(snapshot, previous=first))
    assert pairs(again) == pairs(first)  # one job is left over, and one is not two
    assert again.report.basis == first.report.basis
    leaves, partner = min(pairs(first))
    after = allocate(replace(without(snapshot, leaves), previous=first))
    assert pairs(after) > pairs(first) - {(leaves, partner)}
    assert after.report.basis != first.report.basis


def test_pairs_outlive_a_time_without_packing() -> None:
    busy = problem([1] * 6, 0.9, a=2)
    first = allocate(busy)
    idle = allocate(replace(busy, capacity=np.array([8.0]), previous=first))
    assert all(len(group) == 1 for group in group_shares(busy, idle.share, idle.job_groups))
    later = allocate(replace(busy, previous=idle))
    assert pairs(later) == pairs(first)
    assert (later.share == first.share).all()


def test_a_pair_parts_when_it_gains_too_little() -> None:
    snapshot = problem([1, 1], 0.9, a=1)
    first = allocate(snapshot)
    assert pairs(first) == {(0, 1)}
    slow = with_colocated_rates(snapshot, 0.49)  # 0.98 on the only type: parted, and drawn again
    assert allocate(replace(slow, previous=first)).report.basis != first.report.basis
    good = with_colocated_rates(snapshot, 0.51)
    assert allocate(replace(good, previous=first)).report.basis == first.report.basis


@given(snapshots(max_jobs=14), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_every_job_is_in_one_unit_and_units_have_equal_parts(snapshot: Snapshot, seed: int) -> None:
    snapshot = with_colocated_rates(snapshot, 0.8)
    made = allocate(snapshot, seed)
    member = group_members(made, snapshot)
    scale = snapshot.scale[member[:, 0]]
    assert all(snapshot.scale[a] == snapshot.scale[b] for a, b in member if b >= 0)
    devices = made.share.sum(axis=1) * scale
    in_force = devices > 0
    assert sorted(j for u in member[in_force].tolist() for j in u if j >= 0) == list(
        range(len(snapshot.jobs))
    )
    equal = snapshot.capacity.sum() / in_force.sum()
    assert devices[in_force] == pytest.approx(np.minimum(equal, scale[in_force]))


RATES = Throughputs(
    (SlotType("x"),),
    job_types(
        ("net", 1),
    ),
    np.array([[1.0]]),
    np.array([[[0.8]]]),
)


def test_a_run_that_was_interrupted_draws_as_if_it_had_not_been(tmp_path: Path) -> None:
    """The position in the stream comes back from the journal, and outlives times without jobs."""
    burst = [0.0] * 9 + [1000.0 * i for i in range(1, 6)] + [60_000.0] * 9
    jobs = [Arrival(t, Job(JobId(i), "net", 1, 900.0 + 100 * i)) for i, t in enumerate(burst)]
    cluster = Cluster.of({"x": 3})
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    known = simulate(jobs, cluster, "gandiva_packing", throughputs=RATES, out=whole)
    calls = iter(range(10**9))
    partly = simulate(
        jobs, cluster, "gandiva_packing", throughputs=RATES, out=cut, stop=lambda: next(calls) > 40
    )
    assert not partly.complete
    resumed = simulate(jobs, cluster, "gandiva_packing", throughputs=RATES, out=cut, resume=True)
    assert resumed.metrics["journal_sha256"] == known.metrics["journal_sha256"]
    assert replay(cut / "journal")[0] > 50
    other = simulate(jobs, cluster, "gandiva_packing", throughputs=RATES, seed=1)
    assert other.jobs["jct_s"].to_list() != known.jobs["jct_s"].to_list()
