"""The rules of Gavel's mechanism (its release's scheduler), each a switch of ``MechanismSettings``."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.model.plan import Accounts, Policy, optional_traits
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.gavel_reference.type_by_type import (
    fill_type_by_type,
    gavel_priorities,
    select_type_by_type,
)
from fairlead.scheduler.mechanism.rules import FillingRule, Selected, candidates_of_snapshot
from fairlead.scheduler.mechanism.selection import Priorities, select


class Shuffler(Protocol):
    """A source of permutations: ``random.Random`` is one."""

    def shuffle(self, x: list[int]) -> None:
        """Permute in place."""


@dataclass(frozen=True, slots=True)
class TypeByType:
    """Gavel's round: one accelerator type is filled after the other, by its own priorities. The types
    come in a random order where the policy is agnostic of them."""

    shuffler: Shuffler

    def order(self, slots: Ints, policy: Policy) -> Ints:
        """Return the slots in their order, shuffled where the policy is agnostic of accelerator types."""
        if policy.heterogeneity_aware or policy.space_sharing:
            return slots
        order = slots.tolist()
        self.shuffler.shuffle(order)
        return np.array(order, np.int64)

    def priorities(self, snapshot: Snapshot, elapsed_s: float) -> Priorities:  # noqa: ARG002
        """Return Gavel's priorities; they do not depend on the time since the accounts were settled."""
        return gavel_priorities(snapshot)

    def select(
        self, priorities: Priorities, snapshot: Snapshot, order: Ints, policy: Policy
    ) -> Selected:
        """The best entries type by type; in one queue for policies recorded with Gavel's option
        --enable_global_queue, and then put in order of the slots."""
        free, candidates = snapshot.capacity.astype(np.int64), candidates_of_snapshot(snapshot)
        if not optional_traits(policy).global_queue:
            return select_type_by_type(priorities, candidates, free, order, len(snapshot.jobs))
        group, slot = select(priorities, candidates, free, order, len(snapshot.jobs))
        by_slot = np.argsort(slot, kind="stable")
        return group[by_slot], slot[by_slot]

    def fill(self, snapshot: Snapshot, elapsed_s: float, order: Ints, policy: Policy) -> Selected:
        """Return what ``select`` makes of ``priorities``; in one pass, unless there is one queue."""
        if optional_traits(policy).global_queue:
            return self.select(self.priorities(snapshot, elapsed_s), snapshot, order, policy)
        return fill_type_by_type(snapshot, order)

    def until_owed_s(self, priorities: Priorities, snapshot: Snapshot, elapsed_s: float) -> float:  # noqa: ARG002
        """Return inf: a job group with a share may run at any time, owed or not."""
        return np.inf


@dataclass(frozen=True, slots=True)
class OnlyAllocated:
    """Wraps a rule: jobs that arrived after the last solve do not run, even where the rule chose them."""

    rule: FillingRule

    def order(self, slots: Ints, policy: Policy) -> Ints:
        """Return the order of the wrapped rule."""
        return self.rule.order(slots, policy)

    def priorities(self, snapshot: Snapshot, elapsed_s: float) -> Priorities:
        """Return the priorities of the wrapped rule."""
        return self.rule.priorities(snapshot, elapsed_s)

    def select(
        self, priorities: Priorities, snapshot: Snapshot, order: Ints, policy: Policy
    ) -> Selected:
        """Return the selection of the wrapped rule, without job groups that are in no allocation."""
        return _allocated(self.rule.select(priorities, snapshot, order, policy), snapshot)

    def fill(self, snapshot: Snapshot, elapsed_s: float, order: Ints, policy: Policy) -> Selected:
        """Return the selection of the wrapped rule, without job groups that are in no allocation."""
        return _allocated(self.rule.fill(snapshot, elapsed_s, order, policy), snapshot)

    def until_owed_s(self, priorities: Priorities, snapshot: Snapshot, elapsed_s: float) -> float:
        """Return the time of the wrapped rule."""
        return self.rule.until_owed_s(priorities, snapshot, elapsed_s)


def _allocated(selected: Selected, snapshot: Snapshot) -> Selected:
    group, slot = selected
    known = snapshot.allocated[group]
    return selected if known.all() else (group[known], slot[known])


@dataclass(frozen=True, slots=True)
class ResetAccounts:
    """Time received is forgotten at each solve: every job group starts at half a round again."""

    round_s: float
    clear_when_stalled: (
        bool  # forget the last solve where nothing runs and nothing will happen by itself
    )

    def settle(self, snapshot: Snapshot, elapsed_s: float) -> Accounts:
        """Return accounts: the time owed grows by what is due less what was received above half a round."""
        half = self.round_s / 2
        due = np.where(snapshot.allocated[:, None], snapshot.share * elapsed_s, 0.0)
        deficit = snapshot.deficit_s + (due - (snapshot.received_s - half))
        received = np.full_like(deficit, half)
        allocated_s = np.zeros_like(snapshot.allocated_s)
        if len(received):  # one after the other, as Gavel adds them up
            allocated_s = np.cumsum(received, axis=0)[-1]
        return Accounts(received, deficit, allocated_s)

    def settled_when_stalled(self, settled_s: float) -> float:
        """Return 0 where the profile clears them, which Gavel reads as never; else when they were settled."""
        return 0.0 if self.clear_when_stalled else settled_s
