"""Folds the events and commands of a run into three tables: jobs, rounds, placement intervals.

A placement interval is a time that a job spent on the same devices without a break. Like the journal, the
recorder is an observer of the driver; it costs a few vector operations per round.
"""

from typing import Any

import numpy as np
import polars as pl

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    Command,
    EndJobs,
    EndRound,
    JobEnd,
    Solve,
    StartRound,
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
from fairlead.model.job import Job
from fairlead.model.job_index import JobIndex
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.placement.servers import are_scattered
from fairlead.simulator.recording.adaptation_columns import adaptation_columns
from fairlead.simulator.recording.contention import contention, running_alone_s
from fairlead.simulator.recording.device_time import DeviceTime
from fairlead.simulator.recording.fair_time import IsolatedTime, PromisedTime
from fairlead.simulator.recording.job_columns import JobColumns
from fairlead.simulator.recording.placement_intervals import PlacementIntervals
from fairlead.simulator.recording.recorder_kernels import (
    Charging,
    RoundReport,
    UnitsBefore,
    UnitsNow,
    begin,
    book,
)
from fairlead.simulator.recording.round_columns import RoundColumns


class Recorder:
    """Observe a run, then ask for its tables."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        charge_idle_gaps: bool,
        solves: bool,
        charge_startup: bool = True,
        released_world: bool = False,
        keep_intervals: bool = True,
    ) -> None:
        """charge_idle_gaps: as the profile, and no charge for rounds that do not count either;
        charge_starts, released_world: as the profile. solves: does the planner ask for solves? (If so,
        isolated rates are taken at each of them, as Gavel does; if not, whenever jobs come or go.)
        keep_intervals: if not, their table stays empty, and a long run needs a fraction of the memory."""
        self.cluster = cluster
        self.throughputs = throughputs.columns(cluster.slots)
        self.charge_idle_gaps = charge_idle_gaps
        self.solves = solves
        self.charge_startup = charge_startup
        self.released_world = released_world
        self.jobs: list[Job] = []
        self.columns = JobColumns(len(cluster.slots))
        self.n_solves = 0
        self.now_s = 0.0
        self.fewest = cluster.fewest_servers(max(one.scale_factor for one in throughputs.job_types))
        self.time = DeviceTime(cluster)
        self.rounds = RoundColumns(len(cluster.slots))
        self._index = JobIndex()
        self._isolated = IsolatedTime(self.columns, self._index)
        self._promised = PromisedTime(self.columns, self._index)
        self._last_end_s = 0.0
        self._changed = False
        self._solved = False
        self._now: _Running | None = None
        self._in_force = False  # is the round not over?
        self._adapting: list[RequirementsChanged] = []  # until it is
        self._intervals = PlacementIntervals(keep_intervals)

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
                self._submitted(event)
            case NodeLost() | NodeRecovered():
                self._node(event)
            case Solved():
                self._solved_by(event)

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
                self._end_jobs(command)
            case EndRound():
                pass

    def _submitted(self, event: JobsSubmitted) -> None:
        self.time.begin(event.time_s)
        for job in event.jobs:
            kind = self.throughputs.row(job.job_type)
            assert kind is not None
            self._index.add(job.id, len(self.jobs))
            self.jobs.append(job)
            rate = self.throughputs.rate[kind]
            began = len(self.rounds)
            self.columns.add(event.time_s, job.scale_factor, rate, job.total_steps, began)
        self._changed = True

    def _node(self, event: NodeLost | NodeRecovered) -> None:
        self.time.count(self.now_s)
        self.time.change(event)

    def _renew_isolated(self) -> None:
        self._isolated.renew(self.time.capacity)
        self._changed = False

    def _solved_by(self, event: Solved) -> None:
        if event.allocation is not None:
            self._promised.renew(event.allocation, self.now_s)

    def _adapt(self) -> None:
        """Take over other batch sizes, when the round is over whose steps count at the old ones."""
        if self._in_force:
            return
        col = self.columns.arrays
        for event in self._adapting:
            i = self._index.find(event.jobs[:, None])[:, 0]
            there = np.flatnonzero(i >= 0)
            i = i[there]
            self._isolated.add(i)
            for job, batch in zip(i.tolist(), event.batch[there].tolist(), strict=True):
                one = self.jobs[job]
                kind = self.throughputs.row(one.job_type.with_batch_size(batch))
                assert kind is not None
                col.rate[job] = self.throughputs.rate[kind]
            col.total_steps[i] = event.total_steps[there]
            col.steps_done[i] = col.steps_then[i] = event.steps_done[there]
            known = i[col.isolated_rate[i] > 0]
            col.isolated_rate[known] = self._isolated.rate(known, self.time.capacity)
        self._adapting.clear()

    def _start_round(self, start: StartRound) -> None:
        if self._changed and not self.solves:
            self._renew_isolated()
        member = self._index.find(start.job_groups)
        running, started, preempted, moved = self._switch(member, start.kept, start.time_s)
        self._now = self._running(start, member)
        self._in_force = len(member) > 0
        self.rounds.add(
            time_s=start.time_s,
            active=start.active,
            running=len(member),
            started=started,
            preempted=preempted,
            moved=moved,
            waiting=start.active - running,
            solved=self._solved,
            capacity=self.time.capacity,
        )
        self._solved = False

    def _switch(self, member: Ints, kept: Bools, time_s: float) -> tuple[int, int, int, int]:
        """Who ran until now gives way to others: counts of jobs that run, start, are preempted, move.
        member: (units, width) positions of jobs."""
        before = self._now or _Running.nothing(member)
        first, devices = before.start.first, before.start.devices
        units = UnitsBefore(
            job=before.member,
            accelerator=before.kind,
            end_s=before.stopped_s,
            first=first,
            devices=devices,
        )
        now = UnitsNow(job=member, kept=kept, round=len(self.rounds), time_s=time_s)
        block = self._intervals.room(len(before.member), len(devices))
        return begin(now, units, self.columns.arrays, block)

    def _running(self, start: StartRound, member: Ints) -> "_Running":
        cluster = self.cluster
        kind = cluster.device_type[start.devices[start.first[:-1]]]
        spread: Bools = np.zeros(len(kind), np.bool_)
        if cluster.scatterable:
            spread = are_scattered(
                start.first, start.devices, cluster.device_type, cluster.device_node, self.fewest
            )
        return _Running(start, member, kind, spread)

    def _round_ended(self, event: RoundEnded) -> None:
        now = self._now
        assert now is not None
        start_s = now.start.time_s
        now.end_s = event.finish_s
        busy = np.zeros(len(self.cluster.slots))
        report = RoundReport(
            job=now.member,
            slot=now.kind,
            first=now.start.first,
            steps=event.steps,
            finish_s=event.finish_s,
            outcome=event.outcome,
            restart_s=event.restart_s,
            start_s=start_s,
        )
        charging = Charging(
            price=self.cluster.price,
            busy_s=busy,
            charged_s=self.time.charged_s,
            from_s=self._last_end_s if self.charge_idle_gaps else start_s,
            only_good=self.charge_idle_gaps,
            with_starts=self.charge_startup,
        )
        lost_s = book(report, self.columns.arrays, charging)
        self.time.busy_s += busy
        spread_s = 0.0
        if now.spread.any():
            used_s = (event.finish_s - start_s) * np.diff(now.start.first) * now.spread
            self.time.spread_s += np.bincount(now.kind, used_s, len(busy))
            spread_s = float(used_s.sum())
        self.rounds.update(
            lost_s=lost_s, spread_s=spread_s, seconds=event.time_s - start_s, busy=busy
        )
        self._last_end_s = event.time_s
        self._in_force = False
        self._adapt()

    def _end_jobs(self, command: EndJobs) -> None:
        i = np.array([self._index.pop(j) for j in command.jobs.tolist()], np.int64)
        self.columns.arrays.end[i] = command.end
        self.columns.arrays.end_s[i] = command.end_s
        self.columns.arrays.end_round[i] = len(self.rounds)
        self._isolated.add(i)
        self._promised.add(i, command.end_s)
        self._changed = True

    # --- tables ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Close what is open; call once, at the end."""
        self.time.count(self.now_s)
        open_ = self._index.positions()
        self._promised.add(open_, np.full(len(open_), self.now_s))
        if self._now is not None:
            self._switch(self._now.member[:0], np.zeros(0, np.bool_), self.now_s)
        self._now = None

    def job_table(self) -> pl.DataFrame:
        """One row per submitted job."""
        col, n, jobs = self.columns.arrays, self.columns.n, self.jobs
        names = {0: "unfinished"} | {int(end): end.name.lower() for end in JobEnd}
        end = col.end[:n]
        done = end == JobEnd.COMPLETED
        jct_s = np.where(done, col.end_s[:n] - col.arrival_s[:n], np.nan)
        isolated_s = col.isolated_s[:n]
        rho = np.divide(jct_s, isolated_s, out=np.full(n, np.nan), where=isolated_s > 0)
        total = np.array([job.total_steps for job in jobs], np.float64)
        alone_s = self._alone_s()
        devices = float(self.cluster.capacity.sum())
        themis_s = alone_s * self._contention()
        table = pl.DataFrame(
            {
                "job": [int(job.id) for job in jobs],
                "family": [job.family for job in jobs],
                "scale_factor": [job.scale_factor for job in jobs],
                "weight": [job.weight for job in jobs],
                "tenant": [job.tenant for job in jobs],
                **adaptation_columns(jobs),
                "total_steps": total,
                "steps_done": self._steps_done(total),
                "arrival_s": col.arrival_s[:n],
                "start_s": col.start_s[:n],
                "end_s": col.end_s[:n],
                "end": [names[int(e)] for e in end],
                "jct_s": jct_s,
                "run_s": col.run_s[:n],
                "promised_s": col.promised_s[:n] if self._promised.given else np.full(n, np.nan),
                "cost": col.cost[:n],
                "restarts": col.restarts[:n],
                "moves": col.moves[:n],
                "restart_lost_s": col.restart_lost_s[:n],
                "rho_isolated": rho,
                "rho_static": jct_s / (alone_s * max(1.0, n / devices)),
                "rho_themis": jct_s / themis_s,
                "exclusive_s": alone_s,
                "served": self._served(),
                "slo_s": [job.slo_s for job in jobs],
            },
            schema_overrides=_JOB_TYPES,
        )
        return table.with_columns(pl.col(pl.Float64).fill_nan(None))

    def _alone_s(self) -> Floats:
        fastest = np.array(
            [
                self.throughputs.rate[row].max(initial=0.0)
                for job in self.jobs
                if (row := self.throughputs.row(job.job_type)) is not None
            ],
            np.float64,
        )
        return running_alone_s(self.jobs, fastest, self.throughputs, self.released_world)

    def _rounds_of_jobs(self) -> tuple[Ints, Ints]:
        """(jobs,) the first round that each job might have run in, and the one behind the last."""
        col, n = self.columns.arrays, self.columns.n
        behind = np.where(col.end[:n] > 0, col.end_round[:n], len(self.rounds))
        return col.first_round[:n], behind

    def _contention(self) -> Floats:
        """(jobs,) mean number of jobs in the system while each was there, per device, and at least 1."""
        first, behind = self._rounds_of_jobs()
        devices = float(self.cluster.capacity.sum())
        return contention(self.rounds["active"], first, behind, devices)

    def _served(self) -> Floats:
        """(jobs,) part of the rounds that it might have run in in which it ran."""
        first, behind = self._rounds_of_jobs()
        none = np.full(len(first), np.nan)
        ran = self.columns.arrays.rounds[: len(first)]
        return np.asarray(np.divide(ran, behind - first, out=none, where=behind > first))

    def _steps_done(self, total: Floats) -> Floats:
        """(jobs,) steps done, counted like the total, at the first batch size: the same part of it."""
        col, n = self.columns.arrays, self.columns.n
        done, now = col.steps_done[:n], col.total_steps[:n]
        return np.where(now == total, done, done / now * total)

    def round_table(self) -> pl.DataFrame:
        """One row per round, the empty ones included."""
        return self.rounds.table(self.cluster.accelerators)

    def interval_table(self) -> pl.DataFrame:
        """One row per placement interval, in order of end; ``partner`` is the other job of a packed pair."""
        return self._intervals.table(self.cluster, self.jobs)


class _Running:
    """The round in force: members are positions of jobs."""

    def __init__(self, start: StartRound, member: Ints, kind: Ints, spread: Bools) -> None:
        self.start = start
        self.member = member
        self.kind = kind  # (units,) accelerator type
        self.spread = spread  # (units,) on more servers than needed
        self.end_s: Floats | None = None  # (units,) when they stopped; None: not reported yet

    @property
    def stopped_s(self) -> Floats:
        """(units,) up to when they are known to have run."""
        if self.end_s is None:
            return np.full(len(self.member), self.start.time_s)
        return self.end_s

    @staticmethod
    def nothing(member: Ints) -> "_Running":
        """Before the first round. member: has the width of units."""
        none: Ints = np.zeros(0, np.int64)
        first, kept = np.zeros(1, np.int64), np.zeros(0, np.bool_)
        start = StartRound(
            time_s=0.0,
            round=-1,
            length_s=0.0,
            job_groups=member[:0],
            slot=none,
            devices=none,
            first=first,
            kept=kept,
            active=0,
        )
        return _Running(start, member[:0], none, kept)


_JOB_TYPES: dict[str, Any] = {
    "job": pl.Int64,
    "family": pl.String,
    "scale_factor": pl.Int64,
    "weight": pl.Float64,
    "tenant": pl.String,
    "mode": pl.String,
    "batch_sizes": pl.String,
    "end": pl.String,
    "slo_s": pl.Float64,
}
