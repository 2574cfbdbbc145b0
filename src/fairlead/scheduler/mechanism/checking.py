"""Checks of policies and planners from outside, and of their answers before these come into force.

Fairlead's own policies check themselves (``check_allocation``) and are tested, so
their answers are not checked again. An error names the policy and the time.
"""

from dataclasses import fields, replace

import numpy as np

from fairlead.errors import AllocationError, ConfigError
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation, typed_allocation
from fairlead.model.argument_checks import brief_repr
from fairlead.model.plan import BasePolicy, Policy, Stateful, optional_traits
from fairlead.model.snapshot import Snapshot
from fairlead.model.third_party import errors_prefixed, is_built_in, third_party_call

TRAITS = {"name": str, "heterogeneity_aware": bool, "space_sharing": bool, "work_conserving": bool}

_METHODS = ("start", "due", "solve", "settle", "plan")  # of ``Planner``
_VIEWS = {"rate": "solo_rate", "scale": "job_scale"}  # of fields of ``Snapshot``
OPTIONAL = (
    "strict",
    "global_queue",
    "solve_every_s",
    "weighs_prices",
    "elastic",
)  # of ``BasePolicy``


def check_traits(policy: object) -> None:
    """Raise ConfigError unless an object has all that a policy has."""
    label = f"policy {type(policy).__name__}"
    lacking = [name for name in (*TRAITS, "allocate") if not hasattr(policy, name)]
    if lacking:
        raise ConfigError(
            f"{label}: has no attribute {lacking[0]!r}; a policy has {', '.join(TRAITS)} "
            "and allocate(snapshot)"
        )
    for name, expected in TRAITS.items():
        if not isinstance(getattr(policy, name), expected):
            raise ConfigError(
                f"{label}: {name} must be a {expected.__name__}, got {getattr(policy, name)!r}"
            )
    optional = [name for name in OPTIONAL if hasattr(policy, name)]
    if optional and not isinstance(policy, BasePolicy):
        raise ConfigError(
            f"{label}: has {optional[0]!r}, for which it must inherit from fairlead.BasePolicy"
        )
    every_s: object = optional_traits(policy).solve_every_s
    if every_s is not None and not _is_duration(every_s):
        raise ConfigError(f"{label}: solve_every_s must be seconds > 0 or None, got {every_s!r}")
    _check_memory(label, policy)
    if not callable(policy.allocate):  # type: ignore[attr-defined]
        raise ConfigError(f"{label}: allocate must be a method, got {policy.allocate!r}")  # type: ignore[attr-defined]


def is_meant_as_planner(policy: object) -> bool:
    """Return whether an object has methods of a planner and none of a policy."""
    return not hasattr(policy, "allocate") and any(hasattr(policy, name) for name in _METHODS)


def check_planner(planner: object) -> None:
    """Raise ConfigError unless an object has all that a planner has."""
    label = f"planner {type(planner).__name__}"
    for name in _METHODS:
        if not callable(getattr(planner, name, None)):
            raise ConfigError(
                f"{label}: has no method {name!r}; a planner has name, space_sharing and the methods "
                f"{', '.join(_METHODS)}, of which fairlead.RoundsOnlyPlanner has all but plan"
            )
    for name in ("name", "space_sharing"):
        value, expected = getattr(planner, name, None), TRAITS[name]
        if not isinstance(value, expected):
            raise ConfigError(
                f"{label}: {name} must be a {expected.__name__}, got {brief_repr(value)}"
            )


def _check_memory(label: str, policy: object) -> None:
    methods = ("get_state", "set_state")  # of ``Stateful``
    there = [name for name in methods if hasattr(policy, name)]
    if len(there) == 1:
        (other,) = set(methods) - set(there)
        raise ConfigError(
            f"{label}: has {there[0]} but no {other}: a policy that remembers has both"
        )
    for name in there:
        if not callable(getattr(policy, name)):
            raise ConfigError(
                f"{label}: {name} must be a method, got {brief_repr(getattr(policy, name))}"
            )


def _is_duration(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < float("inf")  # type: ignore[operator]


def ask(policy: Policy, snapshot: Snapshot) -> Allocation:
    """The policy's shares for a snapshot. Raises AllocationError with policy, time and job where they break
    a constraint, or where the policy has written to the snapshot; SolveError where it fails."""
    where = f"policy {policy.name!r} at {snapshot.now_s:.0f} s"
    if is_built_in(policy):
        with errors_prefixed(where):
            return policy.allocate(snapshot)
    seen = snapshot.copied()  # a policy that writes to it must not change the scheduler's
    with third_party_call(where):
        if isinstance(policy, Stateful):
            policy.set_state(_state(snapshot.previous))
        found: object = policy.allocate(seen)
        _check_unwritten(snapshot, seen)
        return _with_state(policy, checked_allocation(found, snapshot))


def checked_allocation(found: object, snapshot: Snapshot) -> Allocation:
    """An answer from outside, with 64-bit arrays. Raises AllocationError where it is none, or breaks a
    constraint."""
    if not isinstance(found, Allocation):
        raise AllocationError(f"expected an Allocation, got {brief_repr(found)}")
    check_report(found.report)
    return typed_allocation(check_allocation(found, snapshot), snapshot)


def check_report(report: object) -> None:
    """Raise AllocationError unless an answer's report is a SolveReport."""
    if not isinstance(report, SolveReport):
        raise AllocationError(f"report must be a SolveReport, got {brief_repr(report)}")


def _state(previous: Allocation | None) -> bytes:
    """Return the state that the policy left with the allocation in force, empty where there is none."""
    basis = () if previous is None else previous.report.basis
    return basis[-1] if basis else b""


def _with_state(policy: Policy, made: Allocation) -> Allocation:
    if not isinstance(policy, Stateful):
        return made
    state: object = policy.get_state()
    if not isinstance(state, bytes):
        raise AllocationError(f"get_state() must give bytes, got {brief_repr(state)}")
    return replace(made, report=replace(made.report, basis=(*made.report.basis, state)))


def _check_unwritten(snapshot: Snapshot, seen: Snapshot) -> None:
    for field in fields(snapshot):
        ours, theirs = getattr(snapshot, field.name), getattr(seen, field.name)
        is_array = isinstance(ours, np.ndarray)
        if is_array and not np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"):
            view = _VIEWS.get(field.name)
            also = f" (or {view}, which is part of it)" if view else ""
            raise AllocationError(f"has written to snapshot.{field.name}{also}: copy it first")
