"""The core's decisions about jobs, copied when it decides, for whoever asks from another thread."""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from fairlead.cluster.server.hysteresis import (
    BoundTime,
    PreemptionState,
    PreemptionTime,
    next_preemption,
    next_turn,
)
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import SlotType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.shares_planner import SharesPlanner

MIN_SHARE = 0.0005  # part of the time below which a share is none


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class DecidedShares:
    """Arrays of its own: nobody changes them."""

    time_s: float = 0.0
    slots: tuple[SlotType, ...] = ()
    space_sharing: bool = False  # may the policy run two jobs on one set of devices?
    solved: bool = False  # has the policy answered since this core was made?
    job: Ints = field(default_factory=_none)  # (jobs,) ids, ascending
    scale: Ints = field(default_factory=_none)  # (jobs,) devices
    row: Ints = field(default_factory=_none)  # (jobs,) of the table
    group_member: Ints = field(
        default_factory=lambda: np.zeros((0, 1), np.int64)
    )  # (groups, width)
    share: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (groups, slots)
    allocated: Ints = field(default_factory=_none)  # (groups,) 1 = was part of the last answer
    table: Throughputs | None = None
    preemption: PreemptionState | None = None  # None: the policy knows no preemption hysteresis
    policy: str = ""  # that has decided, "" = it is not known

    @staticmethod
    def of(
        s: Scheduler, now_s: float, policy: str = "", before: "DecidedShares | None" = None
    ) -> "DecidedShares":
        """Return the shares as of now. policy: the one in force; before: what was decided before this, by
        whose policy the shares are until this one has answered."""
        jobs, groups = s.data.ledger.jobs, s.data.ledger.groups
        solved = s.data.planning.previous is not None
        # The core keeps the shares of the policy before: they are in force until one of shares has answered,
        # and mean nothing to one that plans rounds.
        has_shares = solved or isinstance(s.data.planning.planner, SharesPlanner)
        if has_shares and not solved and before is not None and before.policy:
            policy, has_shares = before.policy, bool(before.share.any())
        return DecidedShares(
            time_s=now_s,
            policy=policy,
            slots=s.data.slots,
            space_sharing=s.data.planning.planner.space_sharing,
            solved=solved,
            job=jobs.id.copy(),
            scale=jobs.scale.copy(),
            row=jobs.rate_row.copy(),
            group_member=groups.members.copy(),
            share=groups.share * has_shares,
            allocated=groups.allocated.astype(np.int64) * has_shares,
            table=s.data.undominated,
            preemption=PreemptionState.of(s, now_s),
        )

    def at(self, job: int) -> int | None:
        """The position of a job, None = it takes no part as far as this goes."""
        at = int(np.searchsorted(self.job, job))
        return at if at < len(self.job) and self.job[at] == job else None

    def shares(self, job: int) -> dict[str, float]:
        """Accelerator type -> share of the time, alone and in pairs; those of 0 are left out."""
        at = self.at(job)
        if at is None:
            return {}
        mine = (self.group_member == at).any(axis=1)
        share = np.asarray(self.share[mine].sum(axis=0))
        found: dict[str, float] = {}
        for slot, part in zip(self.slots, share.tolist(), strict=True):
            if part > MIN_SHARE:
                found[slot.accelerator] = found.get(slot.accelerator, 0.0) + part
        return found

    def answered(self, job: int) -> bool:
        """Return whether the job was part of the policy's last answer, with a share or without."""
        at = self.at(job)
        return at is not None and bool(self.allocated[(self.group_member == at).any(axis=1)].any())

    def preemption_time(self, job: int) -> PreemptionTime | None:
        """When a job that waits is preferred to one that runs; None where nothing is known of that."""
        at = self.at(job)
        if at is None or self.preemption is None:
            return None
        return next(
            (next_preemption(self.preemption, group) for group in self._alone(at)),
            None,
        )

    def bound_time(self, job: int, holders: Collection[int]) -> BoundTime | None:
        """When a job runs again that is bound to devices of these jobs; None where nothing is known of
        that, or they take turns there."""
        at, held = self.at(job), [found for one in holders if (found := self.at(one)) is not None]
        if at is None or self.preemption is None:
            return None
        runs = self.preemption.running_on >= 0
        others = np.flatnonzero(np.isin(self.group_member, held).any(axis=1) & runs)
        state = self.preemption
        return next((next_turn(state, group, others) for group in self._alone(at)), None)

    def _alone(self, at: int) -> list[int]:
        """The job group of a job alone, by its position; none: it has none."""
        solo = (self.group_member[:, 0] == at) & (self.group_member[:, 1:] < 0).all(axis=1)
        found: list[int] = np.flatnonzero(solo).tolist()
        return found

    def partners(self, job: int) -> dict[int, float]:
        """Jobs with which it has a share as a pair -> part of the time."""
        at = self.at(job)
        if at is None or self.group_member.shape[1] < 2:
            return {}
        mine = (self.group_member == at).any(axis=1) & (self.group_member[:, 1] >= 0)
        found = {}
        for group in np.flatnonzero(mine).tolist():
            one, two = self.group_member[group].tolist()
            part = float(self.share[group].sum())
            if part > MIN_SHARE:
                found[int(self.job[two if one == at else one])] = part
        return found
