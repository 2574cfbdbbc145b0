"""The numbers of devices of elastic jobs: which each may have, and the change from one to another."""

import numpy as np

from fairlead.errors import ProtocolError
from fairlead.model.job import Job
from fairlead.model.plan import RoundPlan
from fairlead.model.snapshot import Elastic
from fairlead.scheduler.core.ledger import Ledger
from fairlead.scheduler.core.scheduler_data import SchedulerData, devices_per_slot


def admit_elastic(s: SchedulerData, job: Job) -> None:
    """Take note of the numbers of devices that a new job may have. Raises ProtocolError where its own is
    none of them, or the throughput table does not know one."""
    if not job.devices:
        return
    if job.scale_factor not in job.devices:
        raise ProtocolError(
            f"job {job.id}: begins on {job.scale_factor} devices, and may have {job.devices}"
        )
    for number in job.devices:
        job_type = job.job_type.with_scale_factor(number)
        if s.throughputs.row(job_type) is None:
            raise ProtocolError(f"job {job.id}: no rate for {job_type}")
    s.elastic[job.id] = tuple(sorted(set(job.devices)))


def elastic_choices(s: SchedulerData) -> Elastic:
    """Return what the jobs in the system may have; numbers that the table does not know are left out."""
    rows = _RowsByNumber(s)
    job, devices, job_type = list[int](), list[int](), list[int]()
    ids, types = s.ledger.jobs.id.tolist(), s.ledger.jobs.job_type.tolist()
    for i, (one, row) in enumerate(zip(ids, types, strict=True)):
        known = rows.of(row, s.elastic.get(one, ()))
        job += [i] * len(known)
        devices += known
        job_type += known.values()
    return Elastic(
        job=np.array(job, np.int64),
        devices=np.array(devices, np.int64),
        job_type=np.array(job_type, np.int64),
    )


def rows_of_elastic(s: SchedulerData) -> set[int]:
    """Rows of the throughput table that elastic jobs may come to use."""
    rows, found = _RowsByNumber(s), set[int]()
    for ledger in (s.ledger, s.paused_jobs):
        for one, row in zip(ledger.jobs.id.tolist(), ledger.jobs.job_type.tolist(), strict=True):
            found.update(rows.of(row, s.elastic.get(one, ())).values())
    return found


def resize(s: SchedulerData, plan: RoundPlan) -> None:
    """Job groups of a plan, none of them running, get the devices that it states. Those of another number
    than before hold none any more: they start anew."""
    if plan.scale is None:
        return
    groups, jobs = s.ledger.groups, s.ledger.jobs
    changed = np.flatnonzero(groups.scale[plan.job_group] != plan.scale)
    rows, taken = _RowsByNumber(s), plan.job_group[changed]
    for group, number in zip(taken.tolist(), plan.scale[changed].tolist(), strict=True):
        job = int(groups.members[group, 0])
        row = rows.of(int(jobs.job_type[job]), s.elastic.get(int(jobs.id[job]), ())).get(number)
        if row is None or (groups.members[group, 1:] >= 0).any():
            raise ProtocolError(f"job {jobs.id[job]}: cannot have {number} devices")
        _set_number(s.ledger, job, number, row)
    if len(taken):
        some = np.zeros(jobs.n, np.bool_)
        some[groups.members[taken, 0]] = True
        s.ledger.classify(np.flatnonzero(some))
        s.ledger.refresh_group_rates(some, devices_per_slot(s))
        s.running.release(taken)


def _set_number(ledger: Ledger, job: int, number: int, row: int) -> None:
    jobs, groups = ledger.jobs, ledger.groups
    jobs.scale[job], jobs.job_type[job], jobs.rate_row[job] = number, row, row
    groups.scale[ledger.single_job_rows()[job]] = number


class _RowsByNumber:
    """Rows of the throughput table of one job type on several numbers of devices; jobs of one type are
    looked up once."""

    def __init__(self, s: SchedulerData) -> None:
        self._table = s.throughputs
        self._found: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}

    def of(self, row: int, numbers: tuple[int, ...]) -> dict[int, int]:
        """Number of devices -> row, of those that the table knows. row: of the job type on any of them."""
        key = row, numbers
        if key not in self._found:
            job_type = self._table.job_types[row]
            rows = {
                number: self._table.row(job_type.with_scale_factor(number)) for number in numbers
            }
            self._found[key] = {number: at for number, at in rows.items() if at is not None}
        return self._found[key]
