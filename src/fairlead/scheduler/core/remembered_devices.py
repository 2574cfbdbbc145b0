"""The devices that jobs had before they ceased to run, for those that may come back to them."""

from collections.abc import Callable, Iterator

import numpy as np

from fairlead.model.arrays import Ints
from fairlead.scheduler.placement.records import PreviousRound
from fairlead.scheduler.placement.undo_moves import SlotAndDevices


class RememberedDevices:
    """Of jobs that were paused, and, where it costs less to go on where a job ran last, of jobs that others
    have preempted."""

    def __init__(self, *, preempted_return: bool) -> None:
        """preempted_return: whether preempted jobs go back to their devices where they can."""
        self._preempted_return = preempted_return
        self._paused: dict[int, SlotAndDevices] = {}  # job -> slot and devices that it had alone
        self._preempted: dict[int, SlotAndDevices] = {}

    def __bool__(self) -> bool:
        return bool(self._paused or self._preempted)

    def forget(self, job: int) -> None:
        """A job has left."""
        self._paused.pop(job, None)
        self._preempted.pop(job, None)

    def pause(self, job: int, slot: int, devices: Ints) -> None:
        """A job that had these devices is paused."""
        self._paused[job] = slot, devices

    def add_to(
        self, before: PreviousRound, planned: Ints, ids: Ints
    ) -> tuple[PreviousRound, list[int]]:
        """Return the previous round with job groups of the plan that were not in it, as if they had held
        their last devices, unless others have those; and the rows of those that were preempted.

        planned: (rows,) job groups of the plan. ids: (rows, width) their jobs, -1 = none.
        """
        group, slot, offsets, devices = before
        known, holder = set(group.tolist()), np.repeat(group, np.diff(offsets))
        taken = set(devices[holder >= 0].tolist())
        staying = set(devices[np.isin(holder, planned)].tolist())
        returned = []
        for row, job in self._candidates(planned, ids, known):
            found, others = self._paused.pop(job, None), taken
            if found is None:
                found, others = self._preempted.pop(job, None), staying
                if found is None or others.intersection(found[1].tolist()):
                    continue
                returned.append(row)
            elif others.intersection(found[1].tolist()):
                continue
            group, slot = np.append(group, row), np.append(slot, found[0])
            offsets = np.append(offsets, offsets[-1] + len(found[1]))
            devices = np.append(devices, found[1])
            staying.update(found[1].tolist())
        return PreviousRound(group, slot, offsets, devices), returned

    def _candidates(self, planned: Ints, ids: Ints, known: set[int]) -> Iterator[tuple[int, int]]:
        """Job groups of one job that did not run, with their jobs."""
        for row, members in zip(planned.tolist(), ids.tolist(), strict=True):
            solo = [job for job in members if job >= 0]
            if row in known and len(solo) == 1:
                self._paused.pop(solo[0], None)
            elif len(solo) == 1:
                yield row, solo[0]

    def note_round(
        self, before: PreviousRound, placed: Ints, group_ids: Callable[[], Ints]
    ) -> None:
        """A round begins: take note of who has to leave its devices. placed: (rows,) job groups that run now;
        group_ids: returns the (groups, width) jobs of all job groups."""
        if not self._preempted_return:
            return
        left = np.flatnonzero((before.group >= 0) & (before.slot >= 0))
        left = left[~np.isin(before.group[left], placed)]
        ids = group_ids()[before.group[left]] if len(left) else left
        for k, members in zip(left.tolist(), ids.tolist(), strict=True):
            solo = [job for job in members if job >= 0]
            if len(solo) == 1:
                held = before.devices[before.offsets[k] : before.offsets[k + 1]].copy()
                self._preempted[solo[0]] = int(before.slot[k]), held
