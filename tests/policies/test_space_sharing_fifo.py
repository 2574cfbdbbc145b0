"""First in, first out, with a second job where it gains enough."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.allocation_checks import devices_used, job_times
from fairlead.model.snapshot import Snapshot
from fairlead.policies.fifo import FastestFirstFifo
from fairlead.policies.gavel_reference.space_sharing_fifo import GavelSpaceSharingFifo
from fairlead.policies.space_sharing_fifo import MIN_PAIR_RATE, SpaceSharingFifo
from tests.policies.pairs import group_shares, problem, with_colocated_rates
from tests.policies.problems import snapshots


def packed(
    snapshot: Snapshot, policy: SpaceSharingFifo | None = None
) -> dict[tuple[int, ...], dict[str, float]]:
    made = (policy or SpaceSharingFifo()).allocate(snapshot)
    return group_shares(snapshot, made.share, made.job_groups)


def test_those_that_wait_join_those_that_run_in_order() -> None:
    assert packed(problem([1, 1, 1, 1], 0.8, a=2)) == {(0, 2): {"a": 1.0}, (1, 3): {"a": 1.0}}


def test_nobody_joins_where_too_little_is_gained() -> None:
    assert packed(problem([1, 1, 1], 0.75, a=2)) == {(0,): {"a": 1.0}, (1,): {"a": 1.0}}


def test_the_best_partner_is_taken_and_the_first_of_equal_ones() -> None:
    snapshot = problem([1, 1, 1, 1], 0.8, [0, 1, 2, 0], a=3)
    assert snapshot.colocated_rate is not None
    colocated_rate = snapshot.colocated_rate.copy()
    colocated_rate[snapshot.job_type[2], snapshot.job_type[3]] = 9.0
    assert (2, 3) in packed(replace(snapshot, colocated_rate=colocated_rate))
    assert (0, 3) in packed(snapshot)


def test_only_jobs_of_as_many_devices_share_and_the_head_holds_up_the_rest() -> None:
    assert packed(problem([1, 2, 4, 1], 0.9, a=3)) == {(0,): {"a": 1.0}, (1,): {"a": 1.0}}


def test_the_release_forgets_a_head_for_which_too_few_devices_are_left() -> None:
    snapshot = problem([1, 4, 1], 0.9, a=3)
    assert packed(snapshot) == {(0,): {"a": 1.0}}
    assert packed(snapshot, GavelSpaceSharingFifo()) == {(0, 2): {"a": 1.0}}
    full = problem([1, 4, 1], 0.9, a=1)
    assert packed(full, GavelSpaceSharingFifo()) == packed(full) == {(0,): {"a": 1.0}}


def test_without_rates_of_pairs_it_is_fifo() -> None:
    snapshot = replace(problem([1, 1, 1], 0.9, a=2), colocated_rate=None)
    assert (
        SpaceSharingFifo().allocate(snapshot).share == FastestFirstFifo().allocate(snapshot).share
    ).all()


@given(snapshots(max_jobs=14), st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_pairs_use_the_devices_of_fifo(snapshot: Snapshot, kept: float) -> None:
    snapshot = with_colocated_rates(snapshot, kept)
    alone, made = FastestFirstFifo().allocate(snapshot), SpaceSharingFifo().allocate(snapshot)
    assert devices_used(made, snapshot).tolist() == devices_used(alone, snapshot).tolist()
    assert set(np.unique(job_times(made, snapshot))) <= {0.0, 1.0}
    assert (job_times(made, snapshot) >= job_times(alone, snapshot)).all()
    assert 2 * kept > MIN_PAIR_RATE or made.job_groups.shape[0] == len(snapshot.jobs)
