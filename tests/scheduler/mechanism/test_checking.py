"""Policies from outside: what they may not answer, and state that lasts."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small import TABLE, jct, job, run

import fairlead
from fairlead.errors import AllocationError, ConfigError, SolveError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.cluster import Cluster
from fairlead.model.plan import BasePolicy, optional_traits
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.journal import replay
from fairlead.scheduler.mechanism.checking import check_traits

JOBS = [job(3, 0.0, 900.0), job(7, 0.0, 900.0, devices=2)]


def equal(snapshot: Snapshot) -> Allocation:
    """A third of the time for everybody."""
    share = np.full((len(snapshot.jobs), len(snapshot.slots)), 0.3)
    return Allocation(snapshot.jobs[:, None].copy(), share, SolveReport("closed-form"))


@dataclass
class Mine:
    """A policy that answers as it is told."""

    answer: Callable[[Snapshot], Any]
    name: str = "mine"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        return self.answer(snapshot)  # type: ignore[no-any-return]


def changed(**fields: Callable[[Any], Any]) -> Callable[[Snapshot], Allocation]:
    """The equal shares, with fields that are made otherwise."""

    def answer(snapshot: Snapshot) -> Allocation:
        made = equal(snapshot)
        return replace(made, **{name: make(getattr(made, name)) for name, make in fields.items()})

    return answer


def put(value: float, row: int = 1) -> Callable[[Any], Any]:
    def make(array: Any) -> Any:
        array[row, 0] = value
        return array

    return make


def written_solo_rate(snapshot: Snapshot) -> Allocation:
    snapshot.solo_rate[0] = 5.0
    return equal(snapshot)


def written(snapshot: Snapshot) -> Allocation:
    snapshot.weight[0] = 5.0
    return equal(snapshot)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: None, "expected an Allocation, got None"),
        (lambda s: equal(s).share, "expected an Allocation, got array"),
        (changed(share=put(np.nan)), "job 7: the share on fast must be from 0 to 1, got nan"),
        (changed(share=put(-0.5, 0)), "job 3: the share on fast must be from 0 to 1, got -0.5"),
        (changed(share=put(1.5)), "job 7: the share on fast must be from 0 to 1, got 1.5"),
        (changed(share=lambda a: a + 0.7), "fast: 3.000 devices shared out of 2"),
        (changed(share=lambda a: a[:1]), r"share must have shape (2, 1), a column per slot type"),
        (changed(share=lambda a: a[:, :0]), r"share must have shape (2, 1)"),
        (changed(share=lambda a: a.astype(str)), "share must be numbers, got <U"),
        (
            changed(job_groups=lambda a: a[:, 0]),
            "job_groups must have shape (groups, 1) or (groups, 2)",
        ),
        (changed(job_groups=put(99)), "job 99 is not in the snapshot"),
        (changed(job_groups=put(-1)), "job -1 is not in the snapshot"),
        (changed(job_groups=put(3)), "job 3 has two rows of shares"),
        (changed(report=lambda _: None), "report must be a SolveReport, got None"),
        (changed(share=lambda _: None), "share must be numbers, got object"),
        (written, "has written to snapshot.weight: copy it first"),
        (
            written_solo_rate,
            "has written to snapshot.rate (or solo_rate, which is part of it): copy it first",
        ),
    ],
)
def test_a_wrong_answer_is_one_sentence(answer: Callable[[Snapshot], Any], message: str) -> None:
    with pytest.raises(AllocationError) as problem:
        run(JOBS, fast=2, policy=Mine(answer))
    assert str(problem.value).startswith("policy 'mine' at 0 s: ")
    assert message in str(problem.value)


def too_much(snapshot: Snapshot) -> Allocation:
    """All devices twice, found by the policy itself."""
    made = equal(snapshot)
    return fairlead.check_allocation(replace(made, share=made.share + 0.7), snapshot)


def test_what_a_policy_itself_finds_wrong_names_it_and_the_time_too() -> None:
    with pytest.raises(AllocationError) as problem:
        run(JOBS, fast=2, policy=Mine(too_much))
    assert str(problem.value) == "policy 'mine' at 0 s: fast: 3.000 devices shared out of 2"


def test_a_call_with_another_type_names_policy_and_time() -> None:
    def lists(snapshot: Snapshot) -> Any:
        made = equal(snapshot)
        return fairlead.allocation(snapshot, made.share.tolist(), made.report)

    message = r"^policy 'mine' at 0 s: allocation\(\): share: expected an array of numbers"
    with pytest.raises(ConfigError, match=message):
        run(JOBS, fast=2, policy=Mine(lists))


def test_a_good_answer_is_run() -> None:
    assert run(JOBS, fast=2, policy=Mine(equal)).metrics["n_completed"] == 2


def test_what_a_policy_raises_is_told_with_its_place() -> None:
    def broken(snapshot: Snapshot) -> Any:
        return snapshot.time_s  # type: ignore[attr-defined]

    message = r"policy 'mine' at 0 s: AttributeError: .*'time_s'.* \(.*test_checking\.py:\d+\)"
    with pytest.raises(SolveError, match=message) as problem:
        run(JOBS, fast=2, policy=Mine(broken))
    assert isinstance(problem.value.__cause__, AttributeError)


def test_what_a_policy_raises_is_one_line_and_points_at_a_file() -> None:
    def broken(snapshot: Snapshot) -> Any:
        raise ValueError("boom\n  on two lines")

    def assigning(snapshot: Snapshot) -> Any:
        snapshot.now_s = 3.0  # type: ignore[misc]

    with pytest.raises(SolveError, match=r"ValueError: boom on two lines \(.*\.py:\d+\)$"):
        run(JOBS, fast=2, policy=Mine(broken))
    with pytest.raises(SolveError, match=r"FrozenInstanceError: .* \(.*test_checking\.py:\d+\)$"):
        run(JOBS, fast=2, policy=Mine(assigning))


def test_the_error_names_the_time() -> None:
    def later(snapshot: Snapshot) -> Any:
        return equal(snapshot) if snapshot.now_s == 0 else None

    with pytest.raises(AllocationError, match="policy 'mine' at 50 s: expected an Allocation"):
        run([*JOBS, job(9, 100.0, 50.0)], fast=2, policy=Mine(later))


class Nameless:
    """It has nothing of a policy."""


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (None, "policy: expected a name or a policy .*, got None"),
        (
            Nameless(),
            "policy Nameless: has no attribute 'name'; a policy has name, heterogeneity_aware, space_sharing",
        ),
        (Mine, r"policy: expected a name or a policy \(not its class\), got <class"),
        (Mine(equal, name=3), "policy Mine: name must be a str, got 3"),  # type: ignore[arg-type]
        (Mine(equal, space_sharing=None), "policy Mine: space_sharing must be a bool, got None"),  # type: ignore[arg-type]
    ],
)
def test_an_object_that_is_no_policy(policy: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(JOBS, policy=policy)


@pytest.mark.parametrize(("has", "lacks"), [("get_state", "set_state"), ("set_state", "get_state")])
def test_a_policy_that_remembers_has_both_methods(has: str, lacks: str) -> None:
    policy = Mine(equal)
    setattr(policy, has, lambda *_: b"")
    with pytest.raises(ConfigError, match=f"policy Mine: has {has} but no {lacks}: a policy that"):
        run(JOBS, policy=policy)


@dataclass
class Counting(Mine):
    """It gives the job whose turn it is all the time, and remembers whose turn it was."""

    answer: Callable[[Snapshot], Any] = equal
    turn: int = 0
    seen: list[int] = field(default_factory=list)

    def set_state(self, state: bytes) -> None:
        self.turn = int.from_bytes(state, "big")

    def get_state(self) -> bytes:
        return self.turn.to_bytes(2, "big")

    def allocate(self, snapshot: Snapshot) -> Allocation:
        self.seen.append(self.turn)
        made = equal(snapshot)
        made.share[:] = 0.0
        made.share[self.turn % len(made.share)] = 1.0
        self.turn += 1
        return made


def test_state_lasts_from_solve_to_solve_and_through_a_resumed_run(tmp_path: Path) -> None:
    """The second process knows nothing but the journal."""
    arrivals = [job(n, 400.0 * n, 4000.0) for n in range(6)]
    options: dict[str, Any] = {"throughputs": TABLE}
    cluster = Cluster.of({"fast": 2}, 1)
    whole, first, second = Counting(), Counting(), Counting()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    expected = fairlead.simulate(arrivals, cluster, whole, out=tmp_path / "a", **options)
    assert whole.seen == list(range(len(whole.seen)))
    assert len(whole.seen) > 5

    polls = iter(range(10_000))
    broken = fairlead.simulate(
        arrivals, cluster, first, out=tmp_path / "b", stop=lambda: next(polls) > 12, **options
    )
    assert not broken.complete
    second.turn = 500  # of another life
    resumed = fairlead.simulate(
        arrivals, cluster, second, out=tmp_path / "b", resume=True, **options
    )
    assert 0 < len(first.seen) < len(whole.seen)
    assert first.seen + second.seen == whole.seen
    assert resumed.metrics["journal_sha256"] == expected.metrics["journal_sha256"]
    assert replay(tmp_path / "b" / "journal")[1] == 0


@pytest.mark.parametrize("method", ["get_state", "set_state"])
def test_what_is_no_method_of_a_policy_that_remembers_is_said(method: str) -> None:
    policy = Counting(equal)
    setattr(policy, method, None)
    with pytest.raises(ConfigError, match=f"policy Counting: {method} must be a method, got None"):
        run(JOBS, policy=policy)


def test_a_policy_that_calls_sys_exit_ends_its_run_with_a_sentence() -> None:
    def leave(snapshot: Snapshot) -> Allocation:
        sys.exit("give up")

    with pytest.raises(
        SolveError, match=r"ended the process .*'give up' \(.*test_checking.py:\d+\)"
    ):
        run(JOBS, policy=Mine(leave))


@pytest.mark.parametrize("method", ["get_state", "set_state"])
def test_state_that_cannot_be_given_or_taken_names_the_policy(method: str) -> None:
    def broken(*_: object) -> bytes:
        raise KeyError("nothing")

    policy = Counting()
    setattr(policy, method, broken)
    message = r"policy 'mine' at 0 s: KeyError: 'nothing' \(.*test_checking\.py:\d+\)"
    with pytest.raises(SolveError, match=message):
        run(JOBS, fast=2, policy=policy)


class _Strict:
    name, heterogeneity_aware, space_sharing, work_conserving = "own", True, False, True
    strict = True

    def allocate(self, snapshot: Snapshot) -> Allocation:
        raise NotImplementedError(str(snapshot.now_s))


class _Declared(_Strict, BasePolicy):
    strict = True


def test_an_optional_trait_is_declared_by_the_base_class() -> None:
    with pytest.raises(
        ConfigError, match=r"has 'strict', for which it must inherit from fairlead\.B"
    ):
        check_traits(_Strict())
    check_traits(_Declared())
    assert optional_traits(_Declared()).strict
    assert not optional_traits(object()).strict


@dataclass
class LongestWaiting(BasePolicy):
    """The whole cluster for the job that has waited longest for its turn."""

    solve_every_s: float | None = None
    name: str = "longest_waiting"
    heterogeneity_aware: bool = True
    space_sharing: bool = False
    work_conserving: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        share = np.zeros_like(snapshot.solo_rate)
        share[(snapshot.age_s - snapshot.ran_s).argmax(), 0] = 1.0
        return fairlead.allocation(snapshot, share, SolveReport("closed-form"))


def test_a_policy_that_looks_at_age_is_asked_again_after_its_interval(tmp_path: Path) -> None:
    two = [job(3, 0.0, 36000.0), job(7, 0.0, 36000.0)]  # ten rounds each
    on_change = run(two, fast=1, policy=LongestWaiting())
    every = run(two, fast=1, policy=LongestWaiting(solve_every_s=100.0), out=tmp_path)
    assert jct(on_change) == {3: 3600.0, 7: 7200.0}
    assert jct(every) == {3: 6840.0, 7: 7200.0}, "they take turns"
    assert replay(tmp_path / "journal")[1] == 0, "the trait is in the journal"


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan"), True, "60"])
def test_an_interval_of_solves_is_a_duration(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="solve_every_s must be seconds > 0 or None, got"):
        check_traits(LongestWaiting(solve_every_s=wrong))
