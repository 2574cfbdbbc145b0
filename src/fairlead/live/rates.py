"""The throughput table of a live cluster: the catalogue, and the rates that users bring along."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fairlead.live.rows import JobRow
from fairlead.live.spec import JobSpec
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.throughput import Kind, Throughputs

UNKNOWN = 1.0  # steps/s everywhere of a job of which nothing is known: all types are equal to it


def kind_of(spec: JobSpec, catalogue: Throughputs) -> str:
    """The family under which the core shall know a job: its own, or one made of the rates it brings."""
    if spec.family and not spec.rates and catalogue.row(spec.family, spec.scale_factor) is not None:
        return spec.family
    rates = ",".join(f"{name}={rate!r}" for name, rate in sorted(spec.rates.items()))
    label = spec.family or spec.name or "job"
    return f"{label} [{hashlib.sha256(rates.encode()).hexdigest()[:8]}]"


def own_rates(spec: JobSpec, slots: tuple[SlotType, ...]) -> Floats:
    """(slots,) steps/s that a job brings along; without any it runs everywhere alike."""
    if not spec.rates:
        return np.full(len(slots), UNKNOWN)
    return np.array([spec.rates.get(slot.accelerator, 0.0) for slot in slots])


def table_for(
    catalogue: Throughputs,
    cluster: Cluster,
    jobs: Mapping[int, JobRow],
    current: Throughputs | None = None,
) -> Throughputs:
    """The table of a cluster: families of the catalogue (rate 0 on types that it does not know) and
    the kinds of the jobs in the system. current: the table in force, with what has been learned."""
    known = set(catalogue.slots)
    wanted = (*catalogue.slots, *(s for s in cluster.slots if s not in known))
    extra = len(wanted) - len(catalogue.slots)
    rate = np.pad(catalogue.rate, ((0, 0), (0, extra)))
    pair = catalogue.pair
    if pair is not None:
        pair = np.pad(pair, ((0, 0), (0, 0), (0, extra)))
    table = replace(catalogue, slots=wanted, rate=rate, pair=pair, origin="journal")
    own: dict[Kind, Floats] = {}
    for row in jobs.values():
        kind = (row.kind, row.spec.scale_factor)
        if catalogue.row(*kind) is None:
            own[kind] = own_rates(row.spec, wanted)
            known_as = None if current is None else current.row(*kind)
            if current is not None and known_as is not None:
                for column, slot in enumerate(current.slots):
                    if slot in wanted:
                        own[kind][wanted.index(slot)] = current.rate[known_as, column]
    return extended(table, own)


def extended(table: Throughputs, more: Mapping[Kind, Floats]) -> Throughputs:
    """The table with more rows; of these, nothing is known beside others."""
    if not more:
        return table
    pair = table.pair
    if pair is not None:
        pair = np.pad(pair, ((0, len(more)), (0, len(more)), (0, 0)))
    return replace(
        table,
        kinds=(*table.kinds, *more),
        rate=np.vstack([table.rate, *more.values()]),
        pair=pair,
    )


def fits(rates: Mapping[str, float], spec: JobSpec, cluster: Cluster) -> bool:
    """Is there a type of which the cluster has enough devices, and on which the job can run?"""
    columns = zip(cluster.accelerators, cluster.capacity.tolist(), strict=True)
    return any(rates.get(a, 0.0) > 0 and capacity >= spec.scale_factor for a, capacity in columns)
