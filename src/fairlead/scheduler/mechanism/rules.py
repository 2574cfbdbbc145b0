"""The rules by which rounds are filled and accounts are kept, which a ``SharesPlanner`` goes by."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.plan import Accounts, Policy
from fairlead.model.snapshot import Snapshot
from fairlead.scheduler.mechanism.priorities import (
    AvailableSlots,
    DeficitRule,
    deficit_priorities,
    fill_by_deficit,
    group_accounts,
    jobs_to_run,
)
from fairlead.scheduler.mechanism.selection import Candidates, Priorities, select

Selected: TypeAlias = tuple[Ints, Ints]  # job groups and their slots, in the order of choice


class FillingRule(Protocol):
    """Chooses the job groups that run in a round, and their slots."""

    def order(self, slots: Ints, policy: Policy) -> Ints:
        """(slots,) slots as they are filled in this round. slots: the same by name."""

    def priorities(self, snapshot: Snapshot, elapsed_s: float) -> Priorities:
        """The keys by which job groups are chosen, per slot. elapsed_s: since the accounts were settled."""

    def select(
        self, priorities: Priorities, snapshot: Snapshot, order: Ints, policy: Policy
    ) -> Selected:
        """Return the job groups that run, and their slots."""

    def fill(self, snapshot: Snapshot, elapsed_s: float, order: Ints, policy: Policy) -> Selected:
        """Return what ``select`` makes of ``priorities``, in one call, which may be faster."""

    def until_owed_s(self, priorities: Priorities, snapshot: Snapshot, elapsed_s: float) -> float:
        """Seconds from now, where nothing runs, until a job group with a share that is owed nothing is owed
        something again; inf where none will be. Whole rounds, at least one."""


class AccountingRule(Protocol):
    """Turns the time that job groups have received into time owed, at each solve."""

    def settle(self, snapshot: Snapshot, elapsed_s: float) -> Accounts:
        """The accounts from here on. elapsed_s: since they were settled last."""

    def settled_when_stalled(self, settled_s: float) -> float:
        """When the accounts count as settled, where nothing runs and nothing will happen by itself."""


@dataclass(frozen=True, slots=True)
class LargestDeficitFirst:
    """One queue for all slots: whoever is owed most by the end of the round runs."""

    round_s: float
    preemption_hysteresis: float

    def order(self, slots: Ints, policy: Policy) -> Ints:  # noqa: ARG002
        """Return the slots in the order given."""
        return slots

    def priorities(self, snapshot: Snapshot, elapsed_s: float) -> Priorities:
        """Return the keys: device-seconds owed, runs there now (0 or 1), relative speed."""
        return deficit_priorities(
            group_accounts(snapshot),
            jobs_to_run(snapshot),
            elapsed_s + self.round_s,
            self.preemption_hysteresis,
        )

    def select(
        self,
        priorities: Priorities,
        snapshot: Snapshot,
        order: Ints,
        policy: Policy,  # noqa: ARG002
    ) -> Selected:
        """Return the best entries for which there are devices, in the order of choice."""
        free = snapshot.capacity.astype(np.int64)
        return select(priorities, candidates_of_snapshot(snapshot), free, order, len(snapshot.jobs))

    def fill(
        self,
        snapshot: Snapshot,
        elapsed_s: float,
        order: Ints,
        policy: Policy,  # noqa: ARG002
    ) -> Selected:
        """Return what ``select`` makes of ``priorities``, in one compiled pass."""
        return fill_by_deficit(
            group_accounts(snapshot),
            jobs_to_run(snapshot),
            DeficitRule(elapsed_s + self.round_s, self.preemption_hysteresis),
            AvailableSlots(snapshot.capacity, snapshot.accelerator_of_slot, order),
        )

    def until_owed_s(self, priorities: Priorities, snapshot: Snapshot, elapsed_s: float) -> float:
        """When time due by the shares exceeds time received, by the end of the round that begins then."""
        fits = snapshot.scale[:, None] <= snapshot.capacity[snapshot.accelerator_of_slot]
        waits = priorities.eligible & (priorities.primary <= 0) & (snapshot.share > 0) & fits
        too_much_s = (snapshot.received_s - snapshot.deficit_s)[waits]
        rest_s = too_much_s / snapshot.share[waits] - elapsed_s - self.round_s
        rounds = np.floor(rest_s.min(initial=np.inf) / self.round_s) + 1
        return float(max(rounds, 1.0) * self.round_s)


@dataclass(frozen=True, slots=True)
class CarriedAccounts:
    """Time owed is carried on from solve to solve, and time received too much up to a round's length."""

    round_s: float

    def settle(self, snapshot: Snapshot, elapsed_s: float) -> Accounts:
        """Return what is owed by the shares less what was received."""
        deficit = _deficits(snapshot, elapsed_s)
        np.maximum(deficit, -self.round_s, out=deficit)
        return Accounts(np.zeros_like(deficit), deficit, np.zeros_like(snapshot.allocated_s))

    def settled_when_stalled(self, settled_s: float) -> float:
        """Return when they were settled: time owed since then must not be lost."""
        return settled_s


def candidates_of_snapshot(snapshot: Snapshot) -> Candidates:
    """The snapshot's job groups, views of its arrays."""
    return Candidates(snapshot.group_members, snapshot.scale, snapshot.accelerator_of_slot)


def _deficits(snapshot: Snapshot, elapsed_s: float) -> Floats:
    """(groups, slots) seconds owed: due by the shares less received, from the last settling on; time
    on slots without a share was left over by others and is not held against the job group."""
    deficit = snapshot.deficit_s + snapshot.share * elapsed_s - snapshot.received_s
    return np.where(snapshot.share > 0, deficit, 0.0)
