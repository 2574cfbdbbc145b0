"""The scheduler's books: jobs, units and running units as aligned arrays, compacted as jobs leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fairlead.model.adaptation import Adaptation, batch_of
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.growable_table import GrowableTable
from fairlead.model.job import Job, JobId
from fairlead.scheduler.core.job_groups import find_units
from fairlead.scheduler.core.regime_table import KindOf, RegimeLedger


class JobTable(GrowableTable):
    """(jobs,) one row per job in the system, in order of submission."""

    columns: ClassVar[dict[str, Any]] = {
        "id": np.int64,
        "arrival_s": np.float64,
        "weight": np.float64,
        "deadline_s": np.float64,  # absolute; inf = none
        "scale": np.int64,
        "kind": np.int64,  # row of the throughput table that its family and scale factor have
        "row": np.int64,  # row whose rates are believed of it: that of its kind, or of a belief
        "job_class": np.int64,
        "tenant": np.int64,  # position in Ledger.tenants
        "isolated_s": np.float64,  # up to the last solve
        "isolated_rate": np.float64,  # steps/s on an n-th of the cluster as it was then; 0 = never solved
        "done_then": np.float64,  # steps done then
        "restart_s": np.float64,
        "total": np.float64,  # steps
        "done": np.float64,  # steps
        "ran_s": np.float64,
        "limit_s": np.float64,  # run time after which it is ended, inf = none
        "fails": np.int64,  # failed attempts in a row
        "state": np.int64,  # of lifecycle.State
    }
    id: Ints
    arrival_s: Floats
    weight: Floats
    deadline_s: Floats
    scale: Ints
    kind: Ints
    row: Ints
    job_class: Ints
    tenant: Ints
    isolated_s: Floats
    isolated_rate: Floats
    done_then: Floats
    restart_s: Floats
    total: Floats
    done: Floats
    ran_s: Floats
    limit_s: Floats
    fails: Ints
    state: Ints


class UnitTable(GrowableTable):
    """(units,) one row per job and, where units may be packed, rows for pairs of equal scale factor:
    every pair, behind each job those with the jobs before it; or only pairs that have a share. This
    order breaks ties."""

    columns: ClassVar[dict[str, Any]] = {
        "member": (np.int64, "width"),  # rows of jobs, -1 = none
        "scale": np.int64,
        "rate": (np.float64, "rate"),  # (units, slots, width)
        "received_s": (np.float64, "slots"),
        "deficit_s": (np.float64, "slots"),
        "share": (np.float64, "slots"),
        "allocated": np.bool_,
        "running_on": np.int64,  # slot, -1 = not running
    }
    member: Ints
    scale: Ints
    rate: Floats
    received_s: Floats
    deficit_s: Floats
    share: Floats
    allocated: Bools
    running_on: Ints


@dataclass(frozen=True, slots=True)
class Names:
    """The numbers of classes and tenants, in order of their first job."""

    classes: dict[tuple[int, float], int] = field(default_factory=dict)
    tenants: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Jobs, their units, and the time that each unit and slot type has been given."""

    def __init__(
        self,
        slots: int,
        packed: bool,
        all_pairs: bool,
        head_start_s: float,
        rate: Floats,
        pair: Floats | None,
        names: "Names | None" = None,
    ) -> None:
        """rate, pair: of kinds and beliefs, as in ``Throughputs``; names: another ledger's, so that jobs can
        go from one to the other."""
        self.width = 2 if packed else 1
        self.all_pairs = packed and all_pairs
        self.head_start_s = head_start_s
        self.kind_rate = rate  # (rows, slots)
        self.kind_pair = pair  # (rows, rows, slots)
        self.jobs = JobTable()
        self.regimes = RegimeLedger()
        self.units = UnitTable(width=(self.width,), slots=(slots,), rate=(slots, self.width))
        self.allocated_s = np.zeros(slots)
        self.names = names or Names()
        self._classes, self._tenants = self.names.classes, self.names.tenants
        self._ids: set[int] = set()

    def held_jobs(self) -> "Ledger":
        """An empty ledger for jobs alone that come from here and go back."""
        return Ledger(len(self.allocated_s), False, False, 0.0, self.kind_rate, None, self.names)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The names of all tenants that ever had a job."""
        return tuple(self._tenants)

    def __contains__(self, job: JobId) -> bool:
        """Is the job in the system?"""
        return job in self._ids

    @property
    def last_id(self) -> int:
        """The largest id of a job in the ledger, -1 = none."""
        return int(self.jobs.id[-1]) if self.jobs.n else -1

    def row(self, job: JobId) -> int:
        """The row of a job in the system."""
        return int(np.flatnonzero(self.jobs.id == job)[0])

    def add(
        self,
        job: Job,
        time_s: float,
        kind: int,
        kind_of: KindOf,
        restart_s: float,
        limit_s: float,
        fits: Bools | None = None,
    ) -> None:
        """A job and its units. kind_of: rows of the throughput table for its batch sizes; fits: (slots,)
        where the job may run at all, None = everywhere.

        A single unit starts with the head start on every slot type, a pair with none (Gavel's rule: it
        keeps the first priorities finite).
        """
        jobs, units = self.jobs, self.units
        others: Ints = np.zeros(0, np.int64)
        if self.all_pairs:
            others = np.flatnonzero(jobs.scale == job.scale_factor)
        row = jobs.n
        at = jobs.grow(1).start
        jobs.id[at] = job.id
        self._ids.add(job.id)
        jobs.arrival_s[at] = time_s
        jobs.weight[at] = job.weight
        jobs.deadline_s[at] = np.inf if job.slo_s is None else time_s + job.slo_s
        jobs.scale[at] = job.scale_factor
        jobs.kind[at] = jobs.row[at] = kind
        jobs.job_class[at] = self._classes.setdefault((kind, job.weight), len(self._classes))
        jobs.tenant[at] = self._tenants.setdefault(job.tenant, len(self._tenants))
        jobs.restart_s[at] = restart_s
        jobs.limit_s[at] = limit_s
        jobs.total[at] = job.total_steps
        self.regimes.add(job.adaptation, batch_of(job.family) or 0, job.total_steps, kind_of)
        new = units.grow(1 + len(others))
        units.running_on[new] = -1
        units.scale[new] = job.scale_factor
        single = new.start
        units.member[single] = -1
        units.member[single, 0] = row
        units.rate[single, :, 0] = self.kind_rate[kind]
        units.received_s[single] = self.head_start_s
        if fits is not None:
            units.rate[single] *= fits[:, None]
        if len(others):
            self._fill_pairs(slice(single + 1, new.stop), others, np.full(len(others), row))

    def _fill_pairs(self, rows: slice, first: Ints, second: Ints) -> None:
        """Make pairs of jobs of these unit rows: first, second (pairs,) rows of jobs, first < second."""
        jobs, units = self.jobs, self.units
        units.member[rows, 0] = first
        units.member[rows, 1] = second
        units.scale[rows] = jobs.scale[first]
        units.running_on[rows] = -1
        units.allocated[rows] = False
        self._rate_pairs(np.arange(rows.start, rows.stop))

    def _rate_pairs(self, rows: Ints) -> None:
        """Set the rates of units that are pairs."""
        units, kind = self.units, self.jobs.row
        if self.kind_pair is None:
            return
        first, second = units.member[rows, 0], units.member[rows, 1]
        alone = np.flatnonzero(units.member[:, 1] < 0)
        fits = units.rate[alone[first], :, 0] > 0
        units.rate[rows, :, 0] = self.kind_pair[kind[first], kind[second]] * fits
        units.rate[rows, :, 1] = self.kind_pair[kind[second], kind[first]] * fits

    def adapt(
        self,
        row: int,
        batch: int,
        total: float,
        done: float,
        kind_of: KindOf,
        fits: Bools | None,
        settled: bool = True,
    ) -> None:
        """A job goes on at another batch size. Settle the isolated times before and after; if they are
        not settled, the steps by which its remainder shrinks count as done, as Shockwave's release has it.
        """
        jobs, units = self.jobs, self.units
        shrunk = 0.0
        if not settled:
            shrunk = (jobs.total[row] - jobs.done_then[row]) - (total - done)
        kind = self.regimes.change(row, batch, jobs.done[row], done, total, kind_of)
        jobs.kind[row] = jobs.row[row] = kind
        jobs.total[row], jobs.done[row] = total, done
        jobs.done_then[row] = done - shrunk
        key = (kind, float(jobs.weight[row]))
        jobs.job_class[row] = self._classes.setdefault(key, len(self._classes))
        mine = np.flatnonzero((units.member == row).any(axis=1))
        alone = mine if self.width == 1 else mine[units.member[mine, 1] < 0]
        units.rate[alone, :, 0] = self.kind_rate[kind] * (1.0 if fits is None else fits)
        if self.width > 1:
            self._rate_pairs(mine[units.member[mine, 1] >= 0])

    def reweigh(self, row: int, weight: float) -> None:
        """A job counts for more or less."""
        self.jobs.weight[row] = weight
        self.classify(np.array([row]))

    def classify(self, rows: Ints) -> None:
        """Set the classes of jobs by their rates and weights."""
        kind, weight = self.jobs.row[rows].tolist(), self.jobs.weight[rows].tolist()
        classes = self._classes
        self.jobs.job_class[rows] = [
            classes.setdefault(key, len(classes)) for key in zip(kind, weight, strict=True)
        ]

    def learn(self, rate: Floats, pair: Floats | None, room: Floats | None) -> None:
        """Units follow another table. rate, pair: of kinds and beliefs; room: (slots,) devices in all,
        where a job may be offered no slot type with fewer than it needs."""
        self.kind_rate, self.kind_pair = rate, pair
        self.follow(np.ones(self.jobs.n, np.bool_), room)

    def follow(self, some: Bools, room: Floats | None) -> None:
        """The units of these jobs, alone and in pairs, follow the table. some: (jobs,)."""
        units, jobs = self.units, self.jobs
        rows = np.flatnonzero(some)
        alone = self.alone()[rows]
        units.rate[alone, :, 0] = self.kind_rate[jobs.row[rows]]
        if room is not None:
            units.rate[alone] *= (room >= jobs.scale[rows, None])[:, :, None]
        if self.width > 1:
            pairs = units.member[:, 1] >= 0
            self._rate_pairs(np.flatnonzero(pairs & some[units.member].any(axis=1)))

    def alone(self) -> Ints:
        """(jobs,) rows of the units of single jobs."""
        if self.width == 1:
            return np.arange(self.jobs.n)
        return np.flatnonzero(self.units.member[:, 1] < 0)

    def receive(self, other: "Ledger", rows: Ints) -> Ints:
        """Take over jobs, with their steps, accounts and shares, to where their ids belong; they are to
        be removed there. rows: (jobs,) of the other. Returns the new row of every old unit here."""
        jobs, units, before = self.jobs, self.units, self.units.n
        at = jobs.grow(len(rows))
        for name in JobTable.columns:
            getattr(jobs, name)[at] = getattr(other.jobs, name)[rows]
        self._ids.update(jobs.id[at].tolist())
        self.regimes.receive(other.regimes, rows)
        theirs, new = other.alone()[rows], units.grow(len(rows))
        units.member[new] = -1
        units.member[new, 0] = np.arange(at.start, at.stop)
        units.running_on[new] = -1
        for name in ("scale", "received_s", "deficit_s", "share", "allocated"):
            getattr(units, name)[new] = getattr(other.units, name)[theirs]
        units.rate[new, :, 0] = other.units.rate[theirs, :, 0]
        self.pair_up(at)
        return self.sort()[:before]

    def load(
        self,
        columns: Mapping[str, Any],
        regimes: Mapping[str, Any],
        adaptation: Sequence[Adaptation | None],
    ) -> None:
        """Jobs, ids ascending, into an empty ledger, and their units, with no accounts. columns: of a
        ``JobTable``, of whose job_class only the order counts; regimes: of a ``RegimeTable``."""
        jobs, units = self.jobs, self.units
        at = jobs.grow(len(adaptation))
        for name, values in columns.items():
            getattr(jobs, name)[at] = values
        self.classify(np.argsort(columns["job_class"], kind="stable"))
        self._ids.update(jobs.id.tolist())
        self.regimes.append(regimes, adaptation)
        new = units.grow(jobs.n)
        units.member[new] = -1
        units.member[new, 0] = np.arange(jobs.n)
        units.scale[new] = jobs.scale
        units.running_on[new] = -1
        self.pair_up(at)

    def find(self, pairs: Ints) -> Ints:
        """(pairs,) rows of the units of these pairs of jobs, -1 = there is none. pairs: (pairs, 2) rows
        of jobs, the first below the second."""
        return find_units(self.units.member, pairs, self.jobs.n)

    def pair_up(self, rows: slice) -> None:
        """Where every pair is a unit, make those of the jobs in these rows, the last ones."""
        if not self.all_pairs:
            return
        scale = self.jobs.scale
        for row in range(rows.start, rows.stop):
            others = np.flatnonzero(scale[:row] == scale[row])
            if len(others):
                new = self.units.grow(len(others))
                self._fill_pairs(new, others, np.full(len(others), row))

    def add_pairs(self, pairs: Ints) -> None:
        """Make units of these pairs. pairs: (pairs, 2) rows of jobs, without repeats, none of them there."""
        if len(pairs):
            self._fill_pairs(self.units.grow(len(pairs)), pairs[:, 0], pairs[:, 1])

    def sort(self) -> Ints:
        """Put jobs in order of id and units in that of their jobs; the new row of every old unit."""
        jobs, units = self.jobs, self.units
        order = np.argsort(jobs.id, kind="stable")
        row = np.empty_like(order)
        row[order] = np.arange(len(order))
        jobs.keep(order)
        self.regimes.keep(order)
        units.member[:] = np.where(units.member < 0, -1, row[units.member])
        if self.width > 1:
            pairs = np.flatnonzero(units.member[:, 1] >= 0)
            turned = pairs[units.member[pairs, 0] > units.member[pairs, 1]]
            units.member[turned] = units.member[turned, ::-1]
            units.rate[turned] = units.rate[turned, :, ::-1]
        last = units.member.max(axis=1, initial=-1)
        by = np.lexsort((units.member[:, 0], units.member[:, -1] >= 0, last))
        if self.width == 1:
            by = np.argsort(units.member[:, 0], kind="stable")
        units.keep(by)
        unit_row = np.empty_like(by)
        unit_row[by] = np.arange(len(by))
        return unit_row

    def set_pairs(self, pairs: Ints) -> Ints | None:
        """Make these, and those that run, the pairs that are units. pairs: (pairs, 2) rows of jobs,
        without repeats. Returns the new row of every old unit, -1 where it is gone; None = no change.
        """
        units, jobs = self.units, self.jobs
        if self.all_pairs:
            return None
        wanted = pairs[:, 0] * jobs.n + pairs[:, 1]
        there = np.where(
            units.member[:, 1] < 0, -1, units.member[:, 0] * jobs.n + units.member[:, 1]
        )
        stay = (there < 0) | (units.running_on >= 0) | np.isin(there, wanted)
        new = pairs[~np.isin(wanted, there)]
        if stay.all() and not len(new):
            return None
        row = np.where(stay, np.cumsum(stay) - 1, -1)
        units.keep(np.flatnonzero(stay))
        rows = units.grow(len(new))
        self._fill_pairs(rows, new[:, 0], new[:, 1])
        return row

    def settle_isolated(self, rate: Floats) -> None:
        """Bring the isolated time of every job up to now, at the rates of the time since the last call,
        and take these for the time to come. rate: (jobs,) steps/s of a job with its part of the cluster
        for itself. Source: Gavel (OSDI'20), finish-time fairness; spec (c).
        """
        jobs = self.jobs
        steps = jobs.done - jobs.done_then
        known = jobs.isolated_rate > 0
        jobs.isolated_s[known] += steps[known] / jobs.isolated_rate[known]
        jobs.done_then[:] = jobs.done
        jobs.isolated_rate[:] = rate

    def remove(self, gone: Bools) -> Ints:
        """Take jobs out; returns the new row of every old unit, -1 where it is gone."""
        jobs, units = self.jobs, self.units
        stay = ~gone
        rows = np.flatnonzero(stay)
        job_row = np.full(len(gone), -1, np.int64)
        job_row[rows] = np.arange(len(rows))
        self._ids.difference_update(jobs.id[gone].tolist())
        jobs.keep(rows)
        self.regimes.keep(rows)
        if self.width == 1:  # a unit stands where its job does
            units.keep(rows)
            units.member[:, 0] = np.arange(len(rows))
            return job_row
        member = units.member
        whole = stay[member[:, 0]]
        for more in member.T[1:]:
            whole &= (more < 0) | stay[more]
        unit_row = np.where(whole, np.cumsum(whole) - 1, -1)
        units.keep(np.flatnonzero(whole))
        units.member[:] = np.where(units.member < 0, -1, job_row[units.member])
        return unit_row

    def unit_ids(self) -> Ints:
        """(units, width) job ids, -1 = none."""
        if self.width == 1:
            return self.jobs.id[:, None]
        ids = self.jobs.id[self.units.member]
        ids[self.units.member < 0] = -1
        return ids
