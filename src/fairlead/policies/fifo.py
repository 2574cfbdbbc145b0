"""First in, first out: jobs in order of submission, each on one accelerator type.

``FastestFirstFifo`` and ``FifoShares`` give shares of 0 and 1 at each solve, as Gavel does;
``FifoPlanner`` plans the rounds itself.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.allocation_checks import check_allocation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.plan import PlannerState, RoundPlan
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.hash_random import hash_choice
from fairlead.policies.ranked import allocated_slot
from fairlead.policies.rounds_only import RoundsOnlyPlanner


class FastestFirstFifo:
    """x_ij = 1 for the type j with the largest T_ij among those with s_i devices left, jobs by id.

    From scratch at each solve. A job for which no type has enough devices left holds up those behind
    it; one whose best such type has rate 0 is passed over. Source: FIFO_Perf of Gavel's release, whose
    allocations it equals.
    """

    name = "fifo_aware"
    heterogeneity_aware = True
    space_sharing = False
    work_conserving = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        slot, _ = first_come(snapshot)
        share = np.zeros((len(slot), len(snapshot.slots)))
        runs = np.flatnonzero(slot >= 0)
        share[runs, slot[runs]] = 1.0
        return check_allocation(allocation(snapshot, share, SolveReport("closed-form")), snapshot)


def first_come(snapshot: Snapshot) -> tuple[Ints, int]:
    """(jobs,) slots that ``FastestFirstFifo`` gives, -1 = none, and the position of the job at the head of
    the line, for which no type has enough devices left; the number of jobs if there is none."""
    slots = np.full(len(snapshot.jobs), -1, np.int64)
    free = snapshot.capacity.copy()
    for job, scale in enumerate(snapshot.job_scale.tolist()):
        fits = free[snapshot.accelerator_of_slot] >= scale
        if not fits.any():
            return slots, job
        slot = int(np.where(fits, snapshot.solo_rate[job], -1.0).argmax())
        if snapshot.solo_rate[job, slot] > 0:
            slots[job] = slot
            free[snapshot.accelerator_of_slot[slot]] -= scale
    return slots, len(slots)


@dataclass(frozen=True, kw_only=True, slots=True)
class FifoShares:
    """x_ij = 1 for a type j drawn at random among those with s_i devices left, kept until job i is done.

    New jobs by id; the first that fits nowhere holds up those behind it. This is what FIFO of Gavel's
    release means to do; the release itself never applies the type that it draws and gives out more
    devices than there are (a defect), which is not reproduced.
    """

    seed: int
    name: str = "fifo"
    heterogeneity_aware: bool = False
    space_sharing: bool = False
    work_conserving: bool = False

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """The shares; they have no objective."""
        queue = _Queue(snapshot, heterogeneity_aware=False, seed=self.seed)
        job, slot = queue.fill(allocated_slot(snapshot))
        share = np.zeros((len(snapshot.jobs), len(snapshot.slots)))
        share[job, slot] = 1.0
        return check_allocation(allocation(snapshot, share, SolveReport("closed-form")), snapshot)


@dataclass(frozen=True, slots=True)
class FifoPlanner(RoundsOnlyPlanner):
    """Rounds in order of submission. Aware: jobs by id take the fastest type with enough free devices,
    anew in each round, so a job moves on when a faster type is free, if that gains more than the start
    costs. Agnostic: a type drawn at random among those with enough free devices, kept until the job ends.

    The first job for which no type has enough free devices holds up those behind it; a job that no type
    could run even if it were empty is passed over, and so is, if aware, one that the types with free
    devices cannot run: it has the first choice again in the next round. Where devices are lost, jobs
    give way from the last id on.
    """

    seed: int
    heterogeneity_aware: bool
    space_sharing: bool = False

    @property
    def name(self) -> str:
        """``fifo_aware`` takes the fastest type, ``fifo`` a random one."""
        return "fifo_aware" if self.heterogeneity_aware else "fifo"

    def plan(self, snapshot: Snapshot, state: PlannerState) -> tuple[RoundPlan, PlannerState]:
        """The next round."""
        job, slot = _Queue(snapshot, self.heterogeneity_aware, self.seed).fill(snapshot.running_on)
        return RoundPlan(job, slot), state


class _Queue:
    """Fills free devices by id; ``fill`` is called once."""

    def __init__(self, snapshot: Snapshot, heterogeneity_aware: bool, seed: int) -> None:
        self.rate: Floats = snapshot.solo_rate
        self.scale: Ints = snapshot.job_scale
        self.id: Ints = snapshot.jobs
        self.accelerator_of_slot: Ints = snapshot.accelerator_of_slot
        self.capacity: Floats = snapshot.capacity
        self.free: Floats = snapshot.capacity.copy()
        self.steps_left: Floats = snapshot.steps_left
        self.restart_s: Floats = snapshot.restart_s
        self.heterogeneity_aware, self.seed = heterogeneity_aware, seed

    def fill(self, previous: Ints) -> tuple[Ints, Ints]:
        """(running,) jobs in order of id, and their slots. previous: (jobs,) slot so far, -1 = none."""
        self.previous = previous
        slot = np.full(len(previous), -1, np.int64)
        if not self.heterogeneity_aware:
            self._keep(previous, slot)
        waiting = np.flatnonzero((slot < 0) & self._could_run())
        for job in waiting.tolist():
            if not (self.free > 0).any():
                break
            enough = self.free[self.accelerator_of_slot] >= self.scale[job]
            fits = enough & (self.rate[job] > 0)
            if not fits.any():
                if self.heterogeneity_aware and enough.any():
                    continue
                break
            slot[job] = self._choose(job, fits)
            self.free[self.accelerator_of_slot[slot[job]]] -= self.scale[job]
        runs = np.flatnonzero(slot >= 0)
        return runs, slot[runs]

    def _keep(self, previous: Ints, slot: Ints) -> None:
        """Jobs stay where they are and can run, the earliest first where not all fit any more."""
        can_stay = (previous >= 0) & (self.rate[np.arange(len(previous)), previous] > 0)
        allocated = np.flatnonzero(can_stay)
        accelerator_index, scale = (
            self.accelerator_of_slot[previous[allocated]],
            self.scale[allocated],
        )
        if (np.bincount(accelerator_index, scale, len(self.free)) <= self.free).all():
            slot[allocated] = previous[allocated]
            self.free -= np.bincount(accelerator_index, scale, len(self.free))
            return
        for job, k, devices in zip(
            allocated.tolist(), accelerator_index.tolist(), scale.tolist(), strict=True
        ):
            if devices <= self.free[k]:
                slot[job] = previous[job]
                self.free[k] -= devices

    def _could_run(self) -> Bools:
        """(jobs,) whether some type could run it if it were empty."""
        large_enough = self.capacity[self.accelerator_of_slot] >= self.scale[:, None]
        could = (large_enough & (self.rate > 0)).any(axis=1)
        return np.asarray(could)

    def _choose(self, job: int, fits: Bools) -> int:
        """The slot for a job, of the (slots,) that could take it."""
        if self.heterogeneity_aware:
            best = int(np.where(fits, self.rate[job], -1.0).argmax())
            here = int(self.previous[job])
            if here >= 0 and fits[here] and not self._worth_moving(job, here, best):
                return here
            return best
        among = np.flatnonzero(fits)
        return int(among[hash_choice(self.seed, int(self.id[job]), len(among))])

    def _worth_moving(self, job: int, here: int, there: int) -> bool:
        """Return whether the job is done earlier if it restarts on the faster type."""
        left = self.steps_left[job]
        return bool(
            left / self.rate[job, here] > self.restart_s[job] + left / self.rate[job, there]
        )
