"""From long-run shares to rounds: the adapters that make a planner of a policy."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairlead.mechanism.profile import Profile
from fairlead.mechanism.select import select
from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.plan import Accounts, Policy, RoundPlan
from fairlead.model.snapshot import Snapshot


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


@dataclass(frozen=True)
class SharesPlanner:
    """A policy's shares, realised round by round. ``profile`` says by which rules."""

    policy: Policy
    profile: Profile
    shuffler: Shuffler  # orders the types where the policy is agnostic and types go one by one

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.policy.name

    @property
    def packed(self) -> bool:
        """Whatever the policy wants."""
        return self.policy.packed

    def start(self) -> SharesState:
        """The state before the first call."""
        return SharesState(shuffler=self.shuffler)

    def due(self, now_s: float, changed: bool, stalled: bool, state: SharesState) -> bool:
        """On change, when the interval has passed. Gavel reads a last solve at time 0 as none, and
        resets it when nothing runs and nothing is to come (spec: last_reset)."""
        if stalled:
            state.settled_s = 0.0
        waited = now_s - state.settled_s >= self.profile.solve_interval_s
        return changed and (waited or state.settled_s == 0.0 or not state.solved)

    def solve(self, snapshot: Snapshot) -> Allocation:
        """The policy's shares; none where there is no job."""
        if not len(snapshot.jobs):
            none = np.zeros((0, len(snapshot.slots)))
            units = np.zeros((0, snapshot.member.shape[1]), np.int64)
            return Allocation(units, none, SolveReport("closed-form"))
        return self.policy.allocate(snapshot)

    def settle(self, snapshot: Snapshot, state: SharesState) -> tuple[Accounts, SharesState]:
        """Turn time received into time owed. Gavel then starts every unit at half a round again."""
        elapsed_s = snapshot.now_s - state.settled_s
        state.settled_s, state.solved = snapshot.now_s, True
        if not self.profile.reset_accounts:
            deficit = _owed(snapshot, elapsed_s)
            np.maximum(deficit, -self.profile.round_s, out=deficit)
            zero = np.zeros_like(deficit)
            return Accounts(zero, deficit, np.zeros_like(snapshot.handed_out_s)), state
        half = self.profile.round_s / 2
        due = np.where(snapshot.allocated[:, None], snapshot.share * elapsed_s, 0.0)
        deficit = snapshot.deficit_s + (due - (snapshot.received_s - half))
        received = np.full_like(deficit, half)
        handed_out = np.zeros_like(snapshot.handed_out_s)
        if len(received):  # one after the other, as Gavel adds them up
            handed_out = np.cumsum(received, axis=0)[-1]
        return Accounts(received, deficit, handed_out), state

    def plan(self, snapshot: Snapshot, state: SharesState) -> tuple[RoundPlan, SharesState]:
        """The next round."""
        runs = _runs(snapshot)
        if self.profile.type_by_type:
            first, second, third = _gavel_keys(snapshot, runs)
        else:
            first, second, third = self._keys(snapshot, state, runs)
        if not self.policy.conserving:
            runs &= first > 0
        unit, slot = select(
            first,
            second,
            third,
            runs,
            snapshot.member,
            snapshot.scale,
            snapshot.capacity.astype(np.int64),
            snapshot.slot_type,
            self._order(snapshot, state),
            self.profile.type_by_type and not self._one_queue,
            len(snapshot.jobs),
        )
        if not self.profile.place_unallocated:
            known = snapshot.allocated[unit]
            unit, slot = unit[known], slot[known]
        if self.profile.type_by_type and self._one_queue:
            by_slot = np.argsort(slot, kind="stable")
            unit, slot = unit[by_slot], slot[by_slot]
        return RoundPlan(unit, slot), state

    @property
    def _one_queue(self) -> bool:
        """Gavel's option --enable_global_queue, known to policies that were recorded with it."""
        return bool(getattr(self.policy, "global_queue", False))

    def _order(self, snapshot: Snapshot, state: SharesState) -> Ints:
        """Slots in the order in which they are filled."""
        rank = {name: i for i, name in enumerate(self.profile.type_order)}
        names = [slot.accelerator for slot in snapshot.slots]
        order = sorted(range(len(names)), key=lambda i: (rank.get(names[i], len(rank)), names[i]))
        if self.profile.type_by_type and not (self.policy.aware or self.policy.packed):
            assert state.shuffler is not None
            state.shuffler.shuffle(order)
        return np.array(order, np.int64)

    def _keys(
        self, snapshot: Snapshot, state: SharesState, runs: Bools
    ) -> tuple[Floats, Floats, Floats]:
        """What each unit is owed by the end of the coming round, on slots where it has a share; what is
        left over goes to whoever runs fastest there relative to its best.

        A unit keeps its slot unless another is owed more by ``patience`` times what moving costs.
        """
        owed = _owed(snapshot, snapshot.now_s - state.settled_s)
        first = np.maximum(owed + snapshot.share * self.profile.round_s, 0.0)
        first[snapshot.share <= 0] = 0.0
        here = np.arange(len(snapshot.slots)) == snapshot.running_on[:, None]
        cost = np.where(snapshot.member >= 0, snapshot.restart_s[snapshot.member], 0.0).max(axis=1)
        first += here * (self.profile.patience * cost)[:, None]
        speed = snapshot.rate.sum(axis=2)
        best = speed.max(axis=1, initial=0.0, keepdims=True)
        relative = np.divide(speed, best, out=np.zeros_like(speed), where=best > 0)
        return first, here * 1.0, np.where(runs, relative, 0.0)


def _owed(snapshot: Snapshot, elapsed_s: float) -> Floats:
    """(units, slots) seconds owed: due by the shares less received, from the last settling on; time
    on slots without a share was left over by others and is not held against the unit."""
    owed = snapshot.deficit_s + snapshot.share * elapsed_s - snapshot.received_s
    return np.where(snapshot.share > 0, owed, 0.0)


def _runs(snapshot: Snapshot) -> Bools:
    """(units, slots) where every member of the unit has a rate."""
    runs: Bools = snapshot.rate[:, :, 0] > 0
    for k in range(1, snapshot.member.shape[1]):
        runs &= (snapshot.rate[:, :, k] > 0) | (snapshot.member[:, k] < 0)[:, None]
    return runs


def _gavel_keys(snapshot: Snapshot, runs: Bools) -> tuple[Floats, Floats, Floats]:
    """Gavel's order: share over the fraction of time received, then deficit, then share."""
    share, handed_out = snapshot.share, snapshot.handed_out_s
    some = np.broadcast_to(handed_out != 0, share.shape)
    fraction = np.divide(snapshot.received_s, handed_out, out=np.zeros_like(share), where=some)
    priority = share * 1e9
    np.divide(share, fraction, out=priority, where=fraction > 0)
    priority[(share == 0) | ~runs | ~snapshot.allocated[:, None]] = 0.0
    return priority, snapshot.deficit_s, share
