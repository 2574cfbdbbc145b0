"""Folds the events and commands of a run into three tables: jobs, rounds, stints.

A stint is a time that a job spent on the same devices without a break. Like the journal, the recorder
is an observer of the driver; it costs a few vector operations per round.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from fairlead.commands import Command, End, EndJobs, EndRound, Solve, StartRound
from fairlead.events import Event, JobsSubmitted, NodeLost, NodeRecovered, RoundEnded
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.index import JobIndex
from fairlead.model.job import Job
from fairlead.model.throughput import Throughputs
from fairlead.placement.servers import are_spread
from fairlead.report.kernels import begin, book

_FLOATS = (
    "arrival_s", "start_s", "end_s", "run_s", "cost", "restart_lost_s",
    "steps_done", "isolated_s", "steps_then", "isolated_rate",
)  # fmt: skip
_INTS = ("restarts", "moves", "end", "kept_in", "runs_in")
_ROUND = ("time_s", "seconds", "active", "running", "started", "preempted", "moved")


class _Columns:
    """Growing per-job arrays, by order of submission."""

    arrival_s: Floats
    start_s: Floats  # first start, NaN before
    end_s: Floats
    run_s: Floats
    cost: Floats
    restart_lost_s: Floats
    steps_done: Floats
    isolated_s: Floats  # time that the work done so far would have taken on an isolated 1/n share
    steps_then: Floats  # steps done when isolated_rate was set
    isolated_rate: Floats
    restarts: Ints
    moves: Ints
    end: Ints
    kept_in: Ints  # the last round in which it stayed on its devices
    runs_in: Ints  # the last round in which it ran
    stint_s: Floats  # when its present stint began
    rate: Floats  # (jobs, slots)
    scale: Floats

    def __init__(self, slots: int) -> None:
        self.n = 0
        for name in _FLOATS:
            setattr(self, name, np.zeros(64))
        for name in _INTS:
            setattr(self, name, np.zeros(64, np.int64))
        self.stint_s, self.scale = np.zeros(64), np.ones(64)
        self.rate = np.zeros((64, slots))

    def add(self, time_s: float, scale: int, rate: Floats) -> None:
        if self.n == len(self.arrival_s):
            for name in (*_FLOATS, *_INTS, "stint_s", "scale", "rate"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        i = self.n
        self.arrival_s[i], self.start_s[i], self.end_s[i] = time_s, np.nan, np.nan
        self.scale[i], self.rate[i] = scale, rate
        self.kept_in[i] = self.runs_in[i] = -2
        self.n += 1


class Recorder:
    """Observe a run, then ask for its tables."""

    def __init__(
        self,
        cluster: Cluster,
        throughputs: Throughputs,
        charge_idle_gaps: bool,
        solves: bool,
    ) -> None:
        """charge_idle_gaps: as the profile, and no charge for rounds that do not count either.
        solves: does the planner ask for solves? (If so, isolated
        rates are taken at each of them, as Gavel does; if not, whenever jobs come or go.)"""
        self.cluster = cluster
        self.throughputs = throughputs.columns(cluster.slots)
        self.charge_idle_gaps = charge_idle_gaps
        self.solves = solves
        self.jobs: list[Job] = []
        self.columns = _Columns(len(cluster.slots))
        self.n_solves = 0
        self.now_s = 0.0
        self.fewest = cluster.fewest_servers(max(scale for _, scale in throughputs.kinds))
        self.spread_s: Floats = np.zeros(
            len(cluster.slots)
        )  # device-seconds of jobs that were spread
        self.busy_s: Floats = np.zeros(len(cluster.slots))  # device-seconds in use
        self.charged_s: Floats = np.zeros(len(cluster.slots))  # the same by Gavel's definition
        self._index = JobIndex()
        self._capacity = cluster.capacity.copy()
        self._capacity_from_s: float | None = None
        self.capacity_s: Floats = np.zeros(len(cluster.slots))  # device-seconds there were
        self._last_end_s = 0.0
        self._changed = False
        self._solved = False
        self._zero: Floats = np.zeros(len(cluster.slots))
        self._rounds: dict[str, list[Any]] = {
            name: [] for name in (*_ROUND, "solved", "busy", "capacity")
        }
        self._now: _Running | None = None
        self._stints: list[tuple[Any, ...]] = []

    # --- observing -------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Take note of an event."""
        self.now_s = max(self.now_s, event.time_s)
        match event:
            case RoundEnded():
                self._round_ended(event)
            case JobsSubmitted():
                self._submitted(event)
            case NodeLost() | NodeRecovered():
                self._node(event)

    def command(self, command: Command) -> None:
        """Take note of a command."""
        match command:
            case StartRound():
                self._start_round(command)
            case Solve():
                self.n_solves += 1
                self._solved = True
                self._isolated()
            case EndJobs():
                self._end_jobs(command)
            case EndRound():
                pass

    def _submitted(self, event: JobsSubmitted) -> None:
        if self._capacity_from_s is None:
            self._capacity_from_s = event.time_s
        for job in event.jobs:
            kind = self.throughputs.row(job.family, job.scale_factor)
            assert kind is not None
            self._index.add(job.id, len(self.jobs))
            self.jobs.append(job)
            self.columns.add(event.time_s, job.scale_factor, self.throughputs.rate[kind])
        self._changed = True

    def _node(self, event: NodeLost | NodeRecovered) -> None:
        self._count_capacity()
        node = next(n for n in self.cluster.nodes if n.name == event.node)
        sign = 1 if isinstance(event, NodeRecovered) else -1
        capacity = self._capacity.copy()
        capacity[self.cluster.accelerators.index(node.accelerator)] += sign * node.devices
        self._capacity = capacity

    def _count_capacity(self) -> None:
        if self._capacity_from_s is not None:
            self.capacity_s += self._capacity * (self.now_s - self._capacity_from_s)
            self._capacity_from_s = self.now_s

    def _isolated(self) -> None:
        """Gavel's accumulated isolated time: what was done since the last such moment, at the rate
        that an isolated share of the cluster gave then."""
        col = self.columns
        i = self._index.positions()
        self._add_isolated(i)
        n = max(len(i), 1)
        share = self._capacity / n / col.scale[i][:, None]
        share /= np.maximum(share.sum(axis=1), 1.0)[:, None]
        col.isolated_rate[i] = (col.rate[i] * share).sum(axis=1)
        self._changed = False

    def _add_isolated(self, i: Ints) -> None:
        col = self.columns
        did, rate = col.steps_done[i] - col.steps_then[i], col.isolated_rate[i]
        col.isolated_s[i] += np.divide(did, rate, out=np.zeros(len(i)), where=rate > 0)
        col.steps_then[i] = col.steps_done[i]

    def _start_round(self, start: StartRound) -> None:
        if self._changed and not self.solves:
            self._isolated()
        col, rounds, before, index = self.columns, self._rounds, self._now, self._index
        member = index.find(start.units)
        over, began, started, preempted, moved = begin(
            member,
            start.kept,
            member[:0] if before is None else before.member,
            len(rounds["time_s"]),
            start.time_s,
            col.end,
            col.kept_in,
            col.runs_in,
            col.start_s,
            col.stint_s,
            col.restarts,
            col.moves,
        )
        if before is not None and over.any():
            self._close_stints(before, np.flatnonzero(over), began)
        self._now = self._running(start, member)
        row = (start.time_s, 0.0, start.active, len(member), started, preempted, moved)
        for name, value in zip(_ROUND, row, strict=True):
            rounds[name].append(value)
        rounds["solved"].append(self._solved)
        rounds["busy"].append(self._zero)
        rounds["capacity"].append(self._capacity)
        self._solved = False

    def _running(self, start: StartRound, member: Ints) -> "_Running":
        cluster = self.cluster
        kind = cluster.device_type[start.devices[start.first[:-1]]]
        spread: Bools = np.zeros(len(kind), np.bool_)
        if cluster.spreadable:
            spread = are_spread(
                start.first, start.devices, cluster.device_type, cluster.device_node, self.fewest
            )
        return _Running(start, member, kind, spread)

    def _close_stints(self, before: "_Running", over: Ints, began: Floats) -> None:
        start = before.start
        scale = np.diff(start.first)[over]
        first = np.concatenate([[0], np.cumsum(scale)])
        spread = np.arange(first[-1]) - np.repeat(first[:-1], scale)
        devices = start.devices[np.repeat(start.first[over], scale) + spread]
        small = np.int32  # there may be millions of stints
        self._stints.append(
            (
                before.member[over].astype(small),
                before.kind[over].astype(small),
                scale.astype(small),
                devices.astype(small),
                began[over],
                before.end_s[over],
            )
        )

    def _round_ended(self, event: RoundEnded) -> None:
        now, col = self._now, self.columns
        assert now is not None
        start_s = now.start.time_s
        now.end_s = event.finish_s
        busy = np.zeros(len(self.busy_s))
        book(
            now.member,
            now.kind,
            now.start.first,
            event.steps,
            event.finish_s,
            event.outcome,
            event.restart_s,
            start_s,
            self._last_end_s if self.charge_idle_gaps else start_s,
            self.charge_idle_gaps,
            self.cluster.price,
            busy,
            self.charged_s,
            col.run_s,
            col.cost,
            col.restart_lost_s,
            col.steps_done,
        )
        self.busy_s += busy
        if now.spread.any():
            used_s = (event.finish_s - start_s) * np.diff(now.start.first) * now.spread
            self.spread_s += np.bincount(now.kind, used_s, len(busy))
        self._last_end_s = event.time_s
        self._rounds["seconds"][-1] = event.time_s - start_s
        self._rounds["busy"][-1] = busy

    def _end_jobs(self, command: EndJobs) -> None:
        i = np.array([self._index.pop(j) for j in command.jobs.tolist()], np.int64)
        self.columns.end[i] = command.end
        self.columns.end_s[i] = command.end_s
        self._add_isolated(i)
        self._changed = True

    # --- tables ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Close what is open; call once, at the end."""
        self._count_capacity()
        if self._now is not None:
            member = self._now.member
            began = self.columns.stint_s[member[:, 0]]
            self._close_stints(self._now, np.arange(len(member)), began)
            self._now = None

    def round_counts(self, name: str) -> list[int]:
        """One column of the rounds: started, preempted, moved, ..."""
        return self._rounds[name]

    def job_table(self) -> pl.DataFrame:
        """One row per submitted job."""
        col, n, jobs = self.columns, self.columns.n, self.jobs
        names = {0: "unfinished"} | {int(end): end.name.lower() for end in End}
        end = col.end[:n]
        done = end == End.COMPLETED
        jct_s = np.where(done, col.end_s[:n] - col.arrival_s[:n], np.nan)
        isolated_s = col.isolated_s[:n]
        rho = np.divide(jct_s, isolated_s, out=np.full(n, np.nan), where=isolated_s > 0)
        fastest = col.rate[:n].max(axis=1, initial=0.0)
        total = np.array([job.total_steps for job in jobs], np.float64)
        alone_s = np.divide(total, fastest, out=np.full(n, np.nan), where=fastest > 0)
        contention = max(1.0, n / float(self.cluster.capacity.sum()))
        table = pl.DataFrame(
            {
                "job": [int(job.id) for job in jobs],
                "family": [job.family for job in jobs],
                "scale_factor": [job.scale_factor for job in jobs],
                "weight": [job.weight for job in jobs],
                "tenant": [job.tenant for job in jobs],
                "total_steps": total,
                "steps_done": col.steps_done[:n],
                "arrival_s": col.arrival_s[:n],
                "start_s": col.start_s[:n],
                "end_s": col.end_s[:n],
                "end": [names[int(e)] for e in end],
                "jct_s": jct_s,
                "run_s": col.run_s[:n],
                "cost": col.cost[:n],
                "restarts": col.restarts[:n],
                "moves": col.moves[:n],
                "restart_lost_s": col.restart_lost_s[:n],
                "rho_isolated": rho,
                "rho_static": jct_s / (alone_s * contention),
                "slo_s": [job.slo_s for job in jobs],
            },
            schema_overrides=_JOB_TYPES,
        )
        return table.with_columns(pl.col(pl.Float64).fill_nan(None))

    def round_table(self) -> pl.DataFrame:
        """One row per round, the empty ones included."""
        rounds = self._rounds
        slots = len(self.busy_s)
        busy = np.array(rounds["busy"], np.float64).reshape(-1, slots)
        capacity = np.array(rounds["capacity"], np.float64).reshape(-1, slots)
        columns: dict[str, Any] = {"round": np.arange(len(busy))}
        for name in ("time_s", "seconds"):
            columns[name] = np.array(rounds[name], np.float64)
        for name in ("active", "running", "started", "preempted", "moved"):
            columns[name] = np.array(rounds[name], np.int64)
        columns["solved"] = np.array(rounds["solved"], np.bool_)
        for t, accelerator in enumerate(self.cluster.accelerators):
            columns[f"busy_{accelerator}"] = busy[:, t]
            columns[f"capacity_{accelerator}"] = capacity[:, t]
        return pl.DataFrame(columns)

    def stint_table(self) -> pl.DataFrame:
        """One row per stint, in order of end; ``partner`` is the other job of a packed pair."""
        stints, self._stints = self._stints, []
        tables = [self._some_stints(stints[i : i + 256]) for i in range(0, len(stints), 256)]
        return pl.concat(tables or [self._some_stints([])])

    def _some_stints(self, stints: list[tuple[Any, ...]]) -> pl.DataFrame:
        """A part of the table, for made in one piece it would be in memory several times."""
        ids = np.array([job.id for job in self.jobs] + [-1], np.int64)
        parts = list(zip(*stints, strict=True)) or [()] * 6
        first, last = _join([m[:, 0] for m in parts[0]]), _join([m[:, -1] for m in parts[0]])
        packed = (last >= 0) & (last != first)
        names = pl.Enum(self.cluster.accelerators)
        offsets = np.concatenate([[0], np.cumsum(_join(parts[2]))])
        stints.clear()
        table = pl.DataFrame(
            {
                "job": ids[first],
                "partner": ids[np.where(packed, last, -1)],
                "accelerator": pl.Series(self.cluster.accelerators, dtype=names).gather(
                    _join(parts[1])
                ),
                "start_s": _join(parts[4], np.float64),
                "end_s": _join(parts[5], np.float64),
                "devices": _lists(_join(parts[3]), offsets),
            }
        )
        partner = pl.when(pl.col("partner") >= 0).then(pl.col("partner")).alias("partner")
        return table.with_columns(partner)


class _Running:
    """The round in force: members are positions of jobs."""

    def __init__(self, start: StartRound, member: Ints, kind: Ints, spread: Bools) -> None:
        self.start = start
        self.member = member
        self.kind = kind  # (units,) accelerator type
        self.spread = spread  # (units,) on more servers than needed
        self.end_s: Floats = np.full(len(member), start.time_s)


def _join(parts: Sequence[Any], dtype: Any = np.int32) -> Any:
    return np.concatenate(parts) if len(parts) else np.zeros(0, dtype)


def _lists(values: Any, offsets: Ints) -> pl.Series:
    """values[offsets[i]:offsets[i + 1]] as the i-th list."""
    row = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    frame = pl.DataFrame({"row": row, "devices": values})
    grouped = frame.group_by("row", maintain_order=True).agg("devices")
    return grouped["devices"] if len(grouped) else pl.Series("devices", [], pl.List(pl.Int32))


_JOB_TYPES: dict[str, Any] = {
    "job": pl.Int64,
    "family": pl.String,
    "scale_factor": pl.Int64,
    "weight": pl.Float64,
    "tenant": pl.String,
    "end": pl.String,
    "slo_s": pl.Float64,
}
