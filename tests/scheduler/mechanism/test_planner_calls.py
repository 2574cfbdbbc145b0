"""Calls of planners from outside: what they may not answer, and what their errors say."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scheduler.mechanism.stateless_planner import StatelessPlanner
from tests.small import job, run

from fairlead import (
    Accounts,
    Allocation,
    AllocationError,
    ConfigError,
    FairleadError,
    RoundPlan,
    RoundsOnlyPlanner,
    Schedule,
    Snapshot,
    SolveError,
    SolveReport,
    check_allocation,
    effective_throughput,
    isolated_rate,
)

JOBS = [job(3, 0.0, 900.0), job(7, 0.0, 900.0)]
NONE = np.zeros(0, np.int64)


class InOrder(StatelessPlanner):
    """All jobs that fit, in order of submission; a test puts another method in place of one of these."""

    name = "mine"

    def __init__(self, **methods: Callable[..., Any]) -> None:
        for name, method in methods.items():
            setattr(self, name, method)

    def plan(self, snapshot: Snapshot, state: None) -> tuple[RoundPlan, None]:
        rows = np.arange(min(len(snapshot.jobs), int(snapshot.capacity.sum())))
        return RoundPlan(rows, np.zeros_like(rows)), state


def always(answer: Any) -> Callable[..., Any]:
    return lambda *_: answer


def share_of(snapshot: Snapshot, share: float) -> Allocation:
    rows = np.full((len(snapshot.jobs), 1), share)
    return Allocation(snapshot.jobs[:, None].copy(), rows, SolveReport("closed-form"))


def solving(**methods: Callable[..., Any]) -> InOrder:
    """It wants a solve before each round."""
    return InOrder(**{"due": always(True), "solve": lambda s, _: share_of(s, 0.5), **methods})


def wrong(*_: Any) -> Any:
    return 1 / 0


def accounts(snapshot: Snapshot, **changed: Any) -> tuple[Accounts, None]:
    old = {
        "received_s": snapshot.received_s,
        "deficit_s": snapshot.deficit_s,
        "allocated_s": snapshot.allocated_s,
    }
    return Accounts(**{**old, **changed}), None


def ran_to_the_end(planner: InOrder) -> bool:
    return bool(run(JOBS, fast=2, policy=planner).metrics["n_completed"] == len(JOBS))


@pytest.mark.parametrize(
    ("planner", "place"),
    [
        (InOrder(start=wrong), ""),
        (InOrder(plan=wrong), " at 0 s"),
        (InOrder(due=wrong), " at 0 s"),
        (solving(solve=wrong), " at 0 s"),
        (solving(settle=wrong), " at 0 s"),
    ],
)
def test_what_a_planner_raises_names_it_the_time_and_the_line(planner: InOrder, place: str) -> None:
    said = rf"^planner 'mine'{place}: ZeroDivisionError: .* \(.*test_planner_calls\.py:\d+\)$"
    with pytest.raises(SolveError, match=said) as problem:
        ran_to_the_end(planner)
    assert isinstance(problem.value.__cause__, ZeroDivisionError)


def test_a_method_that_cannot_be_called_so_is_named_without_a_line_of_ours() -> None:
    said = r"^planner 'mine' at 0 s: TypeError: .*takes 0 positional arguments but 2 were given$"
    with pytest.raises(SolveError, match=said):
        ran_to_the_end(InOrder(plan=lambda: None))


@pytest.mark.parametrize(
    ("planner", "said"),
    [
        (InOrder(plan=always(None)), "plan(): expected the pair (RoundPlan, state), got None"),
        (InOrder(plan=always(RoundPlan(NONE, NONE))), "plan(): expected the pair (RoundPlan, st"),
        (InOrder(plan=always((3, None))), "expected a RoundPlan, got 3"),
        (
            InOrder(plan=always((RoundPlan([[0], [0, 1]], NONE), None))),  # type: ignore[arg-type]
            "job_group must be an array of numbers",
        ),
        (InOrder(due=always("yes")), "due(): expected True or False, got 'yes'"),
        (solving(solve=always(None)), "solve(): expected an Allocation or a Schedule, got None"),
        (solving(solve=lambda s, _: share_of(s, 1.5)), "job 3: the share on fast must be from 0"),
        (solving(solve=lambda s, _: share_of(s, np.nan)), "share on fast must be from 0 to 1"),
        (
            solving(solve=always(Schedule(np.array([[3]]), np.array([[9]]), SolveReport("x")))),
            "slot: 9 is no slot type of the snapshot, nor -1",
        ),
        (
            solving(solve=always(Schedule(np.array([[3]]), NONE[None], None))),  # type: ignore[arg-type]
            "report must be a SolveReport, got None",
        ),
        (solving(settle=always(None)), "settle(): expected the pair (Accounts or None, state), "),
        (solving(settle=always((3, None))), "settle(): expected Accounts or None, got 3"),
        (
            solving(settle=lambda s, *_: accounts(s, allocated_s=np.array([np.nan]))),
            "allocated_s must be finite seconds of shape (1,), got array([nan])",
        ),
        (
            solving(settle=lambda s, *_: accounts(s, deficit_s=np.zeros(5))),
            "deficit_s must be finite seconds of shape (2, 1), got array(",
        ),
    ],
)
def test_a_wrong_answer_is_one_sentence(planner: InOrder, said: str) -> None:
    with pytest.raises(AllocationError) as problem:
        ran_to_the_end(planner)
    assert str(problem.value).startswith("planner 'mine' at 0 s: ")
    assert said in str(problem.value)


@pytest.mark.parametrize("wake_s", ["x", None, float("nan"), -5.0, 0.0, True])
def test_a_planner_that_runs_nobody_names_a_later_time_to_be_asked_again(wake_s: Any) -> None:
    said = "wake_s must be seconds, later than 0.0 where nothing runs, got "
    with pytest.raises(AllocationError, match=f"^planner 'mine' at 0 s: {said}"):
        ran_to_the_end(InOrder(plan=always((RoundPlan(NONE, NONE, wake_s), None))))


@pytest.mark.parametrize("array", ["steps_left", "received_s", "solo_rate", "capacity"])
@pytest.mark.parametrize("method", ["plan", "solve", "settle"])
def test_a_planner_cannot_write_to_what_it_sees(method: str, array: str) -> None:
    def write(snapshot: Snapshot, *_: Any) -> None:
        getattr(snapshot, array)[:] = 0.0

    said = r"planner 'mine' at 0 s: ValueError: .* read-only \(.*test_planner_calls\.py:\d+\)"
    with pytest.raises(SolveError, match=said):
        ran_to_the_end(solving(**{method: write}))


def test_a_planner_may_solve_settle_and_ask_the_library() -> None:
    seen: list[float] = []

    def settle(snapshot: Snapshot, answer: Allocation, state: None) -> tuple[Accounts, None]:
        check_allocation(answer, snapshot)
        seen.append(effective_throughput(answer, snapshot).sum())
        seen.append(isolated_rate(snapshot, weighted=False).sum())
        return accounts(snapshot)

    assert ran_to_the_end(solving(settle=settle))
    assert seen[:2] == [10.0, 20.0]


def test_what_the_library_finds_wrong_within_a_planner_names_it_too() -> None:
    def plan(snapshot: Snapshot, state: None) -> None:
        check_allocation(share_of(snapshot, 1.5), snapshot)

    with pytest.raises(FairleadError, match=r"^planner 'mine' at 0 s: job 3: the share on fast"):
        ran_to_the_end(InOrder(plan=plan))


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (
            {"plan": None},
            "planner Partial: has no method 'plan'; a planner has name, space_sharing",
        ),
        ({"solve": 3}, "planner Partial: has no method 'solve'; a planner has name"),
        ({"name": None}, "planner Partial: name must be a str, got None"),
        ({"space_sharing": "no"}, "planner Partial: space_sharing must be a bool, got 'no'"),
    ],
)
def test_an_object_that_is_no_planner(methods: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ran_to_the_end(type("Partial", (InOrder,), methods)())


def test_a_planner_without_plan_is_not_taken_for_a_policy() -> None:
    with pytest.raises(ConfigError, match="planner RoundsOnlyPlanner: has no method 'plan'"):
        run(JOBS, policy=RoundsOnlyPlanner())


def test_the_example_is_a_name_and_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "plan_rounds.py"))
    example["main"]()
    first, second = (float(line.split()[3]) for line in capsys.readouterr().out.splitlines())
    assert second < first
