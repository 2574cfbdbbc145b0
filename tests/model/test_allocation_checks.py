"""What allocations are refused, before compiled loops that check no bounds see them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.small import job, run

import fairlead
from fairlead import Allocation, AllocationError, Snapshot, SolveReport
from fairlead.model.allocation_checks import devices_used, job_times

REPORT = SolveReport("closed-form")


class Keeps:
    """A policy that keeps the last snapshot with two jobs."""

    name, heterogeneity_aware, space_sharing, work_conserving = "keeps", True, False, True
    snapshot: Snapshot

    def allocate(self, snapshot: Snapshot) -> Allocation:
        if len(snapshot.jobs) == 2:
            Keeps.snapshot = snapshot
        return fairlead.allocation(snapshot, np.zeros_like(snapshot.solo_rate), REPORT)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """Jobs 3 and 7, on two slot types."""
    run([job(3, 0.0, 900.0), job(7, 0.0, 900.0)], fast=2, slow=2, policy=Keeps())
    return Keeps.snapshot


def of(groups: Any, share: Any) -> Allocation:
    return Allocation(groups, share, REPORT)


IDS = np.array([[3], [7]])
FAIR = np.full((2, 2), 0.25)
WRONG: list[tuple[Any, Any, str]] = [
    (
        IDS,
        np.zeros((2, 3000)),
        r"share must have shape \(2, 2\), a column per slot type, got \(2, 3000\)",
    ),
    (IDS, np.zeros((50_000, 2)), r"share must have shape \(2, 2\)"),
    (IDS, np.zeros((0, 2)), r"share must have shape \(2, 2\)"),
    (IDS, np.zeros(4), r"share must have shape \(2, 2\), a column per slot type, got \(4,\)"),
    (np.array([[3], [10**9]]), FAIR, "job 1000000000 is not in the snapshot"),
    (np.array([[3], [5]]), FAIR, "job 5 is not in the snapshot"),
    (np.array([[-5], [7]]), FAIR, "job -5 is not in the snapshot"),
    (np.array([[-1], [7]]), FAIR, "job -1 is not in the snapshot"),
    (np.array([[3, -2], [7, -1]]), FAIR, "job -2 is not in the snapshot"),
    (np.array([[3, 3], [7, -1]]), FAIR, "job 3 cannot be a pair with itself"),
    (np.array([[3, -1, 7, 9]]), FAIR[:1], r"job_groups must have shape .*, got \(1, 4\)"),
    (np.array([3, 7]), FAIR, r"job_groups must have shape .*, got \(2,\)"),
    (np.array([[3.0], [7.0]]), FAIR, "job_groups must be numbers, got float64"),
    (IDS, FAIR.astype(str), "share must be numbers, got <U"),
    (IDS, FAIR.astype(complex), "share must be numbers, got complex128"),
    (IDS, [[0.1], [0.1, 0.2]], "share must be an array of numbers"),
    (IDS, None, "share must be numbers, got object"),
    (None, FAIR, "job_groups must be numbers, got object"),
]


@pytest.mark.parametrize(("groups", "share", "message"), WRONG)
@pytest.mark.parametrize(
    "use", [fairlead.check_allocation, fairlead.effective_throughput, devices_used, job_times]
)
def test_what_does_not_go_with_the_snapshot_is_one_sentence(
    use: Callable[[Allocation, Snapshot], Any],
    groups: Any,
    share: Any,
    message: str,
    snapshot: Snapshot,
) -> None:
    with pytest.raises(AllocationError, match=message):
        use(of(groups, share), snapshot)


def test_pairs_need_rates_only_for_their_throughput(snapshot: Snapshot) -> None:
    pair = of(np.array([[3, 7], [7, -1]]), FAIR)
    assert fairlead.check_allocation(pair, snapshot) is pair
    with pytest.raises(AllocationError, match="jobs 3 and 7: the snapshot has no rates of pairs"):
        fairlead.effective_throughput(pair, snapshot)


@pytest.mark.parametrize(
    ("groups", "share", "message"),
    [
        (np.array([[7], [7]]), FAIR, "job 7 has two rows of shares"),
        (IDS, np.array([[0.1, np.nan], [0.1, 0.1]]), "job 3: the share on .* 0 to 1, got nan"),
        (IDS, np.array([[0.1, 0.1], [-0.1, 0.1]]), "job 7: the share on .* 0 to 1, got -0.1"),
        (IDS, np.array([[0.1, 0.1], [np.inf, 0.1]]), "job 7: the share on .* 0 to 1, got inf"),
        (IDS, np.full((2, 2), 0.6), r"job 3: shares add up to 1\.2"),
    ],
)
def test_shares_that_are_not_possible_are_refused(
    groups: Any, share: Any, message: str, snapshot: Snapshot
) -> None:
    with pytest.raises(AllocationError, match=message):
        fairlead.check_allocation(of(groups, share), snapshot)


def test_pairs_in_any_order_have_one_row(snapshot: Snapshot) -> None:
    types = len(snapshot.job_type_rate)
    shared = replace(snapshot, colocated_rate=np.ones((types, types, 2)))
    groups = np.array([[3, 7], [3, -1], [7, -1], [7, 3]])
    share = np.array([[0.1, 0.2], [0.0, 0.0], [0.3, 0.0], [0.0, 0.0]])
    with pytest.raises(AllocationError, match="the pair of jobs 3 and 7 has two rows of shares"):
        fairlead.check_allocation(of(groups, share), shared)
    good = of(groups[:3], share[:3])
    assert fairlead.check_allocation(good, shared) is good
    assert job_times(good, shared) == pytest.approx([0.3, 0.6])
    alone = snapshot.solo_rate[1, 0] * 0.3
    assert fairlead.effective_throughput(good, shared) == pytest.approx([0.3, 0.3 + alone])


@pytest.mark.parametrize(
    "share",
    [FAIR.tolist(), FAIR.astype(np.float32), np.asfortranarray(FAIR), np.zeros((2, 2), int)],
)
def test_shares_of_any_numbers_are_taken(share: Any, snapshot: Snapshot) -> None:
    made = of([[7], [3]], share)
    assert fairlead.check_allocation(made, snapshot) is made
    rate = (np.asarray(share)[::-1] * snapshot.solo_rate).sum(axis=1)
    assert fairlead.effective_throughput(made, snapshot) == pytest.approx(rate)
