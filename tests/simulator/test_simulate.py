"""``simulate`` as a library: what it takes, and what it refuses in one sentence."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.small import TABLE, job, run

from fairlead import Arrival, InputError, simulate
from fairlead.model.plan import Change, PlannerAnswer, RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.las import Las


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ([], "there are no jobs"),
        (
            [job(0, 0.0, -5.0)],
            r"arrival 0 \(job 0\): total_steps must be a number from .*, got -5.0",
        ),
        ([job(0, 0.0, math.nan)], "total_steps must be a number from 1e-12 to .*, got nan"),
        ([job(0, 0.0, 5.0, devices=0)], "scale_factor must be at least 1, got 0"),
        ([job(0, 0.0, 5.0, weight=0.0)], "weight must be from 1e-06 to .*, got 0.0"),
        ([job(0, 0.0, 5.0, slo_s=-1.0)], "slo_s must be above 0 and at most .*, got -1.0"),
        (
            [job(0, 0.0, 5.0), job(0, 1.0, 5.0)],
            r"arrival 1 \(job 0\): id: an arrival before it has it too",
        ),
        ([job(0, 5.0, 5.0), job(1, 2.0, 5.0)], "time must be a number from 5.0, .* got 2.0"),
        ([job(0, math.nan, 5.0)], "time must be a number from 0.0"),
        ([job(0, math.inf, 5.0)], "time must be a number from 0.0"),
    ],
)
def test_jobs_that_make_no_sense_are_named(arrivals: list[Arrival], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(arrivals)


def test_a_stream_is_checked_as_it_is_read() -> None:
    def stream() -> Iterator[Arrival]:
        yield job(0, 0.0, 5.0)
        yield job(1, 1.0, -5.0)

    with pytest.raises(InputError, match=r"total_steps must be .*, got -5\.0"):
        run(stream())  # type: ignore[arg-type]


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(InputError, match=r"'rounds' is not an option; did you mean 'round_s'"):
        run([job(0, 0.0, 5.0)], rounds=3)


def test_a_policy_may_be_an_object() -> None:
    jobs = [job(number, 0.0, 5_000.0) for number in range(3)]
    by_name, by_object = run(jobs), run(jobs, policy=Las())
    assert by_name.metrics["avg_jct_s"] == by_object.metrics["avg_jct_s"]


class LastInFirstOut:
    """A planner in ten lines: the newest jobs run, on the fast type."""

    name = "lifo"
    space_sharing = False

    def start(self) -> int:
        return 0

    def due(self, now_s: float, changed: Change, stalled: bool, state: int) -> bool:
        return False

    def solve(self, snapshot: Snapshot, state: int) -> Any:
        raise NotImplementedError

    def settle(self, snapshot: Snapshot, answer: PlannerAnswer, state: int) -> tuple[None, int]:
        return None, state

    def plan(self, snapshot: Snapshot, state: int) -> tuple[RoundPlan, int]:
        newest = np.arange(len(snapshot.jobs))[::-1][: int(snapshot.capacity[0])]
        return RoundPlan(newest.copy(), np.zeros(len(newest), np.int64)), state + 1


def test_a_planner_may_be_an_object() -> None:
    jobs = [job(number, float(number), 7_200.0) for number in range(3)]
    result = run(jobs, policy=LastInFirstOut())
    assert result.jobs.sort("end_s")["job"].to_list() == [2, 1, 0]


def test_what_has_no_price_is_said() -> None:
    result = simulate([job(0, 0.0, 100.0)], "fast=1", "las", throughputs=TABLE)
    assert result.skipped == ("no price for fast: counted as 0 in the cost",)
