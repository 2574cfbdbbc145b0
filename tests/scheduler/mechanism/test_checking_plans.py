"""Rounds of planners from outside: what they may not be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.scheduler.mechanism.stateless_planner import StatelessPlanner
from tests.small import job, run

from fairlead import AllocationError, RoundPlan, Snapshot

JOBS = [job(3, 0.0, 900.0), job(7, 0.0, 900.0, devices=2)]


@dataclass
class Mine(StatelessPlanner):
    """A planner whose rounds are always the same."""

    group: Any
    slot: Any
    nodes: Any = None
    name: str = "mine"

    def plan(self, snapshot: Snapshot, state: None) -> tuple[Any, None]:
        if len(snapshot.jobs) < 2:
            row = np.zeros(len(snapshot.jobs), np.int64)
            return RoundPlan(row, row), None
        if self.group is None:
            return None, None
        return RoundPlan(self.group, self.slot, nodes=self.nodes), None


@pytest.mark.parametrize(
    ("group", "slot", "message"),
    [
        ([1000], [0], "job_group: 1000 is not one of 2 rows of the snapshot"),
        ([-1], [0], "job_group: -1 is not one of 2 rows"),
        ([0], [77], "slot: 77 is not one of"),
        ([0, 1], [0], "job_group and slot must have one length, got 2 and 1"),
        ([[0]], [0], "job_group must be whole numbers in one dimension"),
        ([0.5], [0], "job_group must be whole numbers in one dimension"),
        ([0, 0], [0, 0], "job 3 is to run twice"),
        ([0, 1], [0, 0], "fast: 3 devices used of 2"),
        (None, None, "expected a RoundPlan, got None"),
    ],
)
def test_a_round_that_cannot_be_run_is_one_sentence(
    group: Sequence[Any] | None, slot: Sequence[Any] | None, message: str
) -> None:
    with pytest.raises(AllocationError) as problem:
        run(JOBS, fast=2, policy=Mine(group, slot))
    assert str(problem.value).startswith("planner 'mine' at 0 s: ")
    assert message in str(problem.value)


def test_a_good_round_may_be_lists() -> None:
    assert run(JOBS, fast=3, policy=Mine([0, 1], [0, 0])).metrics["n_completed"] == 2


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 9], "nodes: 9 is not one of 3 rows of the snapshot"),
        ([0], "nodes must be 2 positions, one for each device, got 1"),
        ([0, 2], "node 'slow-0' is not of the accelerator type that is planned"),
        ([1, 1], "node 'fast-1': more than its 1 devices are used"),
        ([0.5, 1], "nodes must be whole numbers in one dimension"),
    ],
)
def test_nodes_that_cannot_be_used_are_one_sentence(nodes: Sequence[Any], message: str) -> None:
    with pytest.raises(AllocationError) as problem:
        run(JOBS, fast=2, slow=1, policy=Mine([1], [0], nodes))
    assert message in str(problem.value)


def test_devices_are_on_the_nodes_that_are_named() -> None:
    result = run(JOBS, fast=3, policy=Mine([0, 1], [0, 0], [1, 2, 0]))
    used = result.placement_intervals.filter(result.placement_intervals["job"] == 7)
    assert used["devices"][0].to_list() == [0, 2]
