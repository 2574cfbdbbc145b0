"""Folds the events and commands of a run into three tables: jobs, rounds, placement intervals.

A placement interval is a time that a job spent on the same devices without a break. Like the journal, the
recorder is an observer of the driver; it costs a few vector operations per round.
"""

import numpy as np
import polars as pl

from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    Solve,
    StartRound,
    WakeAt,
)
from fairlead.model.events import (
    Event,
    JobsSubmitted,
    NodeLost,
    NodeRecovered,
    RequirementsChanged,
    RoundEnded,
    Solved,
)
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.recording.contention import ExclusiveTime, contention, profile_exclusive_s
from fairlead.simulator.recording.device_time import DeviceTime
from fairlead.simulator.recording.job_records import JobRecords
from fairlead.simulator.recording.job_table import JobTableInputs, job_table
from fairlead.simulator.recording.round_columns import RoundColumns, RoundRow
from fairlead.simulator.recording.running_groups import ChargingRules, RunningGroups


class Recorder:
    """Observe a run, then ask for its tables."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        charging: ChargingRules,
        *,
        solves: bool,
        exclusive_time: ExclusiveTime = profile_exclusive_s,
        keep_intervals: bool = True,
    ) -> None:
        """solves: does the planner ask for solves? (If so, isolated rates are taken at each of them, as
        Gavel does; if not, whenever jobs come or go.) exclusive_time: how the running time alone of jobs that
        adapt is found. keep_intervals: if not, their table stays empty, and a long run needs a fraction of
        the memory."""
        rates = throughputs.columns(cluster.slots)
        self.cluster = cluster
        self.solves = solves
        self.exclusive_time = exclusive_time
        self.n_solves = 0
        self.now_s = 0.0
        self.records = JobRecords(rates)
        self.groups = RunningGroups(cluster, rates, charging, keep_intervals)
        self.time = DeviceTime(cluster)
        self.rounds = RoundColumns(len(cluster.slots))
        self._changed = False  # have jobs come or gone since isolated rates were taken?
        self._solved = False  # since the last round began?
        self._adapting: list[RequirementsChanged] = []  # until the round is over

    # --- observing -------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Take note of an event."""
        self.now_s = max(self.now_s, event.time_s)
        match event:
            case RoundEnded():
                self._round_ended(event)
            case RequirementsChanged():
                self._adapting.append(event)
                self._adapt()
            case JobsSubmitted():
                self.time.begin(event.time_s)
                self.records.submit(event, len(self.rounds))
                self._changed = True
            case NodeLost() | NodeRecovered():
                self.time.count(self.now_s)
                self.time.change(event)
            case Solved():
                if event.allocation is not None:
                    self.records.targets.renew(event.allocation, self.now_s)

    def command(self, command: Command) -> None:
        """Take note of a command."""
        match command:
            case StartRound():
                self._start_round(command)
            case Solve():
                self.n_solves += 1
                self._solved = True
                self._renew_isolated()
            case EndJobs():
                self.records.end(command, len(self.rounds))
                self._changed = True
            case EndRound() | WakeAt():
                pass

    def _renew_isolated(self) -> None:
        self.records.isolated.renew(self.time.capacity)
        self._changed = False

    def _adapt(self) -> None:
        """Take over other batch sizes, when the round is over whose steps count at the old ones."""
        if self.groups.in_force:
            return
        for event in self._adapting:
            self.records.adapt(event, self.time.capacity)
        self._adapting.clear()

    def _start_round(self, start: StartRound) -> None:
        if self._changed and not self.solves:
            self._renew_isolated()
        records, number = self.records, len(self.rounds)
        group_member = records.index.find(start.job_groups)
        counts = self.groups.start(start, group_member, records.columns, number)
        self.rounds.add(
            RoundRow(
                time_s=start.time_s,
                active=start.active,
                running=len(group_member),
                started=counts.started,
                preempted=counts.preempted,
                moved=counts.moved,
                waiting=start.active - counts.running,
                solved=self._solved,
                capacity=self.time.capacity,
            )
        )
        self._solved = False

    def _round_ended(self, event: RoundEnded) -> None:
        row = self.rounds.last
        row.busy, row.lost_s, row.spread_s = self.groups.end(event, self.records.columns, self.time)
        row.seconds = event.time_s - row.time_s
        if self._adapting:
            self._adapt()

    # --- tables ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Close what is open; call once, at the end."""
        self.time.count(self.now_s)
        self.records.close(self.now_s)
        self.groups.close(self.now_s, self.records.columns, len(self.rounds))

    def job_table(self) -> pl.DataFrame:
        """One row per submitted job."""
        inputs = JobTableInputs(
            devices=float(self.cluster.capacity.sum()),
            exclusive_time=self.exclusive_time,
            contention=self._contention(),
            served_fraction=self._served_fraction(),
        )
        return job_table(self.records, inputs)

    def _contention(self) -> Floats:
        """(jobs,) mean number of jobs in the system while each was there, per device, and at least 1."""
        first, end = self.records.rounds_of_jobs(len(self.rounds))
        devices = float(self.cluster.capacity.sum())
        return contention(self.rounds["active"], first, end, devices)

    def _served_fraction(self) -> Floats:
        """(jobs,) part of the rounds that it might have run in in which it ran."""
        first, end = self.records.rounds_of_jobs(len(self.rounds))
        none = np.full(len(first), np.nan)
        rounds_run = self.records.columns.arrays.rounds[: len(first)]
        return np.asarray(np.divide(rounds_run, end - first, out=none, where=end > first))

    def round_table(self) -> pl.DataFrame:
        """One row per round, the empty ones included."""
        return self.rounds.table(self.cluster.accelerators)

    def interval_table(self) -> pl.DataFrame:
        """One row per placement interval, in order of end; ``partner`` is the other job of a packed pair."""
        return self.groups.intervals.table(self.cluster, self.records.jobs)
