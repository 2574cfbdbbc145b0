"""What a policy from outside answers is checked before it comes into force: one sentence says what is wrong.

Fairlead's own policies check themselves (``check_allocation``) and are tested; they are asked as they are.
Whoever finds shares that break a constraint, the error names policy and time.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

import numpy as np

from fairlead.errors import AllocationError, ConfigError, FairleadError, SolveError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, type_name, typed_allocation
from fairlead.model.arrays import Ints
from fairlead.model.plan import BasePolicy, Planner, Policy, RoundPlan, Stateful, optional_traits
from fairlead.model.snapshot import Snapshot

TRAITS = {"name": str, "heterogeneity_aware": bool, "space_sharing": bool, "work_conserving": bool}

OPTIONAL = ("strict", "global_queue", "solve_every_s")  # of ``BasePolicy``


def check_traits(policy: object) -> None:
    """ConfigError unless an object has all that a policy has."""
    label = f"policy {type(policy).__name__}"
    lacking = [name for name in (*TRAITS, "allocate") if not hasattr(policy, name)]
    if lacking:
        raise ConfigError(
            f"{label}: has no attribute {lacking[0]!r}; a policy has {', '.join(TRAITS)} "
            "and allocate(snapshot)"
        )
    for name, kind in TRAITS.items():
        if not isinstance(getattr(policy, name), kind):
            raise ConfigError(
                f"{label}: {name} must be a {kind.__name__}, got {getattr(policy, name)!r}"
            )
    optional = [name for name in OPTIONAL if hasattr(policy, name)]
    if optional and not isinstance(policy, BasePolicy):
        raise ConfigError(
            f"{label}: has {optional[0]!r}, for which it must inherit from fairlead.BasePolicy"
        )
    every_s: object = optional_traits(policy).solve_every_s
    if every_s is not None and not _is_duration(every_s):
        raise ConfigError(f"{label}: solve_every_s must be seconds > 0 or None, got {every_s!r}")
    if not callable(policy.allocate):  # type: ignore[attr-defined]
        raise ConfigError(f"{label}: allocate must be a method, got {policy.allocate!r}")  # type: ignore[attr-defined]


def _is_duration(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")  # type: ignore[operator]


def ask(policy: Policy, snapshot: Snapshot) -> Allocation:
    """The policy's shares for a snapshot. Raises AllocationError with policy, time and job where they break
    a constraint, or where the policy has written to the snapshot; SolveError where it fails."""
    where = f"policy {policy.name!r} at {snapshot.now_s:.0f} s"
    if _is_built_in(policy):
        with _named(where):
            return policy.allocate(snapshot)
    shown = snapshot.copied()  # theirs to read; ours stays what it is
    with _foreign(where):
        if isinstance(policy, Stateful):
            policy.set_state(_state(snapshot.previous))
        found: object = policy.allocate(shown)
    _check_unwritten(where, snapshot, shown)
    if not isinstance(found, Allocation):
        raise AllocationError(f"{where}: expected an Allocation, got {_brief(found)}")
    if not isinstance(found.report, SolveReport):
        raise AllocationError(f"{where}: report must be a SolveReport, got {_brief(found.report)}")
    with _named(where):
        made = typed_allocation(check_allocation(found, snapshot), snapshot)
    return _with_state(where, policy, made)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """An AllocationError raised within names policy and time, once."""
    try:
        yield
    except AllocationError as problem:
        sentence = str(problem)
        if sentence.startswith(where):
            raise
        raise AllocationError(f"{where}: {sentence}") from None


@contextmanager
def _foreign(where: str) -> Iterator[None]:
    """Raises SolveError where the policy raises something that is not Fairlead's."""
    try:
        with _named(where):
            yield
    except ConfigError as problem:  # of a call of the library's, with an argument of another type
        raise ConfigError(f"{where}: {problem}") from None
    except FairleadError:
        raise
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        raise SolveError(
            f"{where}: {type(problem).__name__}: {problem} ({last.filename}:{last.lineno})"
        ) from problem


def check_plan(planner: Planner, plan: RoundPlan, snapshot: Snapshot) -> RoundPlan:
    """The planner's round, as 64-bit arrays. Raises AllocationError with planner and time where it cannot be
    run: rows that are not there, a job twice, more devices of a type than there are."""
    if _is_built_in(planner):
        return plan
    with _named(f"planner {planner.name!r} at {snapshot.now_s:.0f} s"):
        if not isinstance(plan, RoundPlan):
            raise AllocationError(f"expected a RoundPlan, got {_brief(plan)}")
        group = _rows("job_group", plan.job_group, len(snapshot.group_members))
        slot = _rows("slot", plan.slot, len(snapshot.slots))
        if len(group) != len(slot):
            raise AllocationError(
                f"job_group and slot must have one length, got {len(group)} and {len(slot)}"
            )
        _check_runs(group, slot, snapshot)
    return replace(plan, job_group=group, slot=slot)


def _rows(name: str, given: object, count: int) -> Ints:
    array = np.asarray(given)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise AllocationError(f"{name} must be whole numbers in one dimension, got {_brief(given)}")
    wrong = array[(array < 0) | (array >= count)]
    if len(wrong):
        raise AllocationError(f"{name}: {wrong[0]} is not one of {count} rows of the snapshot")
    return np.require(array.astype(np.int64), requirements=["C", "W"])


def _check_runs(group: Ints, slot: Ints, snapshot: Snapshot) -> None:
    members = snapshot.group_members[group]
    jobs, times = np.unique(members[members >= 0], return_counts=True)
    if (times > 1).any():
        raise AllocationError(f"job {snapshot.jobs[jobs[times > 1][0]]} is to run twice")
    column, types = snapshot.accelerator_of_slot[slot], len(snapshot.capacity)
    used = np.bincount(column, snapshot.scale[group], types)
    over = np.flatnonzero(used > snapshot.capacity)
    if len(over):
        t = int(over[0])
        raise AllocationError(
            f"{type_name(snapshot, t)}: {used[t]:.0f} devices used of {snapshot.capacity[t]:.0f}"
        )
    there = (snapshot.rate[group, slot] > 0) | (members < 0)
    if not there.all():
        k = int(np.flatnonzero(~there.all(axis=1))[0])
        raise AllocationError(
            f"job {snapshot.jobs[members[k, 0]]} cannot run on {snapshot.slots[slot[k]].accelerator}"
        )


def _is_built_in(policy: object) -> bool:
    return type(policy).__module__.startswith("fairlead.")


def _state(previous: Allocation | None) -> bytes:
    """What the policy left with the allocation in force."""
    basis = () if previous is None else previous.report.basis
    return basis[-1] if basis else b""


def _with_state(where: str, policy: Policy, made: Allocation) -> Allocation:
    if not isinstance(policy, Stateful):
        return made
    with _foreign(where):
        state: object = policy.get_state()
    if not isinstance(state, bytes):
        raise AllocationError(f"{where}: get_state() must give bytes, got {_brief(state)}")
    return replace(made, report=replace(made.report, basis=(*made.report.basis, state)))


def _check_unwritten(where: str, snapshot: Snapshot, shown: Snapshot) -> None:
    for field in fields(snapshot):
        ours, theirs = getattr(snapshot, field.name), getattr(shown, field.name)
        is_array = isinstance(ours, np.ndarray)
        if is_array and not np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"):
            raise AllocationError(f"{where}: has written to snapshot.{field.name}: copy it first")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
