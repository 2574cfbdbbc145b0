"""Allocation problems as JSON lines: one snapshot per line, and snapshots from plain rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from fairlead.errors import InputError
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.job_type import JobType
from fairlead.model.limits import MAX_DEVICES
from fairlead.model.near_names import did_you_mean
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.simulator.traces.cluster_files import priced
from fairlead.simulator.traces.fields import (
    above_zero,
    seconds,
    seconds_above_zero,
    weight,
    whole,
)
from fairlead.simulator.traces.source import Source


@dataclass(frozen=True, slots=True)
class InstanceJob:
    """One job of a one-shot problem."""

    id: int
    family: str
    scale_factor: int = 1
    weight: float = 1.0
    steps_left: float = 1.0
    age_s: float = 0.0
    tenant: str = ""
    deadline_s: float = np.inf  # from now


def snapshot_of(
    jobs: Sequence[InstanceJob], cluster: Cluster, throughputs: Throughputs, now_s: float = 0.0
) -> Snapshot:
    """A snapshot in which these jobs have just been submitted to an empty cluster.

    Jobs are put in order of id. Nothing has run, nothing is allocated, there are no pairs.
    """
    jobs = sorted(jobs, key=lambda job: job.id)
    table = throughputs.columns(cluster.slots)
    rows = [table.row(JobType.parse(job.family, job.scale_factor)) for job in jobs]
    for job, row in zip(jobs, rows, strict=True):
        if row is None:
            raise InputError(
                f"job {job.id}: job_type: {job.family!r} at scale_factor {job.scale_factor} has no rates "
                f"in {table.origin}{did_you_mean(job.family, set(table.families) - {job.family})}"
            )
    tenants = tuple(dict.fromkeys(job.tenant for job in jobs))
    job_type = np.array(rows, np.int64)
    weight = np.array([job.weight for job in jobs], np.float64)
    class_key = np.column_stack([job_type.astype(np.float64), weight])
    _, job_class = np.unique(class_key, axis=0, return_inverse=True)
    fresh = fresh_snapshot(
        cluster,
        table,
        job_type,
        job_class.reshape(len(jobs)).astype(np.int64),
        weight,
        np.array([job.steps_left for job in jobs], np.float64),
    )
    return replace(
        fresh,
        now_s=now_s,
        jobs=np.array([job.id for job in jobs], np.int64),
        age_s=np.array([job.age_s for job in jobs], np.float64),
        deadline_s=np.array([job.deadline_s for job in jobs], np.float64),
        tenant=np.array([tenants.index(job.tenant) for job in jobs], np.int64),
        tenants=tenants,
    )


def fresh_snapshot(
    cluster: Cluster,
    table: Throughputs,
    job_type: Ints,
    job_class: Ints,
    weight: Floats,
    steps_left: Floats,
) -> Snapshot:
    """A snapshot of jobs 0, 1, ... that have just been submitted, without deadlines, by one tenant.

    table: with the cluster's slot types; job_type: (jobs,) rows of the table; the rest: (jobs,).
    """
    n, slots = len(job_type), len(cluster.slots)
    return Snapshot(
        now_s=0.0,
        round_s=DEFAULT.round_s,
        jobs=np.arange(n),
        weight=weight,
        total_steps=steps_left,
        steps_left=steps_left,
        age_s=np.zeros(n),
        ran_s=np.zeros(n),
        deadline_s=np.full(n, np.inf),
        job_class=job_class,
        tenant=np.zeros(n, np.int64),
        tenants=("",),
        job_type=job_type,
        job_type_rate=table.rate.copy(),
        regimes=None,
        isolated_s=np.zeros(n),
        restart_s=np.zeros(n),
        slots=cluster.slots,
        accelerator_of_slot=np.arange(slots),
        capacity=cluster.capacity.copy(),
        price=cluster.price.copy(),
        group_members=np.arange(n)[:, None],
        scale=np.array([one.scale_factor for one in table.job_types], np.int64)[job_type],
        rate=table.rate[job_type][:, :, None],
        colocated_rate=None if table.colocated_rate is None else table.colocated_rate.copy(),
        received_s=np.zeros((n, slots)),
        deficit_s=np.zeros((n, slots)),
        allocated_s=np.zeros(slots),
        share=np.zeros((n, slots)),
        allocated=np.zeros(n, np.bool_),
        running_on=np.full(n, -1, np.int64),
        previous=None,
    )


def read_instances(path: str | Path, throughputs: Throughputs) -> Iterator[tuple[int, Snapshot]]:
    """(k, snapshot) of each line: an object with k, cluster_spec {type: devices}, if wanted prices {type: $
    per device-hour}, and jobs, each with id, job_type, scale_factor, priority, num_steps_remaining,
    time_since_start and, if it has them, tenant and deadline_s (seconds from now). Other fields are
    ignored."""
    source = Source(path, InputError)
    lines = 0
    for line, text in source.lines():
        if not text.strip():
            continue
        lines += 1
        record = _record(source, line, text)
        jobs = _jobs(source, line, record)
        try:
            cluster = priced(Cluster.of(record.cluster_spec), record.prices)
            snapshot = snapshot_of(jobs, cluster, throughputs)
        except InputError as problem:
            raise source.fault(line, str(problem)) from None
        yield record.k, snapshot
    if not lines:
        raise source.fault(None, "is empty")


class _JobRecord(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
    job_type: str
    scale_factor: int
    priority: float = 1.0
    num_steps_remaining: float = 1.0
    time_since_start: float = 0.0
    tenant: str = ""
    deadline_s: float | None = None


class _InstanceRecord(msgspec.Struct):
    k: int
    cluster_spec: dict[str, int]
    jobs: list[_JobRecord]
    prices: dict[str, float] = {}  # $ per device-hour, over the defaults


_decode = msgspec.json.Decoder(_InstanceRecord).decode


def _record(source: Source, line: int, text: str) -> _InstanceRecord:
    try:
        record = _decode(text)
    except msgspec.MsgspecError as problem:
        raise source.fault(line, f"not an allocation problem: {problem}") from None
    if not record.jobs:
        raise source.fault(line, "jobs: expected at least one, got none")
    for accelerator, devices in record.cluster_spec.items():
        if devices > MAX_DEVICES:
            name = f"cluster_spec.{accelerator}"
            raise source.fault(line, f"{name}: must be <= {MAX_DEVICES}, got {devices}")
    return record


def _jobs(source: Source, line: int, record: _InstanceRecord) -> list[InstanceJob]:
    rows: list[InstanceJob] = []
    seen: set[int] = set()
    for position, job in enumerate(record.jobs):
        where = f"jobs[{position}]."
        if job.id in seen:
            raise source.fault(line, f"{where}id: appears twice, got {job.id}")
        seen.add(job.id)
        rows.append(
            InstanceJob(
                id=job.id,
                family=job.job_type,
                scale_factor=whole(source, line, f"{where}scale_factor", job.scale_factor, 1),
                weight=weight(source, line, f"{where}priority", job.priority),
                steps_left=above_zero(
                    source, line, f"{where}num_steps_remaining", job.num_steps_remaining
                ),
                age_s=seconds(source, line, f"{where}time_since_start", job.time_since_start),
                tenant=job.tenant,
                deadline_s=np.inf
                if job.deadline_s is None
                else seconds_above_zero(source, line, f"{where}deadline_s", job.deadline_s),
            )
        )
    return rows
