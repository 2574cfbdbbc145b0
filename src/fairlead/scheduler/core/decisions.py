"""Decisions between rounds: whether to solve, which answer comes into force, who runs."""

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import Floats, Ints
from fairlead.model.commands import Command, EndRound, Solve, StartRound, WakeAt
from fairlead.model.events import Solved
from fairlead.model.plan import Change, RoundPlan, weighs_prices
from fairlead.model.rates import isolated_rate
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.core.bound_jobs import (
    BoundGroups,
    as_seen_by_planners,
    gather_accounts,
    on_own_nodes,
    without_groups,
)
from fairlead.scheduler.core.job_groups import find_groups, rows_of_groups
from fairlead.scheduler.core.lifecycle import start_round
from fairlead.scheduler.core.paused_jobs import end_jobs
from fairlead.scheduler.core.resizing import resize
from fairlead.scheduler.core.scheduler_data import SchedulerData
from fairlead.scheduler.core.snapshots import take_snapshot
from fairlead.scheduler.mechanism import planner_calls
from fairlead.scheduler.mechanism.shares_planner import SharesPlanner

_MAX_PLANS = 8  # of a round, until all bound jobs of it can have their devices


def when_idle(s: SchedulerData, time_s: float) -> list[Command]:
    """Call ``decide``, unless a round runs or the answer to a solve is awaited."""
    waits = s.planning.solving and not s.options.overlap_solves
    return [] if s.round.active or waits else decide(s, time_s)


def decide(s: SchedulerData, time_s: float, stalled: bool = False) -> list[Command]:
    """Ask for a solve where one is due; start a round unless the answer is waited for. stalled: nothing runs
    and nothing will happen by itself."""
    planning = s.planning
    is_due = not planning.solving and planner_calls.due(
        planning.planner, time_s, planning.changed, stalled, planning.state
    )
    solve: list[Command] = []
    if is_due:
        planning.solving, planning.changed = True, Change.NOTHING
        snapshot = take_snapshot(s, time_s)
        _settle_isolated(s, snapshot)
        snapshot = as_seen_by_planners(snapshot, s.bound_groups())
        if s.options.overlap_solves:
            snapshot = snapshot.copied()
        solve = [Solve(time_s, snapshot, planning.state)]
    elif planning.changed and not planner_calls.solves_changes(planning.planner):
        planning.changed = Change.NOTHING
        _settle_isolated(s, take_snapshot(s, time_s))
    if planning.solving and not s.options.overlap_solves:
        return solve
    return [*solve, *_start_round(s, time_s)]


def _settle_isolated(s: SchedulerData, snapshot: Snapshot) -> None:
    """From now on each job's part of the cluster is as in this snapshot."""
    weighted = s.options.settings.gavel.weighted_isolation
    s.ledger.settle_isolated(isolated_rate(snapshot, weighted))


def _start_round(s: SchedulerData, time_s: float) -> list[Command]:
    groups, jobs = s.ledger.groups, s.ledger.jobs
    planning, all_bound = s.planning, s.bound_groups()
    plan, bound = _plan(s, time_s, all_bound)
    resize(s, plan)
    kept = s.running.place(
        plan,
        time_s,
        bound=bound,
        occupied=s.occupied,
        weighs_prices=weighs_prices(planning.planner),
    )
    for row in all_bound.keys() - bound.keys():
        s.bound_jobs.bind(int(jobs.id[groups.members[row, 0]]), ())
    start_round(jobs, groups, s.running.job_group, s.running.planned)
    s.round.number += 1
    s.round.active = len(s.running.job_group) > 0
    s.round.started_s = time_s
    ids = s.ledger.group_ids()[s.running.job_group]
    s.round.in_force = StartRound(
        time_s=time_s,
        round=s.round.number,
        length_s=s.options.settings.round_s,
        job_groups=ids,
        slot=s.running.slot,
        devices=s.running.devices,
        offsets=s.running.offsets,
        kept=kept,
        active=jobs.n,
    )
    waits = not s.round.active and time_s < plan.wake_s < np.inf
    return [s.round.in_force, *([WakeAt(time_s, plan.wake_s)] if waits else ())]


def _plan(s: SchedulerData, time_s: float, bound: BoundGroups) -> tuple[RoundPlan, BoundGroups]:
    """The next round, and the bound job groups less those that are to begin anew elsewhere. Where others
    cannot have their devices, other job groups are chosen in their place."""
    planning = s.planning
    if not bound:
        snapshot = take_snapshot(s, time_s)
        plan, planning.state = planner_calls.plan(planning.planner, snapshot, planning.state)
        return plan, bound
    gather_accounts(s.ledger, bound)
    elapsed_s, start_s = None, s.options.restart_costs.default_s
    if isinstance(planning.planner, SharesPlanner):
        settled_s = planning.planner.settled_s(planning.state)
        elapsed_s = time_s - settled_s + s.options.settings.round_s
    snapshot, held = as_seen_by_planners(take_snapshot(s, time_s), bound), set[int]()
    for tries_left in reversed(range(_MAX_PLANS)):
        plan, planning.state = planner_calls.plan(planning.planner, snapshot, planning.state)
        blocked, released = s.running.find_blocked(plan, bound, elapsed_s, start_s)
        bound = {row: one for row, one in bound.items() if row not in released}
        plan = on_own_nodes(plan, bound, s.ledger.groups.scale, s.cluster.device_node)
        held |= blocked
        snapshot.rate[list(blocked)] = 0.0  # its own copy
        if not blocked:
            return plan, bound
        if not tries_left or not isinstance(planning.planner, SharesPlanner):
            break  # other planners may take a call for a round that is over
    return without_groups(plan, held, s.ledger.groups.scale), bound


def solved(s: SchedulerData, event: Solved) -> list[Command]:
    """Put an answer in force; a round starts with it unless one runs."""
    if not s.planning.solving:
        raise ProtocolError("an allocation arrived that nobody had asked for")
    s.planning.solving = False
    if event.answer is not None:
        accounts, s.planning.state = planner_calls.settle(
            s.planning.planner, take_snapshot(s, event.time_s), event.answer, s.planning.state
        )
        groups = s.ledger.groups
        if accounts is not None:
            groups.received_s[:] = accounts.received_s
            groups.deficit_s[:] = accounts.deficit_s
            s.ledger.allocated_s[:] = accounts.allocated_s
    else:
        s.planning.note(Change.JOBS)  # at the next round there is another try
    if event.allocation is not None:
        _put_in_force(s, event.allocation)
    return [] if s.round.active else _start_round(s, event.time_s)


def _put_in_force(s: SchedulerData, allocation: Allocation) -> None:
    """Take over the shares. A job group was part of the solve if all its jobs were; job groups that the
    allocation does not name have no share, and shares of jobs that have left are dropped."""
    s.planning.previous = allocation
    jobs, groups = s.ledger.jobs, s.ledger.groups
    group_members, known = rows_of_groups(jobs.id, allocation.job_groups, s.ledger.width)
    solved = np.zeros(jobs.n, np.bool_)
    solved[group_members[:, 0][known]] = True
    if s.ledger.width > 1:
        pairs = known & (group_members[:, 1] >= 0) & (allocation.share > 0).any(axis=1)
        row = s.ledger.set_pairs(group_members[pairs])
        s.running.renumber(row)
    groups.allocated[:] = (solved[groups.members] | (groups.members < 0)).all(axis=1)
    groups.share[:] = 0.0
    at = group_members[known, 0]  # a job group stands where its job does
    if group_members.shape[1] > 1:
        at = find_groups(groups.members, group_members[known], jobs.n)
    groups.share[at[at >= 0]] = allocation.share[known][at >= 0]


def retire(s: SchedulerData, end: Ints, end_s: Floats, time_s: float) -> list[Command]:
    """Jobs leave: those whose end, of ``JobEnd``, is not 0. end, end_s: (jobs,)."""
    gone = end > 0
    if not gone.any():
        return []
    command = end_jobs(s.ledger, end, end_s, time_s)
    s.forget(command.jobs)
    s.running.renumber(s.ledger.remove(gone))
    s.planning.note(Change.JOBS)
    return [command]


def end_round_early(s: SchedulerData, time_s: float) -> list[Command]:
    """End the round in force, once, so that the next one reacts to what has happened."""
    if s.round.ending:
        return []
    s.round.ending = True
    return [EndRound(time_s, s.round.number)]
