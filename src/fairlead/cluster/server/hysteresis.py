"""Preemption hysteresis told to people: how much a waiting job must be owed to take devices of jobs that run.

The same sums as in ``scheduler.mechanism.priorities``, of the state that was decided on.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.scheduler.core.bound_jobs import anew_costs
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.shares_planner import SharesPlanner
from fairlead.scheduler.placement.records import Topology

PROTECTED_START_S = 1e8  # whose start is worth so much is not to be moved for now


@dataclass(frozen=True, slots=True)
class PreemptionState:
    """The dues and devices of job groups when it was decided. Arrays of its own: nobody changes them."""

    time_s: float
    hysteresis: float  # times what a start costs: so much more another must be owed
    accelerator: Ints  # (slots,) index of the accelerator type
    free: Ints  # (slots,) devices of that type that no group holds
    scale: Ints  # (groups,) devices
    share: Floats  # (groups, slots)
    can_run: Bools  # (groups, slots) some policies give shares of types on which a job cannot run
    owed_s: Floats  # (groups, slots) device-seconds, by the end of the round
    start_s: Floats  # (groups,) device-seconds that a start of it is worth
    running_on: Ints  # (groups,) slot, -1 = does not run
    stays: Bools  # (groups,) is it left where it runs, whoever is owed more?
    new: Bools  # (groups,) has a member of it done nothing yet?
    anew_s: (
        Floats  # (groups,) device-seconds that one bound to devices loses elsewhere; inf: it is not
    )

    @staticmethod
    def of(s: Scheduler, now_s: float) -> "PreemptionState | None":
        """Return the state as of now; None under policies and profiles without preemption hysteresis."""
        data = s.data
        planner, settings = data.planning.planner, data.options.settings
        if settings.preemption_hysteresis <= 0 or not isinstance(planner, SharesPlanner):
            return None
        jobs, groups = data.ledger.jobs, data.ledger.groups
        until_s = now_s - planner.settled_s(data.planning.state) + settings.round_s
        owed_s = groups.deficit_s + groups.share * until_s - groups.received_s
        there, at = groups.members >= 0, np.maximum(groups.members, 0)
        left = np.maximum(jobs.total - jobs.done, 0.0)
        start_s = settings.preemption_hysteresis * np.where(there, jobs.restart_s[at], 0.0).max(1)
        row = np.arange(len(groups.running_on))
        rate = groups.rate[row, np.maximum(groups.running_on, 0)]
        left_s = np.where(there, left[at] / np.maximum(rate, 1e-300), 0.0).max(axis=1)
        topology, anew_s = data.running.topology, np.full(groups.n, np.inf)
        usual_s = data.options.restart_costs.default_s
        for group, cost in anew_costs(
            data.ledger, data.bound_groups(), usual_s, settings.preemption_hysteresis
        ).items():
            anew_s[group] = cost
        return PreemptionState(
            time_s=now_s,
            hysteresis=settings.preemption_hysteresis,
            accelerator=topology.accelerator_of_slot.copy(),
            free=_free(topology, groups.running_on, groups.scale),
            scale=groups.scale.copy(),
            share=groups.share.copy(),
            can_run=np.asarray(((groups.rate > 0) | ~there[:, None, :]).all(axis=2)),
            owed_s=np.where(groups.share > 0, owed_s, 0.0) * groups.scale[:, None],
            start_s=start_s,
            running_on=groups.running_on.copy(),
            stays=(left_s < start_s) | (start_s > PROTECTED_START_S),
            new=np.asarray((there & (left[at] >= jobs.total[at])).any(axis=1)),
            anew_s=anew_s,
        )


def _free(topology: Topology, running_on: Ints, scale: Ints) -> Ints:
    """(slots,) usable devices of the accelerator type of each slot that no job group holds."""
    accelerator = topology.accelerator_of_slot
    n = int(accelerator.max(initial=-1)) + 1
    runs = running_on >= 0
    usable = np.bincount(topology.device_type[topology.usable], minlength=n)
    held = np.bincount(accelerator[running_on[runs]], weights=scale[runs], minlength=n)
    return np.asarray(np.maximum(usable - held.astype(np.int64), 0)[accelerator])


@dataclass(frozen=True, slots=True)
class PreemptionTime:
    """When a waiting job group is preferred to one that runs."""

    slot: int
    owed_s: float  # device-seconds that it was owed when that was decided last
    needed_s: float  # that it must be owed
    at_s: float  # cluster's time; inf = not as long as those go on that run


def next_preemption(state: PreemptionState, group: int) -> PreemptionTime | None:
    """When a job group that does not run takes its devices from others, as far as can be told: the earliest
    of the slots on which it can run and has a share. None: there are none."""
    slots = np.flatnonzero((state.share[group] > 0) & state.can_run[group])
    turns = [_turn(state, group, slot) for slot in slots.tolist()]
    return min(turns, key=lambda turn: turn.at_s, default=None)


def _turn(state: PreemptionState, group: int, slot: int) -> PreemptionTime:
    """Return when a job group is preferred on one slot. What each is owed is linear in time, but for a job
    group that runs, to which it is never less than what a start is worth."""
    runs = state.running_on >= 0
    here = state.accelerator[np.maximum(state.running_on, 0)] == state.accelerator[slot]
    runs_here = np.flatnonzero(runs & here)
    on, scale = state.running_on[runs_here], state.scale[runs_here]
    bonus_s = float(state.start_s[group]) if state.new[group] else 0.0
    owed_s = float(state.owed_s[group, slot])
    grows = float(state.share[group, slot]) * int(state.scale[group])
    shrinks = scale * (1.0 - state.share[runs_here, on])
    over_s = state.start_s[runs_here] - owed_s - bonus_s
    wait_s = np.maximum(
        over_s / grows, (over_s + state.owed_s[runs_here, on]) / np.maximum(grows + shrinks, 1e-300)
    )
    wait_s = np.where(state.stays[runs_here], np.inf, np.maximum(wait_s, 0.0))
    order = np.argsort(wait_s)
    wanted = int(state.scale[group]) - int(state.free[slot])
    enough = np.flatnonzero(np.cumsum(scale[order]) >= wanted)
    last_s = float(wait_s[order[enough[0]]]) if len(enough) else np.inf
    last_s = last_s if wanted > 0 else 0.0
    return PreemptionTime(slot, max(owed_s, 0.0), owed_s + grows * last_s, state.time_s + last_s)


@dataclass(frozen=True, slots=True)
class BoundTime:
    """When a job group that is bound to devices that others hold runs again; device-seconds."""

    owed_s: float  # that it was owed when that was decided last
    others_s: float  # owed so much it has its devices; inf = those keep them for now
    anew_s: float  # owed so much it begins anew elsewhere
    at_s: float  # cluster's time at which it is owed the less of both


def next_turn(state: PreemptionState, group: int, others: Ints) -> BoundTime | None:
    """When a bound job group runs again that does not run. others: those that hold its devices. None: these
    are bound themselves, or it has no share."""
    holders = others[np.isinf(state.anew_s[others])]
    slots = np.flatnonzero(state.share[group] > 0)
    if not len(slots) or not len(holders) or np.isinf(state.anew_s[group]):
        return None
    owed_s = max(float(state.owed_s[group, slots[0]]), 0.0)
    others_s = float(state.start_s[holders].max())
    others_s = others_s if others_s <= PROTECTED_START_S else np.inf
    anew_s = float(state.anew_s[group])
    grows = float(state.share[group, slots[0]]) * int(state.scale[group])
    left_s = max(min(others_s, anew_s) - owed_s, 0.0) / grows
    return BoundTime(owed_s, others_s, anew_s, state.time_s + left_s)
