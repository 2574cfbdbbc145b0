"""The throughput table of a live cluster: the catalogue, and the rates that users bring along."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import colocates
from fairlead.cluster.server.pair_rules import families_by_class, label_of, learned_pairs
from fairlead.cluster.store.rows import JobRow
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job_type import JobType, RateSource
from fairlead.model.throughputs import Throughputs

UNKNOWN = 1.0  # steps/s everywhere of a job of which nothing is known: all types are equal to it


def job_type_of(spec: JobSpec, catalogue: Throughputs) -> JobType:
    """The job type as which the core shall know a job: one of the catalogue, or one with the rates that its
    owner declares."""
    stated = JobType.parse(spec.family, spec.scale_factor)
    if spec.family and not spec.rates and catalogue.row(stated) is not None:
        return stated
    rates = ",".join(f"{name}={rate!r}" for name, rate in sorted(spec.rates.items()))
    if colocates(spec):
        rates += f";{spec.colocated_fraction!r};{sorted(spec.colocated_fractions.items())!r}"
    digest = hashlib.sha256(rates.encode()).hexdigest()[:8]
    named = JobType.parse(label_of(spec), spec.scale_factor)
    return named.with_source(RateSource.DECLARED, digest)


def job_type_of_row(row: JobRow) -> JobType:
    """The job type as which the core knows a job now."""
    return JobType.parse(row.rates_family, row.scale_factor)


def job_types_of_row(row: JobRow) -> list[JobType]:
    """The job types as which the core knows a job on each number of devices that it may have."""
    job_type = job_type_of_row(row)
    return [job_type.with_scale_factor(number) for number in row.spec.scale_factors]


def stated_rates(
    spec: JobSpec, slots: tuple[SlotType, ...], scale_factor: int = 0, known: Floats | None = None
) -> Floats:
    """(slots,) steps/s that a job brings along; without any it runs everywhere alike. scale_factor: on so
    many devices, 0 = on those that its rates are of; known: (slots,) what the catalogue has for those."""
    if known is None and not spec.rates:
        known = np.full(len(slots), UNKNOWN)
    elif known is None or spec.rates:
        known = np.array([spec.rates.get(slot.accelerator, 0.0) for slot in slots])
    return known * spec.speedup(scale_factor or spec.scale_factor)


def missing_rates(spec: JobSpec, job_type: JobType, table: Throughputs) -> dict[JobType, Floats]:
    """Return the rates of a job on those numbers of devices that it may have of which the table has none."""
    at = table.row(job_type)
    known = None if at is None else table.rate[at]
    kinds = map(job_type.with_scale_factor, spec.scale_factors)
    return {
        kind: stated_rates(spec, table.slots, kind.scale_factor, known)
        for kind in kinds
        if table.row(kind) is None
    }


def table_for(
    catalogue: Throughputs,
    cluster: Cluster,
    jobs: Mapping[int, JobRow],
    current: Throughputs | None = None,
    *,
    space_sharing: bool = True,
) -> Throughputs:
    """The table of a cluster: families of the catalogue (rate 0 on types that it does not know) and
    the kinds of the jobs in the system. current: the table in force, with what has been learned;
    space_sharing: whether rates of jobs side by side are wanted."""
    table = families_by_class(catalogue) if space_sharing else catalogue.without_pairs()
    known = set(catalogue.slots)
    slots = (*catalogue.slots, *(s for s in cluster.slots if s not in known))
    extra = len(slots) - len(catalogue.slots)
    rate = np.pad(catalogue.rate, ((0, 0), (0, extra)))
    classed = None if table.classed is None else table.classed.widened(extra)
    table = replace(table, slots=slots, rate=rate, classed=classed, origin="journal")
    stated: dict[JobType, Floats] = {}
    specs: dict[JobType, JobSpec] = {}
    asked = ((row.spec, one) for row in jobs.values() for one in job_types_of_row(row))
    for spec, job_type in asked:
        if catalogue.row(job_type) is None:
            specs[job_type] = spec
            at = catalogue.row(job_type.with_scale_factor(spec.scale_factor))
            measured = None if at is None else rate[at]
            stated[job_type] = stated_rates(spec, slots, job_type.scale_factor, measured)
            known_as = None if current is None else current.row(job_type)
            if current is not None and known_as is not None:
                for column, slot in enumerate(current.slots):
                    if slot in slots:
                        stated[job_type][slots.index(slot)] = current.rate[known_as, column]
    if not stated:
        return table
    pairs = None
    if table.classed is not None or (space_sharing and any(map(colocates, specs.values()))):
        classes = table.pair_rates_by_class().classes
        pairs = learned_pairs(catalogue, slots, stated, specs, classes)
    return table.learned(tuple(stated), slots, np.stack(list(stated.values())), pairs=pairs)


def with_pairs_of(table: Throughputs, other: Throughputs) -> Throughputs:
    """The table with the rates beside each other that another one has of its job types, 0 = it has none."""
    rows = [other.row(job_type) for job_type in table.job_types]
    at = np.array([-1 if row is None else row for row in rows], np.int64)
    pairs = other.columns(table.slots).pair_rates_by_class().rows(at)
    return replace(table, colocated_rate=None, classed=pairs)


def with_job_types_of(table: Throughputs, other: Throughputs) -> Throughputs:
    """The table with the kinds of another one that it lacks, at their rates there; 0 on slot types that the
    other does not have. A state that was copied earlier may hold jobs that have ended since."""
    missing = [job_type for job_type in other.job_types if table.row(job_type) is None]
    here = {slot: column for column, slot in enumerate(table.slots)}
    shared = [(here[slot], column) for column, slot in enumerate(other.slots) if slot in here]
    more = {}
    for job_type in missing:
        more[job_type] = np.zeros(len(table.slots))
        for mine, theirs in shared:
            more[job_type][mine] = other.rate[other.row(job_type), theirs]
    return extended(table, more)


def extended(table: Throughputs, more: Mapping[JobType, Floats]) -> Throughputs:
    """The table with more rows; of these, nothing is known beside others."""
    if not more:
        return table
    return table.learned(tuple(more), table.slots, np.stack(list(more.values())))


def rate_is_known(row: JobRow, catalogue: Throughputs, measured: float | None) -> bool:
    """Return whether the rate of a job was stated or measured. Of an unmanaged job that reports nothing run
    time is the progress: its rate is known. measured: steps/s"""
    by_time = row.spec.unmanaged and not row.tells_steps
    return bool(by_time or measured or not has_no_rates(row, catalogue))


def has_no_rates(row: JobRow, catalogue: Throughputs) -> bool:
    """Return whether neither its owner nor the catalogue gives any for a job."""
    return not row.spec.rates and catalogue.row(job_type_of_row(row)) is None


def by_accelerator(slots: tuple[SlotType, ...], rate: Floats) -> dict[str, float]:
    """Accelerator type -> steps/s in its best locality. rate: (slots,)"""
    best: dict[str, float] = {}
    for slot, steps_per_s in zip(slots, rate.tolist(), strict=True):
        best[slot.accelerator] = max(best.get(slot.accelerator, 0.0), steps_per_s)
    return best


def fits(rates: Mapping[str, float], spec: JobSpec, cluster: Cluster) -> bool:
    """Return whether the job can run on a type of which the cluster has enough devices."""
    least = spec.scale_factors[0]
    columns = zip(cluster.accelerators, cluster.capacity.tolist(), strict=True)
    return any(rates.get(a, 0.0) > 0 and capacity >= least for a, capacity in columns)
