"""The tables of a simulation without rounds: a stretch of time under the same shares stands for a round."""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.commands import Command, StartRound
from fairlead.model.events import (
    Event,
    ProgressCorrected,
    Solved,
)
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.recording.recorder import Recorder
from fairlead.simulator.recording.round_columns import RoundRow
from fairlead.simulator.recording.running_groups import ChargingRules


class FluidRecorder(Recorder):
    """Observe a run without rounds, then ask for its tables. There are no placement intervals, starts
    and moves; ``served_fraction`` is the part of its time in the system that a job's shares add up to."""

    def __init__(
        self, cluster: Cluster, throughputs: Throughputs, slots: tuple[SlotType, ...]
    ) -> None:
        """slots: the columns of allocations."""
        super().__init__(cluster, throughputs, ChargingRules(idle_gaps=True), solves=True)
        self._accelerator_of_slot: Ints = np.array(
            [cluster.accelerators.index(s.accelerator) for s in slots]
        )
        self._is_scattered: Bools = np.array([s.locality is Locality.SCATTERED for s in slots])
        none: Ints = np.zeros(0, np.int64)
        self._flowing = none  # (jobs,) positions of those in force
        self._time: Floats = np.zeros(0)  # (jobs,) part of its time that each is on devices
        self._dollars: Floats = np.zeros(0)  # (jobs,) $ per second
        self._used: Floats = np.zeros(len(self.cluster.slots))  # (types,) devices in use
        self._scattered: Floats = np.zeros(
            len(self.cluster.slots)
        )  # of these, by jobs that are scattered

    def event(self, event: Event) -> None:
        """Take note of an event."""
        super().event(event)
        match event:
            case ProgressCorrected():
                self._progress(event)
            case Solved(allocation=made) if made is not None:
                self._share_out(made.job_groups, made.share)

    def command(self, command: Command) -> None:
        """Take note of a command; rounds are all empty."""
        if not isinstance(command, StartRound):
            super().command(command)

    def _share_out(self, groups: Ints, share: Floats) -> None:
        """Other shares from now on. job groups: (groups, width) ids; share: (groups, slots)."""
        col, types = self.records.columns.arrays, len(self.cluster.slots)
        group_member = self.records.index.find(groups)
        devices = share * col.scale[group_member[:, 0]][:, None]
        by_slot = devices.sum(axis=0)
        self._used = _sum_by(self._accelerator_of_slot, by_slot, types)
        self._scattered = _sum_by(self._accelerator_of_slot, by_slot * self._is_scattered, types)
        here = group_member >= 0
        row, job = np.nonzero(here)[0], group_member[here]
        n = self.records.columns.n
        dollars = devices @ self.cluster.price[self._accelerator_of_slot] / 3600.0
        self._flowing = self.records.index.row_of_id()
        self._time = _sum_by(job, share.sum(axis=1)[row], n)[self._flowing]
        self._dollars = _sum_by(job, dollars[row], n)[self._flowing]
        runs = self._flowing[self._time > 0]
        new = runs[np.isnan(col.start_s[runs])]
        col.start_s[new] = self.now_s
        col.rounds[runs] += 1
        self.rounds.add(
            RoundRow(
                time_s=self.now_s,
                active=len(self._flowing),
                running=len(runs),
                started=len(new),
                waiting=len(self._flowing) - len(runs),
                solved=True,
                capacity=self.time.capacity,
            )
        )

    def _progress(self, event: ProgressCorrected) -> None:
        col, row = self.records.columns.arrays, self.rounds.last
        lasted_s = event.time_s - row.time_s
        seconds = lasted_s - row.seconds
        busy_s = self._used * seconds
        row.seconds, row.busy = lasted_s, busy_s if row.busy is None else row.busy + busy_s
        self.time.busy_s += busy_s
        self.time.charged_s += busy_s
        self.time.spread_s += self._scattered * seconds
        col.run_s[self._flowing] += self._time * seconds
        col.cost[self._flowing] += self._dollars * seconds
        col.steps_done[self.records.index.find(event.jobs[:, None])[:, 0]] = event.steps_done

    def _served_fraction(self) -> Floats:
        col, n = self.records.columns.arrays, self.records.columns.n
        there_s = np.where(col.end[:n] > 0, col.end_s[:n], self.now_s) - col.arrival_s[:n]
        none = np.full(n, np.nan)
        return np.asarray(np.divide(col.run_s[:n], there_s, out=none, where=there_s > 0))

    def _contention(self) -> Floats:
        """Stretches count by how long they last."""
        seconds = np.array(self.rounds["seconds"], np.float64)
        jobs_s = np.append(0.0, np.cumsum(seconds * np.array(self.rounds["active"], np.float64)))
        until_s = np.append(0.0, np.cumsum(seconds))
        first, end = self.records.rounds_of_jobs(len(self.rounds))
        there_s = until_s[end] - until_s[first]
        mean = np.divide(
            jobs_s[end] - jobs_s[first],
            there_s,
            out=np.full(len(first), np.nan),
            where=there_s > 0,
        )
        return np.asarray(np.maximum(mean / float(self.cluster.capacity.sum()), 1.0))


def _sum_by(of: Ints, values: Floats, n: int) -> Floats:
    """(n,) sums of values by what they are of."""
    return np.asarray(np.bincount(of, values, n), np.float64)
