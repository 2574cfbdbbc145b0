"""From long-run shares to rounds: the adapter that makes a planner of a policy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Floats, Ints
from fairlead.model.plan import Accounts, Change, PlannerAnswer, Policy, RoundPlan, optional_traits
from fairlead.model.snapshot import Snapshot
from fairlead.policies.elastic.configuration_shares import ConfigurationProblem, NumberChoices
from fairlead.scheduler.mechanism.checking import ask
from fairlead.scheduler.mechanism.number_accounts import NumberAccounts
from fairlead.scheduler.mechanism.rules import AccountingRule, FillingRule, LargestDeficitFirst
from fairlead.scheduler.mechanism.selection import Priorities
from fairlead.scheduler.mechanism.settings import MechanismSettings


@dataclass(slots=True)
class SharesState:
    """When the accounts were settled last; 0.0 also stands for never."""

    settled_s: float = 0.0
    solved: bool = False
    slots: Ints | None = None  # (slots,) by name; None until known
    numbers: NumberAccounts | None = (
        None  # of elastic jobs; None: the shares in force are of jobs that keep their numbers
    )


@dataclass(frozen=True, kw_only=True)
class SharesPlanner:
    """A policy's shares, realised round by round."""

    policy: Policy
    settings: MechanismSettings
    filling: FillingRule
    accounting: AccountingRule
    ignored: Change  # that calls for no solve

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.policy.name

    @property
    def space_sharing(self) -> bool:
        """Return whether the policy uses job groups of two jobs."""
        return self.policy.space_sharing

    def start(self) -> SharesState:
        """The state before the first call."""
        return SharesState()

    def due(self, now_s: float, changed: Change, stalled: bool, state: SharesState) -> bool:
        """On change, when the interval has passed since the last solve or nothing runs; without a change when
        the shares are as old as the policy lets them be. A solve at time 0 counts as none."""
        if stalled:
            state.settled_s = self.accounting.settled_when_stalled(state.settled_s)
        waited = now_s - state.settled_s >= self.settings.solve_interval_s
        is_first = state.settled_s == 0.0 or not state.solved
        asked = changed != Change.NOTHING and (waited or stalled or is_first)
        if asked and bool(changed & ~self.ignored):
            return True
        every_s = optional_traits(self.policy).solve_every_s
        return every_s is not None and now_s - state.settled_s >= every_s

    def solve(self, snapshot: Snapshot, state: SharesState) -> Allocation:
        """The policy's shares; none where there is no job."""
        if not len(snapshot.jobs):
            none = np.zeros((0, len(snapshot.slots)))
            groups = np.zeros((0, snapshot.group_members.shape[1]), np.int64)
            basis = () if snapshot.previous is None else snapshot.previous.report.basis
            return Allocation(groups, none, SolveReport("closed-form", basis=basis))
        early_s = self.settings.deadline_margin_rounds * self.settings.round_s
        if early_s > 0:
            snapshot = replace(snapshot, deadline_s=snapshot.deadline_s - early_s)
        if not self._decides_numbers(snapshot):
            return ask(self.policy, snapshot)
        choices = NumberChoices.of(snapshot)
        in_force = (state.numbers or NumberAccounts.begin(snapshot)).at(snapshot, choices).share
        problem = ConfigurationProblem.of(snapshot, choices, in_force)
        return problem.allocation(ask(self.policy, problem.snapshot), len(snapshot.slots))

    def _decides_numbers(self, snapshot: Snapshot) -> bool:
        """Return whether the policy's shares say on how many devices elastic jobs run."""
        return (
            snapshot.elastic is not None
            and optional_traits(self.policy).elastic
            and isinstance(self.filling, LargestDeficitFirst)
            and not self.settings.fluid
        )

    def settle(
        self,
        snapshot: Snapshot,
        answer: PlannerAnswer,
        state: SharesState,
    ) -> tuple[Accounts, SharesState]:
        """Turn time received into time owed."""
        accounts = self.accounts(snapshot, state)
        numbers = None
        if isinstance(answer, Allocation) and answer.by_number is not None:
            numbers = self._settled_numbers(snapshot, answer, state)
        state.numbers = numbers
        state.settled_s, state.solved = snapshot.now_s, True
        return accounts, state

    def _settled_numbers(
        self, snapshot: Snapshot, answer: Allocation, state: SharesState
    ) -> NumberAccounts:
        choices = NumberChoices.of(snapshot)
        numbers = (state.numbers or NumberAccounts.begin(snapshot)).at(snapshot, choices)
        elapsed_s = snapshot.now_s - state.settled_s
        return numbers.settled(snapshot, choices, answer, elapsed_s, self.settings)

    def accounts(self, snapshot: Snapshot, state: SharesState) -> Accounts:
        """Return the accounts that ``settle`` would return; nothing changes."""
        return self.accounting.settle(snapshot, snapshot.now_s - state.settled_s)

    def settled_s(self, state: SharesState) -> float:
        """When the accounts were settled last."""
        return state.settled_s

    def begin(self, settled_s: float) -> SharesState:
        """Return the state with accounts settled then, and nothing solved."""
        return SharesState(settled_s)

    def state_dict(self, state: SharesState) -> dict[str, Floats]:
        """When the accounts were settled, whether anything has been solved, and accounts by number."""
        own = {"settled_s": np.array([state.settled_s]), "solved": np.array([state.solved])}
        return own | (state.numbers.state_dict() if state.numbers is not None else {})

    def load_state_dict(self, arrays: Mapping[str, Floats]) -> SharesState:
        """Return the state of which ``state_dict`` made these arrays."""
        return SharesState(
            float(arrays["settled_s"][0]),
            bool(arrays["solved"][0]),
            numbers=NumberAccounts.load_state_dict(arrays),
        )

    def plan(self, snapshot: Snapshot, state: SharesState) -> tuple[RoundPlan, SharesState]:
        """The next round; an empty one where the shares themselves are what happens."""
        if self.settings.fluid:
            none: Ints = np.zeros(0, np.int64)
            return RoundPlan(none, none), state
        if not len(snapshot.jobs) or not self._decides_numbers(snapshot):
            return self._plan_groups(snapshot, state)
        state.numbers = state.numbers or NumberAccounts.begin(snapshot)
        choices = NumberChoices.of(snapshot)
        state.numbers = state.numbers.at(snapshot, choices)
        elapsed_s = snapshot.now_s - state.settled_s
        return state.numbers.plan(snapshot, choices, elapsed_s, self.settings), state

    def _plan_groups(self, snapshot: Snapshot, state: SharesState) -> tuple[RoundPlan, SharesState]:
        """The next round of the snapshot's job groups."""
        elapsed_s, policy = snapshot.now_s - state.settled_s, self.policy
        order = self.filling.order(self._slots(snapshot, state), policy)
        strict = optional_traits(policy).strict
        if policy.work_conserving and not strict:
            group, slot = self.filling.fill(snapshot, elapsed_s, order, policy)
            return RoundPlan(group, slot), state
        priorities = every = self.filling.priorities(snapshot, elapsed_s)
        if not policy.work_conserving:
            priorities = priorities._replace(
                eligible=priorities.eligible & (priorities.primary > 0)
            )
        if strict:
            priorities = _until_misfit(snapshot, order, priorities)
        group, slot = self.filling.select(priorities, snapshot, order, policy)
        wait_s = np.inf
        if not len(group) and not policy.work_conserving:
            wait_s = self.filling.until_owed_s(every, snapshot, elapsed_s)
        return RoundPlan(group, slot, snapshot.now_s + wait_s), state

    def _slots(self, snapshot: Snapshot, state: SharesState) -> Ints:
        """Slots by accelerator type: those that the settings name first, then by name."""
        if state.slots is None:
            rank = {name: i for i, name in enumerate(self.settings.gavel.type_order)}
            names = [slot.accelerator for slot in snapshot.slots]
            order = sorted(
                range(len(names)), key=lambda i: (rank.get(names[i], len(rank)), names[i])
            )
            state.slots = np.array(order, np.int64)
        return state.slots


def _until_misfit(snapshot: Snapshot, order: Ints, priorities: Priorities) -> Priorities:
    """The entries without those after the first job group that does not fit, slot after slot in this order.
    For policies that would rather leave devices idle than let a job group overtake another."""
    primary, secondary, tertiary, eligible = priorities
    eligible = eligible.copy()
    left = snapshot.capacity.copy()
    taken = np.zeros(len(eligible), np.bool_)
    blocked = False
    for t in order.tolist():
        accelerator_index = snapshot.accelerator_of_slot[t]
        for u in np.lexsort((-tertiary[:, t], -secondary[:, t], -primary[:, t])).tolist():
            if not eligible[u, t] or taken[u]:
                continue
            blocked = blocked or bool(0 < left[accelerator_index] < snapshot.scale[u])
            if blocked or left[accelerator_index] == 0:
                eligible[u, t] = False
                continue
            left[accelerator_index] -= snapshot.scale[u]
            taken[u] = True
    return priorities._replace(eligible=eligible)
