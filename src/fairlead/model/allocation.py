"""Long-run shares and what is known about how good they are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairlead.errors import AllocationError
from fairlead.model.allocation_sums import tally, throughput
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
    unmet: tuple[int, ...] = ()  # ids of jobs that will miss their deadlines at these shares

    def __post_init__(self) -> None:
        """Plain numbers, whatever arithmetic they come from: a report is journalled and printed."""
        for name in ("objective", "bound", "violation"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))
        object.__setattr__(self, "unmet", tuple(int(job) for job in self.unmet))

    @property
    def gap(self) -> float | None:
        """Relative distance between objective and bound; None where the policy has no bound."""
        if self.objective is None or self.bound is None:
            return None
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-12)


@dataclass(frozen=True, slots=True)
class Allocation:
    """share[u, t]: fraction of wall-clock time that job group u should spend on slot type t."""

    job_groups: Ints  # (groups, width) job ids, -1 behind the last member
    share: Floats  # (groups, slots) in [0, 1]
    report: SolveReport

    def check(self, snapshot: "Snapshot", tolerance: float = 1e-6) -> "Allocation":
        """Itself, or AllocationError with the numbers: time of each job <= 1, capacity of each type."""
        share = self.share
        least = float(share.min(initial=0.0))
        if not least >= -tolerance:  # nan included; with inf a time below is inf
            raise AllocationError(f"a share is {least}, outside [0, 1]")
        used, time = self.tally(snapshot)
        over = np.flatnonzero(used > snapshot.capacity * (1 + tolerance) + tolerance)
        if over.size:
            t = int(over[0])
            raise AllocationError(
                f"{type_name(snapshot, t)}: {used[t]:.3f} devices shared out of "
                f"{snapshot.capacity[t]:.0f}"
            )
        late = np.flatnonzero(time > 1 + tolerance)
        if late.size:
            j = int(late[0])
            raise AllocationError(
                f"job {snapshot.jobs[j]}: shares add up to {time[j]:.6f}, above 1"
            )
        return self

    def tally(self, snapshot: "Snapshot") -> tuple[Floats, Floats]:
        """(types,) devices shared out, and (jobs,) fraction of time over all job groups and slot types."""
        groups, share = np.ascontiguousarray(self.job_groups), np.ascontiguousarray(self.share)
        scale, types = snapshot.job_scale, len(snapshot.capacity)
        return tally(snapshot.jobs, groups, share, scale, snapshot.accelerator_of_slot, types)

    def usage(self, snapshot: "Snapshot") -> Floats:
        """(types,) devices shared out."""
        return self.tally(snapshot)[0]

    def time(self, snapshot: "Snapshot") -> Floats:
        """(jobs,) fraction of time over all job groups and slot types."""
        return self.tally(snapshot)[1]

    def throughput(self, snapshot: "Snapshot") -> Floats:
        """(jobs,) effective throughput in steps/s: rate times share, alone and in pairs."""
        colocated_rate = (
            np.zeros((0, 0, 0)) if snapshot.colocated_rate is None else snapshot.colocated_rate
        )
        return throughput(
            snapshot.jobs,
            np.ascontiguousarray(self.job_groups),
            np.ascontiguousarray(self.share),
            np.ascontiguousarray(snapshot.solo_rate),
            snapshot.job_type,
            np.ascontiguousarray(colocated_rate),
        )

    def group_members(self, snapshot: "Snapshot") -> Ints:
        """(groups, width) positions of the jobs in the snapshot, -1 = none."""
        position = np.searchsorted(snapshot.jobs, self.job_groups)
        position[self.job_groups < 0] = -1
        return position


def type_name(snapshot: "Snapshot", index: int) -> str:
    """The accelerator type behind a column of (types,) arrays."""
    slot = int(np.flatnonzero(snapshot.accelerator_of_slot == index)[0])
    return snapshot.slots[slot].accelerator
