"""The scheduler's ledger: jobs, job groups and running job groups as aligned arrays, compacted as jobs
leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fairlead.model.adaptation import Adaptation
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.growable_table import GrowableTable
from fairlead.model.job import Job, JobId
from fairlead.scheduler.core.job_groups import find_groups
from fairlead.scheduler.core.regime_table import RegimeLedger, RowAtBatchSize


class JobTable(GrowableTable):
    """(jobs,) one row per job in the system, in order of submission."""

    columns: ClassVar[dict[str, Any]] = {
        "id": np.int64,
        "arrival_s": np.float64,
        "weight": np.float64,
        "deadline_s": np.float64,  # absolute; inf = none
        "scale": np.int64,
        "job_type": np.int64,  # row of the throughput table that its family and scale factor have
        "rate_row": np.int64,  # row whose rates are believed of it: that of its job type, or of a belief
        "job_class": np.int64,
        "tenant": np.int64,  # position in Ledger.tenants
        "restart_s": np.float64,
        "total": np.float64,  # steps
        "done": np.float64,  # steps
        "state": np.int64,  # of lifecycle.JobPhase
    }
    id: Ints
    arrival_s: Floats
    weight: Floats
    deadline_s: Floats
    scale: Ints
    job_type: Ints
    rate_row: Ints
    job_class: Ints
    tenant: Ints
    restart_s: Floats
    total: Floats
    done: Floats
    state: Ints


class IsolatedTable(GrowableTable):
    """(jobs,) how far each job would have come with its part of the cluster to itself."""

    columns: ClassVar[dict[str, Any]] = {
        # All up to the last solve or, of a planner that solves nothing, the last change of jobs or devices
        "isolated_s": np.float64,
        "isolated_rate": np.float64,  # steps/s on an n-th of the cluster as it was then; 0 = none yet
        "done_at_settle": np.float64,  # steps done then
    }
    isolated_s: Floats
    isolated_rate: Floats
    done_at_settle: Floats


class RunTable(GrowableTable):
    """(jobs,) run time and failures of each job's attempts."""

    columns: ClassVar[dict[str, Any]] = {
        "ran_s": np.float64,
        "limit_s": np.float64,  # run time after which it is ended, inf = none
        "fails": np.int64,  # failed attempts in a row
    }
    ran_s: Floats
    limit_s: Floats
    fails: Ints


class JobGroupTable(GrowableTable):
    """(groups,) one row per job and, where job groups may be packed, rows for pairs of equal scale factor:
    every pair, after each job those with the jobs before it; or only pairs that have a share. This
    order breaks ties."""

    columns: ClassVar[dict[str, Any]] = {
        "members": (np.int64, "width"),  # rows of jobs, -1 = none
        "scale": np.int64,
        "rate": (np.float64, "rate"),  # (groups, slots, width)
        "received_s": (np.float64, "slots"),
        "deficit_s": (np.float64, "slots"),
        "share": (np.float64, "slots"),
        "allocated": np.bool_,
        "running_on": np.int64,  # slot, -1 = not running
    }
    members: Ints
    scale: Ints
    rate: Floats
    received_s: Floats
    deficit_s: Floats
    share: Floats
    allocated: Bools
    running_on: Ints


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbers of job classes and tenants, in order of their first job."""

    classes: dict[tuple[int, float], int] = field(default_factory=dict)
    tenants: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Jobs, their job groups, and the time that each job group and slot type has been given."""

    def __init__(
        self,
        *,
        slots: int,
        space_sharing: bool,
        all_pairs: bool,
        head_start_s: float,
        rate: Floats,
        colocated_rate: Floats | None,
        numbering: Numbering | None = None,
    ) -> None:
        """all_pairs: whether each pair of jobs of equal scale factor is a job group; head_start_s: received
        time that a job begins with; rate, colocated_rate: of job types and beliefs, as in ``Throughputs``;
        numbering: another ledger's, so that jobs can go from one to the other."""
        self.width = 2 if space_sharing else 1
        self.all_pairs = space_sharing and all_pairs
        self.head_start_s = head_start_s
        self.set_rates(rate, colocated_rate)
        self.isolated, self.runs = IsolatedTable(), RunTable()
        self.jobs = JobTable(self.isolated, self.runs)
        self.regimes = RegimeLedger()
        self.groups = JobGroupTable(width=(self.width,), slots=(slots,), rate=(slots, self.width))
        self.allocated_s = np.zeros(slots)
        self.numbering = numbering or Numbering()
        self._classes, self._tenants = self.numbering.classes, self.numbering.tenants
        self._ids: set[int] = set()

    def for_paused_jobs(self) -> "Ledger":
        """Return an empty ledger for jobs of this one while they are paused, without pairs."""
        return Ledger(
            slots=len(self.allocated_s),
            space_sharing=False,
            all_pairs=False,
            head_start_s=0.0,
            rate=self.job_type_rate,
            colocated_rate=None,
            numbering=self.numbering,
        )

    @property
    def job_tables(self) -> tuple[JobTable, IsolatedTable, RunTable]:
        """The tables with one row per job; their columns have different names."""
        return self.jobs, self.isolated, self.runs

    def _keep_jobs(self, rows: Ints, since: int = 0) -> None:
        """Keep these jobs, in this order; the first ``since`` of them stay where they are."""
        self.jobs.keep(rows, since)
        self.regimes.keep(rows, since)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The names of all tenants that ever had a job."""
        return tuple(self._tenants)

    def __contains__(self, job: JobId) -> bool:
        """Return whether the job is in the system."""
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
        *,
        job_type: int,
        row_at: RowAtBatchSize,
        restart_s: float,
        limit_s: float,
        fits: Bools | None = None,
    ) -> None:
        """A job and its job groups. row_at: rows of the throughput table for its batch sizes; fits: (slots,)
        where the job may run at all, None = everywhere.

        A single job group starts with the head start on every slot type, a pair with none (Gavel's rule: it
        keeps the first priorities finite).
        """
        jobs, groups = self.jobs, self.groups
        others: Ints = np.zeros(0, np.int64)
        if self.all_pairs:
            others = np.flatnonzero(jobs.scale == job.scale_factor)
        row = jobs.n
        at = self.jobs.grow(1).start
        jobs.id[at] = job.id
        self._ids.add(job.id)
        jobs.arrival_s[at] = time_s
        jobs.weight[at] = job.weight
        jobs.deadline_s[at] = np.inf if job.slo_s is None else time_s + job.slo_s
        jobs.scale[at] = job.scale_factor
        jobs.job_type[at] = jobs.rate_row[at] = job_type
        jobs.job_class[at] = self._classes.setdefault((job_type, job.weight), len(self._classes))
        jobs.tenant[at] = self._tenants.setdefault(job.tenant, len(self._tenants))
        jobs.restart_s[at] = restart_s
        self.runs.limit_s[at] = limit_s
        jobs.total[at] = job.total_steps
        self.regimes.add(job.adaptation, job.job_type.batch_size or 0, job.total_steps, row_at)
        new = groups.grow(1 + len(others))
        groups.running_on[new] = -1
        groups.scale[new] = job.scale_factor
        single = new.start
        groups.members[single] = -1
        groups.members[single, 0] = row
        groups.rate[single, :, 0] = self.job_type_rate[job_type]
        groups.received_s[single] = self.head_start_s
        if fits is not None:
            groups.rate[single] *= fits[:, None]
        if len(others):
            self._fill_pairs(slice(single + 1, new.stop), others, np.full(len(others), row))

    def _fill_pairs(self, rows: slice, first: Ints, second: Ints) -> None:
        """Make pairs of jobs of these job group rows: first, second (pairs,) rows of jobs, first < second."""
        jobs, groups = self.jobs, self.groups
        groups.members[rows, 0] = first
        groups.members[rows, 1] = second
        groups.scale[rows] = jobs.scale[first]
        groups.running_on[rows] = -1
        groups.allocated[rows] = False
        self._rate_pairs(np.arange(rows.start, rows.stop))

    def _rate_pairs(self, rows: Ints) -> None:
        """Set the rates of job groups that are pairs."""
        groups, job_type = self.groups, self.jobs.rate_row
        if self.colocated_rate is None:
            return
        first, second = groups.members[rows, 0], groups.members[rows, 1]
        solo = np.flatnonzero(groups.members[:, 1] < 0)
        fits = groups.rate[solo[first], :, 0] > 0
        groups.rate[rows, :, 0] = self.colocated_rate[job_type[first], job_type[second]] * fits
        groups.rate[rows, :, 1] = self.colocated_rate[job_type[second], job_type[first]] * fits

    def adapt(
        self,
        row: int,
        batch: int,
        *,
        total: float,
        done: float,
        row_at: RowAtBatchSize,
        fits: Bools | None,
        settled: bool = True,
    ) -> None:
        """A job goes on at another batch size. Settle the isolated times before and after; if they are
        not settled, the steps by which its remainder shrinks count as done, as Shockwave's release has it.
        """
        jobs, groups = self.jobs, self.groups
        done_at_settle, shrunk = self.isolated.done_at_settle, 0.0
        if not settled:
            shrunk = (jobs.total[row] - done_at_settle[row]) - (total - done)
        job_type = self.regimes.change(row, batch, jobs.done[row], done, total, row_at)
        jobs.job_type[row] = jobs.rate_row[row] = job_type
        jobs.total[row], jobs.done[row] = total, done
        done_at_settle[row] = done - shrunk
        key = (job_type, float(jobs.weight[row]))
        jobs.job_class[row] = self._classes.setdefault(key, len(self._classes))
        mine = np.flatnonzero((groups.members == row).any(axis=1))
        solo = mine if self.width == 1 else mine[groups.members[mine, 1] < 0]
        groups.rate[solo, :, 0] = self.job_type_rate[job_type] * (1.0 if fits is None else fits)
        if self.width > 1:
            self._rate_pairs(mine[groups.members[mine, 1] >= 0])

    def reweigh(self, row: int, weight: float) -> None:
        """A job counts for more or less."""
        self.jobs.weight[row] = weight
        self.classify(np.array([row]))

    def classify(self, rows: Ints) -> None:
        """Set the classes of jobs by their rates and weights."""
        job_type, weight = self.jobs.rate_row[rows].tolist(), self.jobs.weight[rows].tolist()
        classes = self._classes
        self.jobs.job_class[rows] = [
            classes.setdefault(key, len(classes)) for key in zip(job_type, weight, strict=True)
        ]

    def set_rates(self, rate: Floats, colocated_rate: Floats | None) -> None:
        """Take another table's rates; job groups do not follow yet. They are copied: kernels take arrays that
        can be written, and nobody can write those of a table."""
        self.job_type_rate: Floats = rate.copy()  # (rows, slots)
        # (rows, rows, slots)
        self.colocated_rate = None if colocated_rate is None else colocated_rate.copy()

    def refresh_rates(
        self, rate: Floats, colocated_rate: Floats | None, capacity: Floats | None
    ) -> None:
        """Job groups follow another table. rate, colocated_rate: of job types and beliefs; capacity: (slots,)
        devices in all, where a job may be offered no slot type with fewer than it needs."""
        self.set_rates(rate, colocated_rate)
        self.refresh_group_rates(np.ones(self.jobs.n, np.bool_), capacity)

    def refresh_group_rates(self, some: Bools, capacity: Floats | None) -> None:
        """The job groups of these jobs, alone and in pairs, follow the table. some: (jobs,)."""
        groups, jobs = self.groups, self.jobs
        rows = np.flatnonzero(some)
        solo = self.single_job_rows()[rows]
        groups.rate[solo, :, 0] = self.job_type_rate[jobs.rate_row[rows]]
        if capacity is not None:
            groups.rate[solo] *= (capacity >= jobs.scale[rows, None])[:, :, None]
        if self.width > 1:
            pairs = groups.members[:, 1] >= 0
            self._rate_pairs(np.flatnonzero(pairs & some[groups.members].any(axis=1)))

    def single_job_rows(self) -> Ints:
        """(jobs,) rows of the job groups of single jobs."""
        if self.width == 1:
            return np.arange(self.jobs.n)
        return np.flatnonzero(self.groups.members[:, 1] < 0)

    def take_over(self, other: "Ledger", rows: Ints) -> Ints:
        """Take over jobs, with their steps, accounts and shares, to where their ids belong; they are to
        be removed there. rows: (jobs,) of the other. Returns the new row of every old job group here."""
        jobs, groups, before = self.jobs, self.groups, self.groups.n
        at = self.jobs.grow(len(rows))
        for mine, theirs in zip(self.job_tables, other.job_tables, strict=True):
            for name in mine.columns:
                getattr(mine, name)[at] = getattr(theirs, name)[rows]
        self._ids.update(jobs.id[at].tolist())
        self.regimes.take_over(other.regimes, rows)
        old, new = other.single_job_rows()[rows], groups.grow(len(rows))
        groups.members[new] = -1
        groups.members[new, 0] = np.arange(at.start, at.stop)
        groups.running_on[new] = -1
        for name in ("scale", "received_s", "deficit_s", "share", "allocated"):
            getattr(groups, name)[new] = getattr(other.groups, name)[old]
        groups.rate[new, :, 0] = other.groups.rate[old, :, 0]
        self.pair_up(at)
        return self.sort()[:before]

    def load(
        self,
        columns: Mapping[str, Any],
        regimes: Mapping[str, Any],
        adaptation: Sequence[Adaptation | None],
    ) -> None:
        """Jobs, ids ascending, into an empty ledger, and their job groups, with no accounts. columns: of
        the tables of jobs, of whose job_class only the order counts; regimes: of a ``RegimeTable``."""
        jobs, groups = self.jobs, self.groups
        at = self.jobs.grow(len(adaptation))
        for table in self.job_tables:
            for name in table.columns.keys() & columns.keys():
                getattr(table, name)[at] = columns[name]
        self.classify(np.argsort(columns["job_class"], kind="stable"))
        self._ids.update(jobs.id.tolist())
        self.regimes.append(regimes, adaptation)
        new = groups.grow(jobs.n)
        groups.members[new] = -1
        groups.members[new, 0] = np.arange(jobs.n)
        groups.scale[new] = jobs.scale
        groups.running_on[new] = -1
        self.pair_up(at)

    def find(self, pairs: Ints) -> Ints:
        """(pairs,) rows of the job groups of these pairs of jobs, -1 = there is none. pairs: (pairs, 2) rows
        of jobs, the first below the second."""
        return find_groups(self.groups.members, pairs, self.jobs.n)

    def pair_up(self, rows: slice) -> None:
        """Add the job groups of all pairs with the jobs in these rows, which are the last ones. For policies
        under which every pair is a job group."""
        if not self.all_pairs:
            return
        scale = self.jobs.scale
        for row in range(rows.start, rows.stop):
            others = np.flatnonzero(scale[:row] == scale[row])
            if len(others):
                new = self.groups.grow(len(others))
                self._fill_pairs(new, others, np.full(len(others), row))

    def add_pairs(self, pairs: Ints) -> None:
        """Make job groups of these pairs. pairs: (pairs, 2) rows of jobs, without repeats, none of them
        there."""
        if len(pairs):
            self._fill_pairs(self.groups.grow(len(pairs)), pairs[:, 0], pairs[:, 1])

    def sort(self) -> Ints:
        """Put jobs in order of id and job groups in that of their jobs; the new row of every old job
        group."""
        jobs, groups = self.jobs, self.groups
        order = np.argsort(jobs.id, kind="stable")
        row = np.empty_like(order)
        row[order] = np.arange(len(order))
        self._keep_jobs(order)
        groups.members[:] = np.where(groups.members < 0, -1, row[groups.members])
        if self.width > 1:
            pairs = np.flatnonzero(groups.members[:, 1] >= 0)
            turned = pairs[groups.members[pairs, 0] > groups.members[pairs, 1]]
            groups.members[turned] = groups.members[turned, ::-1]
            groups.rate[turned] = groups.rate[turned, :, ::-1]
        last = groups.members.max(axis=1, initial=-1)
        by = np.lexsort((groups.members[:, 0], groups.members[:, -1] >= 0, last))
        if self.width == 1:
            by = np.argsort(groups.members[:, 0], kind="stable")
        groups.keep(by)
        group_row = np.empty_like(by)
        group_row[by] = np.arange(len(by))
        return group_row

    def set_pairs(self, pairs: Ints) -> Ints | None:
        """Make these, and those that run, the pairs that are job groups. pairs: (pairs, 2) rows of jobs,
        without repeats. Returns the new row of every old job group, -1 where it is gone; None = no change.
        """
        groups, jobs = self.groups, self.jobs
        if self.all_pairs:
            return None
        listed = pairs[:, 0] * jobs.n + pairs[:, 1]
        there = np.where(
            groups.members[:, 1] < 0, -1, groups.members[:, 0] * jobs.n + groups.members[:, 1]
        )
        keep = (there < 0) | (groups.running_on >= 0) | np.isin(there, listed)
        new = pairs[~np.isin(listed, there)]
        if keep.all() and not len(new):
            return None
        row = np.where(keep, np.cumsum(keep) - 1, -1)
        groups.keep(np.flatnonzero(keep))
        rows = groups.grow(len(new))
        self._fill_pairs(rows, new[:, 0], new[:, 1])
        return row

    def settle_isolated(self, rate: Floats) -> None:
        """Bring the isolated time of every job up to now, at the rates of the time since the last call,
        and take these for the time to come. rate: (jobs,) steps/s of a job with its part of the cluster
        for itself. Source: Gavel (OSDI'20), finish-time fairness.
        """
        isolated, done = self.isolated, self.jobs.done
        steps = done - isolated.done_at_settle
        known = isolated.isolated_rate > 0
        isolated.isolated_s[known] += steps[known] / isolated.isolated_rate[known]
        isolated.done_at_settle[:] = done
        isolated.isolated_rate[:] = rate

    def remove(self, gone: Bools) -> Ints:
        """Take jobs out; returns the new row of every old job group, -1 where it is gone."""
        jobs, groups = self.jobs, self.groups
        keep = ~gone
        rows = keep.nonzero()[0]
        row = np.arange(len(rows))
        job_row = np.full(len(gone), -1, np.int64)
        job_row[rows] = row
        self._ids.difference_update(jobs.id[gone].tolist())
        since = int(gone.argmax()) if len(rows) < len(gone) else len(rows)
        self._keep_jobs(rows, since)
        if self.width == 1:  # a job group stands where its job does
            groups.keep(rows, since)
            groups.members[:, 0] = row
            return job_row
        group_members = groups.members
        whole = keep[group_members[:, 0]]
        for more in group_members.T[1:]:
            whole &= (more < 0) | keep[more]
        group_row = np.where(whole, np.cumsum(whole) - 1, -1)
        groups.keep(np.flatnonzero(whole))
        groups.members[:] = np.where(groups.members < 0, -1, job_row[groups.members])
        return group_row

    def group_ids(self) -> Ints:
        """(groups, width) job ids, -1 = none."""
        if self.width == 1:
            return self.jobs.id[:, None]
        ids = self.jobs.id[self.groups.members]
        ids[self.groups.members < 0] = -1
        return ids
