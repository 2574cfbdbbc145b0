"""Calls of a planner. One from outside sees read-only arrays, what it answers is checked before it counts,
and its errors name it and the time. Fairlead's own are tested, and called directly."""

from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.errors import AllocationError
from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import type_name
from fairlead.model.argument_checks import brief_repr, is_number
from fairlead.model.array_checks import as_numbers, as_whole_numbers
from fairlead.model.arrays import Floats, Ints
from fairlead.model.plan import (
    Accounts,
    Change,
    Planner,
    PlannerAnswer,
    PlannerState,
    RoundPlan,
    Schedule,
)
from fairlead.model.snapshot import Snapshot
from fairlead.model.third_party import is_built_in, read_only, third_party_call
from fairlead.policies.gandiva.planner import Gandiva
from fairlead.policies.rounds_only import RoundsOnlyPlanner
from fairlead.scheduler.mechanism.checking import check_report, checked_allocation


def start(planner: Planner) -> PlannerState:
    """The state before the first call. Raises SolveError where the planner fails."""
    if is_built_in(planner):
        return planner.start()
    with third_party_call(f"planner {planner.name!r}"):
        return planner.start()


def solves_changes(planner: Planner) -> bool:
    """Return whether a planner asks for a solve once jobs or devices have changed: not where it plans rounds
    alone, and not Gandiva's, which asks when its pairs have."""
    if isinstance(planner, RoundsOnlyPlanner):
        return type(planner).due is not RoundsOnlyPlanner.due
    return not isinstance(planner, Gandiva)


def due(
    planner: Planner, now_s: float, changed: Change, stalled: bool, state: PlannerState
) -> bool:
    """Return whether a solve is wanted before the next round. Raises SolveError where the planner fails,
    AllocationError where it says neither True nor False."""
    if is_built_in(planner):
        return planner.due(now_s, changed, stalled, state)
    with third_party_call(_where(planner, now_s)):
        found: object = planner.due(now_s, changed, stalled, state)
        if not isinstance(found, bool | np.bool_):
            raise AllocationError(f"due(): expected True or False, got {brief_repr(found)}")
    return bool(found)


def solve(planner: Planner, snapshot: Snapshot, state: PlannerState) -> PlannerAnswer:
    """The planner's answer. Raises SolveError where the planner fails, AllocationError where the answer is
    none or breaks a constraint."""
    if is_built_in(planner):
        return planner.solve(snapshot, state)
    with third_party_call(_where(planner, snapshot.now_s)):
        found: object = planner.solve(read_only(snapshot), state)
        if isinstance(found, Schedule):
            return _checked_schedule(found, snapshot)
        if isinstance(found, Allocation):
            return checked_allocation(found, snapshot)
        raise AllocationError(
            f"solve(): expected an Allocation or a Schedule, got {brief_repr(found)}"
        )


def settle(
    planner: Planner, snapshot: Snapshot, answer: PlannerAnswer, state: PlannerState
) -> tuple[Accounts | None, PlannerState]:
    """The accounts from here on, None = as they are, and the next state. Raises SolveError where the planner
    fails, AllocationError for accounts that do not match the snapshot."""
    if is_built_in(planner):
        return planner.settle(snapshot, answer, state)
    with third_party_call(_where(planner, snapshot.now_s)):
        found: object = planner.settle(read_only(snapshot), read_only(answer), state)
        accounts, state = _pair("settle", "(Accounts or None, state)", found)
        if accounts is not None and not isinstance(accounts, Accounts):
            raise AllocationError(
                f"settle(): expected Accounts or None, got {brief_repr(accounts)}"
            )
        return None if accounts is None else _checked_accounts(accounts, snapshot), state


def plan(
    planner: Planner, snapshot: Snapshot, state: PlannerState
) -> tuple[RoundPlan, PlannerState]:
    """The next round, as 64-bit arrays, and the next state. Raises SolveError where the planner fails,
    AllocationError where the round cannot be run: rows that are not there, a job twice, more devices of a
    type than there are."""
    if is_built_in(planner):
        return planner.plan(snapshot, state)
    with third_party_call(_where(planner, snapshot.now_s)):
        found: object = planner.plan(read_only(snapshot), state)
        made, state = _pair("plan", "(RoundPlan, state)", found)
        if not isinstance(made, RoundPlan):
            raise AllocationError(f"expected a RoundPlan, got {brief_repr(made)}")
        return _checked_plan(made, snapshot), state


def _where(planner: Planner, now_s: float) -> str:
    return f"planner {planner.name!r} at {now_s:.0f} s"


def _pair(method: str, expected: str, found: object) -> tuple[Any, PlannerState]:
    if not isinstance(found, tuple) or len(found) != 2:
        raise AllocationError(f"{method}(): expected the pair {expected}, got {brief_repr(found)}")
    return found


def _checked_plan(made: RoundPlan, snapshot: Snapshot) -> RoundPlan:
    group = _rows("job_group", made.job_group, len(snapshot.group_members))
    slot = _rows("slot", made.slot, len(snapshot.slots))
    if len(group) != len(slot):
        raise AllocationError(
            f"job_group and slot must have one length, got {len(group)} and {len(slot)}"
        )
    scale = _checked_scale(made, group, snapshot)
    _check_runs(group, slot, snapshot, scale)
    wake_s: object = made.wake_s
    # Where something runs, the end of the round is the next thing to happen, whatever this is.
    least_s = -np.inf if len(group) else snapshot.now_s
    if not is_number(wake_s) or not wake_s > least_s:  # type: ignore[operator] # nan is not
        raise AllocationError(
            f"wake_s must be seconds, later than {snapshot.now_s} where nothing runs, "
            f"got {brief_repr(wake_s)}"
        )
    nodes = _checked_nodes(made, group, slot, snapshot, scale)
    return RoundPlan(group, slot, float(made.wake_s), nodes, None if made.scale is None else scale)


def _checked_scale(made: RoundPlan, group: Ints, snapshot: Snapshot) -> Ints:
    """(rows,) devices of each row of the plan."""
    now: Ints = snapshot.scale[group]
    if made.scale is None:
        return now
    scale, elastic = as_whole_numbers("scale", made.scale), snapshot.elastic
    if len(scale) != len(group):
        raise AllocationError(f"scale must have {len(group)} rows, got {len(scale)}")
    for row in np.flatnonzero(scale != now).tolist():
        job = int(snapshot.group_members[group[row], 0])
        may = () if elastic is None else elastic.devices[elastic.job == job].tolist()
        if scale[row] not in may:
            raise AllocationError(
                f"job {snapshot.jobs[job]}: cannot have {scale[row]} devices, only "
                f"{', '.join(map(str, may)) or now[row]}"
            )
    return scale


def _checked_nodes(
    made: RoundPlan, group: Ints, slot: Ints, snapshot: Snapshot, scale: Ints
) -> Ints | None:
    """Return the nodes, sorted within each row; None where none are named."""
    if made.nodes is None:
        return None
    servers = snapshot.servers
    if servers is None:
        raise AllocationError("nodes: the snapshot has no servers to choose among")
    nodes = _rows("nodes", made.nodes, len(servers.names))
    if len(nodes) != scale.sum():
        raise AllocationError(
            f"nodes must be {scale.sum()} positions, one for each device, got {len(nodes)}"
        )
    row = np.repeat(np.arange(len(group)), scale)
    wrong = np.flatnonzero(servers.accelerator[nodes] != snapshot.accelerator_of_slot[slot][row])
    if len(wrong):
        raise AllocationError(
            f"node {servers.names[nodes[wrong[0]]]!r} is not of the accelerator type that is planned"
        )
    over = np.flatnonzero(np.bincount(nodes, minlength=len(servers.names)) > servers.working)
    if len(over):
        raise AllocationError(
            f"node {servers.names[over[0]]!r}: more than its {servers.working[over[0]]} devices are used"
        )
    return np.asarray(nodes[np.lexsort((nodes, row))])


def _rows(name: str, given: object, count: int) -> Ints:
    array = as_whole_numbers(name, given)
    wrong = array[(array < 0) | (array >= count)]
    if len(wrong):
        raise AllocationError(f"{name}: {wrong[0]} is not one of {count} rows of the snapshot")
    return array


def _check_runs(group: Ints, slot: Ints, snapshot: Snapshot, scale: Ints) -> None:
    members = snapshot.group_members[group]
    jobs, times = np.unique(members[members >= 0], return_counts=True)
    if (times > 1).any():
        raise AllocationError(f"job {snapshot.jobs[jobs[times > 1][0]]} is to run twice")
    column, types = snapshot.accelerator_of_slot[slot], len(snapshot.capacity)
    used = np.bincount(column, scale, types)
    over = np.flatnonzero(used > snapshot.capacity)
    if len(over):
        t = int(over[0])
        raise AllocationError(
            f"{type_name(snapshot, t)}: {used[t]:.0f} devices used of {snapshot.capacity[t]:.0f}"
        )
    there = (snapshot.rate[group, slot] > 0) | (members < 0)
    for row in np.flatnonzero(scale != snapshot.scale[group]).tolist():
        elastic = snapshot.elastic
        assert elastic is not None  # ``_checked_scale`` has found the number
        at = np.flatnonzero((elastic.job == members[row, 0]) & (elastic.devices == scale[row]))
        there[row] = snapshot.job_type_rate[elastic.job_type[at[0]], slot[row]] > 0
    if not there.all():
        k = int(np.flatnonzero(~there.all(axis=1))[0])
        raise AllocationError(
            f"job {snapshot.jobs[members[k, 0]]} cannot run on {snapshot.slots[slot[k]].accelerator}"
        )


def _checked_schedule(made: Schedule, snapshot: Snapshot) -> Schedule:
    """Return the schedule with 64-bit arrays. Only the form is checked: the planner interprets it."""
    groups = as_whole_numbers("job_groups", made.job_groups, 2)
    slot = as_whole_numbers("slot", made.slot, 2)
    if len(groups) != len(slot):
        raise AllocationError(
            f"job_groups and slot must have one length, got {len(groups)} and {len(slot)}"
        )
    wrong = slot[(slot < -1) | (slot >= len(snapshot.slots))]
    if len(wrong):
        raise AllocationError(f"slot: {wrong[0]} is no slot type of the snapshot, nor -1")
    check_report(made.report)
    return replace(made, job_groups=groups, slot=slot)


def _checked_accounts(made: Accounts, snapshot: Snapshot) -> Accounts:
    return Accounts(
        _like("received_s", made.received_s, snapshot.received_s),
        _like("deficit_s", made.deficit_s, snapshot.deficit_s),
        _like("allocated_s", made.allocated_s, snapshot.allocated_s),
    )


def _like(name: str, given: object, ours: Floats) -> Floats:
    array = as_numbers(name, given)
    if array.shape != ours.shape or not np.isfinite(array).all():
        raise AllocationError(
            f"{name} must be finite seconds of shape {ours.shape}, got {brief_repr(given)}"
        )
    return np.array(array, np.float64)
