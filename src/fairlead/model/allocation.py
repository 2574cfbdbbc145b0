"""Long-run shares and what is known about how good they are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairlead.errors import AllocationError
from fairlead.model.arrays import Floats, Ints

if TYPE_CHECKING:
    from fairlead.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SolveReport:
    """How an allocation came about. Nothing here depends on the wall clock, so it can be journalled."""

    status: str  # "closed-form", "optimal", "recorded"
    objective: float | None = None  # the policy's own, as its docstring defines it
    bound: float | None = None  # a proven bound on the objective, from unaggregated data
    violation: float = 0.0  # largest excess over a constraint, relative to its right-hand side
    iterations: int = 0
    warm: bool = False
    basis: tuple[bytes, ...] = ()  # opaque: where the next solve may start from

    @property
    def gap(self) -> float | None:
        """Relative distance between objective and bound; None where the policy has no bound."""
        if self.objective is None or self.bound is None:
            return None
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-12)


@dataclass(frozen=True, slots=True)
class Allocation:
    """share[u, t]: fraction of wall-clock time that unit u should spend on slot type t."""

    units: Ints  # (units, width) job ids, -1 behind the last member
    share: Floats  # (units, slots) in [0, 1]
    report: SolveReport

    def check(self, snapshot: "Snapshot", tolerance: float = 1e-6) -> "Allocation":
        """Itself, or AllocationError with the numbers: time of each job <= 1, capacity of each type."""
        share = self.share
        if not np.isfinite(share).all() or share.min(initial=0.0) < -tolerance:
            raise AllocationError(f"a share is {share.min(initial=0.0)}, outside [0, 1]")
        used = self.usage(snapshot)
        over = np.flatnonzero(used > snapshot.capacity * (1 + tolerance) + tolerance)
        if over.size:
            t = int(over[0])
            raise AllocationError(
                f"{type_name(snapshot, t)}: {used[t]:.3f} devices shared out of "
                f"{snapshot.capacity[t]:.0f}"
            )
        time = self.time(snapshot)
        late = np.flatnonzero(time > 1 + tolerance)
        if late.size:
            j = int(late[0])
            raise AllocationError(
                f"job {snapshot.jobs[j]}: shares add up to {time[j]:.6f}, above 1"
            )
        return self

    def usage(self, snapshot: "Snapshot") -> Floats:
        """(types,) devices shared out."""
        scale = snapshot.job_scale.astype(np.float64)[self.member(snapshot)[:, 0]]
        by_slot = scale @ self.share
        return np.bincount(snapshot.slot_type, by_slot, len(snapshot.capacity)).astype(np.float64)

    def time(self, snapshot: "Snapshot") -> Floats:
        """(jobs,) fraction of time over all units and slot types."""
        busy = self.share.sum(axis=1)
        jobs = len(snapshot.jobs)
        time = np.zeros(jobs)
        for column in self.member(snapshot).T:
            here = column >= 0
            time += np.bincount(column[here], busy[here], jobs)
        return time

    def member(self, snapshot: "Snapshot") -> Ints:
        """(units, width) positions of the jobs in the snapshot, -1 = none."""
        position = np.searchsorted(snapshot.jobs, self.units)
        position[self.units < 0] = -1
        return position


def type_name(snapshot: "Snapshot", index: int) -> str:
    """The accelerator type behind a column of (types,) arrays."""
    slot = int(np.flatnonzero(snapshot.slot_type == index)[0])
    return snapshot.slots[slot].accelerator
