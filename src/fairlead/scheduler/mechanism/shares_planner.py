"""From long-run shares to rounds: the adapters that make a planner of a policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.plan import Accounts, Change, PlannerAnswer, Policy, RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.checking import ask
from fairlead.scheduler.mechanism.priorities import deficit_priorities, gavel_priorities
from fairlead.scheduler.mechanism.selection import select
from fairlead.scheduler.mechanism.settings import MechanismSettings


class Shuffler(Protocol):
    """A source of permutations: ``random.Random`` is one."""

    def shuffle(self, x: list[int]) -> None:
        """Permute in place."""


@dataclass(slots=True)
class SharesState:
    """When the accounts were settled last (0.0 also stands for never, as in Gavel), and the shuffler."""

    settled_s: float = 0.0
    solved: bool = False
    shuffler: Shuffler | None = None
    order: list[int] = field(default_factory=list)  # slots, before shuffling; empty until known


@dataclass(frozen=True)
class SharesPlanner:
    """A policy's shares, realised round by round. ``profile`` says by which rules."""

    policy: Policy
    settings: MechanismSettings
    shuffler: Shuffler  # orders the types where the policy is agnostic and types go one by one

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.policy.name

    @property
    def space_sharing(self) -> bool:
        """Whatever the policy wants."""
        return self.policy.space_sharing

    def start(self) -> SharesState:
        """The state before the first call."""
        return SharesState(shuffler=self.shuffler)

    def due(self, now_s: float, changed: Change, stalled: bool, state: SharesState) -> bool:
        """On change, when the interval has passed. Gavel reads a last solve at time 0 as none, and
        resets it when nothing runs and nothing is to come (spec: last_reset); where accounts are carried
        on, the time since they were settled must stay known."""
        if stalled and self.settings.clear_when_stalled and self.settings.reset_accounts:
            state.settled_s = 0.0
        if not self.settings.solve_on_adaptation:
            changed &= ~Change.REQUIREMENTS
        waited = now_s - state.settled_s >= self.settings.solve_interval_s
        return bool(changed) and (waited or stalled or state.settled_s == 0.0 or not state.solved)

    def solve(self, snapshot: Snapshot, state: SharesState) -> Allocation:  # noqa: ARG002
        """The policy's shares; none where there is no job."""
        if not len(snapshot.jobs):
            none = np.zeros((0, len(snapshot.slots)))
            groups = np.zeros((0, snapshot.group_members.shape[1]), np.int64)
            basis = () if snapshot.previous is None else snapshot.previous.report.basis
            return Allocation(groups, none, SolveReport("closed-form", basis=basis))
        early_s = self.settings.early_rounds * self.settings.round_s
        if early_s > 0:
            snapshot = replace(snapshot, deadline_s=snapshot.deadline_s - early_s)
        return ask(self.policy, snapshot)

    def settle(
        self,
        snapshot: Snapshot,
        answer: PlannerAnswer,  # noqa: ARG002
        state: SharesState,
    ) -> tuple[Accounts, SharesState]:
        """Turn time received into time owed. Gavel then starts every job group at half a round again."""
        accounts = self.accounts(snapshot, state)
        state.settled_s, state.solved = snapshot.now_s, True
        return accounts, state

    def accounts(self, snapshot: Snapshot, state: SharesState) -> Accounts:
        """What ``settle`` gives."""
        elapsed_s = snapshot.now_s - state.settled_s
        if not self.settings.reset_accounts:
            deficit = _deficits(snapshot, elapsed_s)
            np.maximum(deficit, -self.settings.round_s, out=deficit)
            zero = np.zeros_like(deficit)
            return Accounts(zero, deficit, np.zeros_like(snapshot.allocated_s))
        half = self.settings.round_s / 2
        due = np.where(snapshot.allocated[:, None], snapshot.share * elapsed_s, 0.0)
        deficit = snapshot.deficit_s + (due - (snapshot.received_s - half))
        received = np.full_like(deficit, half)
        handed_out = np.zeros_like(snapshot.allocated_s)
        if len(received):  # one after the other, as Gavel adds them up
            handed_out = np.cumsum(received, axis=0)[-1]
        return Accounts(received, deficit, handed_out)

    def settled_s(self, state: SharesState) -> float:
        """When the accounts were settled last."""
        return state.settled_s

    def begin(self, settled_s: float) -> SharesState:
        """Accounts settled then, and nothing solved."""
        return SharesState(settled_s, shuffler=self.shuffler)

    def state_dict(self, state: SharesState) -> dict[str, Floats]:
        """When the accounts were settled, and whether anything has been solved. The shuffler is not
        kept: it starts afresh."""
        return {"settled_s": np.array([state.settled_s]), "solved": np.array([state.solved])}

    def load_state_dict(self, kept: Mapping[str, Floats]) -> SharesState:
        """From what was kept."""
        return SharesState(float(kept["settled_s"][0]), bool(kept["solved"][0]), self.shuffler)

    def plan(self, snapshot: Snapshot, state: SharesState) -> tuple[RoundPlan, SharesState]:
        """The next round; an empty one where the shares themselves are what happens."""
        if self.settings.fluid:
            none: Ints = np.zeros(0, np.int64)
            return RoundPlan(none, none), state
        first, second, third, runs = self._keys(snapshot, state)
        if not self.policy.work_conserving:
            runs &= first > 0
        order = self._order(snapshot, state)
        if getattr(self.policy, "strict", False):
            _stop_at_misfit(snapshot, order, first, second, third, runs)
        group, slot = select(
            first,
            second,
            third,
            runs,
            snapshot.group_members,
            snapshot.scale,
            snapshot.capacity.astype(np.int64),
            snapshot.accelerator_of_slot,
            order,
            self.settings.type_by_type and not self._one_queue,
            len(snapshot.jobs),
        )
        if not self.settings.place_unallocated:
            known = snapshot.allocated[group]
            group, slot = group[known], slot[known]
        if self.settings.type_by_type and self._one_queue:
            by_slot = np.argsort(slot, kind="stable")
            group, slot = group[by_slot], slot[by_slot]
        return RoundPlan(group, slot), state

    @property
    def _one_queue(self) -> bool:
        """Gavel's option --enable_global_queue, known to policies that were recorded with it."""
        return bool(getattr(self.policy, "global_queue", False))

    def _order(self, snapshot: Snapshot, state: SharesState) -> Ints:
        """Slots in the order in which they are filled."""
        if not state.order:
            rank = {name: i for i, name in enumerate(self.settings.type_order)}
            names = [slot.accelerator for slot in snapshot.slots]
            state.order = sorted(
                range(len(names)), key=lambda i: (rank.get(names[i], len(rank)), names[i])
            )
        order = state.order.copy()
        if self.settings.type_by_type and not (
            self.policy.heterogeneity_aware or self.policy.space_sharing
        ):
            assert state.shuffler is not None
            state.shuffler.shuffle(order)
        return np.array(order, np.int64)

    def _keys(self, snapshot: Snapshot, state: SharesState) -> tuple[Floats, Floats, Floats, Bools]:
        if self.settings.type_by_type:
            first, runs = gavel_priorities(
                snapshot.group_members,
                snapshot.rate,
                snapshot.share,
                snapshot.received_s,
                snapshot.allocated_s,
                snapshot.allocated,
            )
            return first, snapshot.deficit_s, snapshot.share, runs
        return deficit_priorities(
            snapshot.group_members,
            snapshot.scale,
            snapshot.rate,
            snapshot.share,
            snapshot.received_s,
            snapshot.deficit_s,
            snapshot.running_on,
            snapshot.restart_s,
            snapshot.steps_left,
            snapshot.total_steps,
            snapshot.now_s - state.settled_s,
            self.settings.round_s,
            self.settings.preemption_hysteresis,
        )


def _stop_at_misfit(
    snapshot: Snapshot, order: Ints, first: Floats, second: Floats, third: Floats, runs: Bools
) -> None:
    """Take out of ``runs`` what comes behind the first job group that does not fit, slot after slot in this
    order. For policies that would rather leave devices idle than let a job group overtake another."""
    left = snapshot.capacity.copy()
    ran = np.zeros(len(runs), np.bool_)
    stopped = False
    for t in order.tolist():
        accelerator_index = snapshot.accelerator_of_slot[t]
        for u in np.lexsort((-third[:, t], -second[:, t], -first[:, t])).tolist():
            if not runs[u, t] or ran[u]:
                continue
            stopped = stopped or bool(0 < left[accelerator_index] < snapshot.scale[u])
            if stopped or left[accelerator_index] == 0:
                runs[u, t] = False
                continue
            left[accelerator_index] -= snapshot.scale[u]
            ran[u] = True


def _deficits(snapshot: Snapshot, elapsed_s: float) -> Floats:
    """(groups, slots) seconds owed: due by the shares less received, from the last settling on; time
    on slots without a share was left over by others and is not held against the job group."""
    owed = snapshot.deficit_s + snapshot.share * elapsed_s - snapshot.received_s
    return np.where(snapshot.share > 0, owed, 0.0)
