"""Job groups that run from one round to the next: starts, moves, placement intervals, device-seconds."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import StartRound
from fairlead.model.events import RoundEnded
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.placement.servers import are_scattered
from fairlead.simulator.recording.device_time import DeviceTime
from fairlead.simulator.recording.job_columns import JobColumns
from fairlead.simulator.recording.placement_intervals import PlacementIntervals
from fairlead.simulator.recording.recorder_kernels import (
    Charging,
    GroupsBefore,
    GroupsNow,
    RoundReport,
    apply_round_report,
    begin,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargingRules:
    """Rules of the profile for charging device-seconds."""

    idle_gaps: bool = False  # those before a round too, and no rounds that do not count
    startup: bool = True  # those that went into starting too


class GroupCounts(NamedTuple):
    """Jobs that run in a round, start with it, were preempted by it, and move."""

    running: int
    started: int
    preempted: int
    moved: int


class RoundUse(NamedTuple):
    """Use of devices in a round."""

    busy: Floats  # (slots,) device-seconds in use
    lost_s: (
        float  # device-seconds that went into starting, and of job groups whose work does not count
    )
    spread_s: float  # device-seconds of job groups on more servers than needed


class RunningGroups:
    """The job groups of the round in force, or of the last one: single jobs and packed pairs."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        charging: ChargingRules,
        keep_intervals: bool = True,
    ) -> None:
        """throughputs: one column per accelerator type; keep_intervals: if not, there are none in the end."""
        self.intervals = PlacementIntervals(keep_intervals)
        self.in_force = False  # is the round not over?
        self._cluster = cluster
        self._charging = charging
        self._price: Floats = (
            cluster.price.copy()
        )  # a kernel's record: an array that can be written
        self._fewest = cluster.fewest_servers(
            max(one.scale_factor for one in throughputs.job_types)
        )
        self._last_end_s = 0.0
        self._now: _Running | None = None

    def start(
        self, command: StartRound, group_member: Ints, jobs: JobColumns, round_: int
    ) -> GroupCounts:
        """Begin a round. group_member: (groups, width) positions of its jobs; round_: its number."""
        now = GroupsNow(job=group_member, kept=command.kept, round=round_, time_s=command.time_s)
        counts = self._switch(now, jobs)
        self._now = self._running(command, group_member)
        self.in_force = len(group_member) > 0
        return counts

    def end(self, event: RoundEnded, jobs: JobColumns, time: DeviceTime) -> RoundUse:
        """End the round: add in place what its jobs did, and the device-seconds that they used."""
        now, charging = self._now, self._charging
        assert now is not None
        start, start_s = now.start, now.start.time_s
        now.end_s = event.finish_s
        busy = np.zeros(len(self._cluster.slots))
        report = RoundReport(
            job=now.group_member,
            slot=now.accelerator,
            offsets=start.offsets,
            steps=event.steps,
            finish_s=event.finish_s,
            outcome=event.outcome,
            restart_s=event.restart_s,
            start_s=start_s,
        )
        charged = Charging(
            price=self._price,
            busy_s=busy,
            charged_s=time.charged_s,
            from_s=self._last_end_s if charging.idle_gaps else start_s,
            only_good=charging.idle_gaps,
            with_starts=charging.startup,
        )
        lost_s = apply_round_report(report, jobs.work, charged)
        time.busy_s += busy
        spread_s = 0.0
        if now.scattered is not None and now.scattered.any():
            used_s = (event.finish_s - start_s) * np.diff(start.offsets) * now.scattered
            time.spread_s += np.bincount(now.accelerator, used_s, len(busy))
            spread_s = float(used_s.sum())
        self._last_end_s = event.time_s
        self.in_force = False
        return RoundUse(busy, lost_s, spread_s)

    def close(self, now_s: float, jobs: JobColumns, round_: int) -> None:
        """End the run: job groups that run have done so until now."""
        if self._now is not None:
            none: Bools = np.zeros(0, np.bool_)
            self._switch(GroupsNow(self._now.group_member[:0], none, round_, now_s), jobs)
        self._now = None

    def _switch(self, now: GroupsNow, jobs: JobColumns) -> GroupCounts:
        """Replace the job groups that ran until now by others."""
        before = self._now or _Running.nothing(now.job)
        offsets, devices = before.start.offsets, before.start.devices
        groups = GroupsBefore(
            job=before.group_member,
            accelerator=before.accelerator,
            end_s=before.stopped_s,
            offsets=offsets,
            devices=devices,
        )
        block = self.intervals.room(len(before.group_member), len(devices))
        return GroupCounts._make(begin(now, groups, jobs.runs, block))

    def _running(self, start: StartRound, group_member: Ints) -> "_Running":
        cluster = self._cluster
        accelerator = cluster.device_type[start.devices[start.offsets[:-1]]]
        scattered: Bools | None = None
        if cluster.scatterable:
            scattered = are_scattered(
                start.offsets, start.devices, cluster.device_type, cluster.device_node, self._fewest
            )
        return _Running(start, group_member, accelerator, scattered)


class _Running:
    """The job groups of a round; members are positions of jobs."""

    def __init__(
        self, start: StartRound, group_member: Ints, accelerator: Ints, scattered: Bools | None
    ) -> None:
        self.start = start
        self.group_member = group_member
        self.accelerator = accelerator  # (groups,) accelerator type
        self.scattered = (
            scattered  # (groups,) on more servers than needed; None: no job group can be
        )
        self.end_s: Floats | None = None  # (groups,) when they stopped; None: not reported yet

    @property
    def stopped_s(self) -> Floats:
        """(groups,) up to when they are known to have run."""
        if self.end_s is None:
            return np.full(len(self.group_member), self.start.time_s)
        return self.end_s

    @staticmethod
    def nothing(group_member: Ints) -> "_Running":
        """Return the state before the first round. group_member: has the width of job groups."""
        none: Ints = np.zeros(0, np.int64)
        offsets, kept = np.zeros(1, np.int64), np.zeros(0, np.bool_)
        start = StartRound(
            time_s=0.0,
            round=-1,
            length_s=0.0,
            job_groups=group_member[:0],
            slot=none,
            devices=none,
            offsets=offsets,
            kept=kept,
            active=0,
        )
        return _Running(start, group_member[:0], none, None)
