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
    name: str = "mine"

    def plan(self, snapshot: Snapshot, state: None) -> tuple[Any, None]:
        if len(snapshot.jobs) < 2:
            row = np.zeros(len(snapshot.jobs), np.int64)
            return RoundPlan(row, row), None
        return (None if self.group is None else RoundPlan(self.group, self.slot)), None


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
