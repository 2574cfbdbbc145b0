"""Real traces whole, on today's accelerators: bursts, failures of nodes, starts that cost.

There is no published figure behind this. The question is who wins, and by how much, where nothing is made
up but the model families, which the traces do not tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.report.chart import Chart, Series
from fairlead.errors import ConfigError
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.job import Arrival, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.arrivals import bursty_arrivals
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import read_throughputs, write_throughputs_csv
from fairlead.simulator.traces.trace import Trace
from fairlead.simulator.traces.write_trace import write_trace

POLICIES = {
    "las_aware": "LAS",
    "finish_time_aware": "finish-time fairness",
    "makespan_aware": "makespan",
    "las": "LAS, types taken for alike",
    "tiresias": "Tiresias",
    "fifo": "FIFO",
}
PER_SERVER = "8"
RESTART_S = "60"
MTBF_H, MTTR_H = 720.0, 4.0  # of a server
SWEEP_S = 60.0  # jobs of one tenant and size that follow one another so closely are of one family
SLICE_DAYS = (40.0, 47.0)  # of the Philly trace, at small scale
SIZES = {
    "1 device": (1, 1),
    "2 to 4 devices": (2, 4),
    "5 to 8 devices": (5, 8),
    "more devices": (9, 1 << 30),
}


@dataclass(frozen=True)
class TraceLoad:
    """A trace and the cluster that it is run on."""

    name: str
    files: tuple[str, ...]  # as ``ExperimentContext.shared`` names them
    cluster: str


PHILLY = TraceLoad(
    "Philly",
    ("philly/philly_jobs_dev_vcs.csv.gz",),
    "h100=48,a100-80=64,a100-40=48,v100=88,rtx-3090=40",
)
ITP = TraceLoad(
    "ITP",
    tuple(f"ms_itp/raw/cluster{n:02}.csv.gz" for n in (1, 2, 4, 5, 7, 10)),
    "h100=192,a100-80=288,a100-40=192,v100=400,rtx-3090=208",
)


def realism(context: ExperimentContext) -> Findings:
    """Every policy on every trace."""
    loads = (PHILLY, ITP) if context.scale == "paper" else (PHILLY,)
    tables: list[FindingTable] = []
    charts: list[Chart] = []
    remarks: list[str] = []
    for load in loads:
        given, caveats = prepared(context, load)
        outcomes = context.run([Point(policy, "default", given) for policy in POLICIES])
        tables += [overview(load.name, outcomes), by_size(load.name, outcomes)]
        charts += [_cdf(load.name, outcomes), _bars(load.name, outcomes)]
        remarks += caveats
    return Findings(tuple(tables), tuple(charts), (*remarks, *_METHOD))


_METHOD = (
    "The traces state neither models nor rates. A job's family is drawn with equal chances from those that "
    "the built-in catalogue has measured, at its number of devices, on two of the cluster's accelerator "
    f"types or more; jobs of one tenant and size that come within {SWEEP_S:.0f} s of one another are a sweep "
    "and of one family. Numbers of devices that were not measured are rounded down.",
    "A job has as many steps as it does in its duration at the mean rate over the devices that it can run "
    "on. So the load is that of the trace when jobs are dealt to devices blindly, and less when they go "
    "where they are fast: see the device-days.",
    f"Servers of {PER_SERVER} devices, each of which fails once in {MTBF_H:.0f} h on average, for "
    f"{MTTR_H:.0f} h. A start after the first costs {RESTART_S} s. Rounds of 360 s, the default profile.",
    "The traces' own clusters were far larger than their load. These are of a size that all jobs of the "
    "trace fill to two thirds on average; bursts ask for several times what there is.",
    "Utilisation is measured over the makespan, which depends on the last few long jobs: where "
    "they begin on a slow "
    "type, and stay there, the cluster is all but empty for weeks.",
)


# --- traces --------------------------------------------------------------------------------------


def prepared(
    context: ExperimentContext, load: TraceLoad
) -> tuple[SimulationInput, tuple[str, ...]]:
    """The jobs and their rates as files in the context's folder, and what there is to say about them."""
    cluster = parse_cluster(load.cluster, PER_SERVER)
    rates = todays(read_throughputs("builtin"), cluster)
    context.folder.mkdir(parents=True, exist_ok=True)
    table, trace = context.folder / "rates.csv", context.folder / f"{load.name.lower()}.parquet"
    write_throughputs_csv(rates, table)
    caveats: tuple[str, ...] = ()
    try:
        arrivals, notes = _read(context, load, rates)
    except ConfigError:
        if context.scale == "paper":
            raise
        arrivals, notes = _generated(rates), ()
        caveats = (
            "The traces are not here: jobs are generated, with bursts and durations like theirs.",
        )
    else:
        if context.scale == "small":
            arrivals = _slice(arrivals)
    jobs = with_families(arrivals, rates, cluster.capacity)
    write_trace(Trace(load.name, "realism", jobs), trace)
    given = SimulationInput(
        trace=str(trace),
        throughputs=str(table),
        cluster=load.cluster,
        devices_per_server=PER_SERVER,
        restart_cost=[RESTART_S],
        mtbf_h=MTBF_H,
        mttr_h=MTTR_H,
    )
    return given, (*caveats, _described(load, jobs, cluster), *(f"{load.name}: {n}" for n in notes))


def todays(catalogue: Throughputs, cluster: Cluster) -> Throughputs:
    """The catalogue's job types with rates on at least two of the cluster's types, so that types differ."""
    here = catalogue.columns(cluster.slots)
    usable = np.flatnonzero((here.rate > 0).sum(axis=1) >= 2)
    job_types = tuple(here.job_types[k] for k in usable.tolist())
    return Throughputs(here.slots, job_types, here.rate[usable], origin="built-in catalogue")


def _read(
    context: ExperimentContext, load: TraceLoad, rates: Throughputs
) -> tuple[list[Arrival], tuple[str, ...]]:
    """The trace's files as one, from time 0 on; a file without tenants is one of its own."""
    arrivals: list[Arrival] = []
    notes: list[str] = []
    for name in load.files:
        path = context.shared(name)
        trace = read_trace(path, rates)
        notes += trace.notes
        tenant = Path(name).name.partition(".")[0]
        arrivals += [
            replace(one, job=replace(one.job, tenant=one.job.tenant or tenant))
            for one in trace.arrivals
        ]
    return _from_zero(sorted(arrivals, key=lambda one: one.time_s)), tuple(dict.fromkeys(notes))


def _from_zero(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Numbered in this order, the first at time 0."""
    return [
        Arrival(one.time_s - arrivals[0].time_s, replace(one.job, id=JobId(number)))
        for number, one in enumerate(arrivals)
    ]


def _slice(arrivals: Sequence[Arrival]) -> list[Arrival]:
    first, last = (day * 86_400 for day in SLICE_DAYS)
    return _from_zero([one for one in arrivals if first <= one.time_s < last])


def _generated(rates: Throughputs) -> list[Arrival]:
    """Bursts and durations like those of the traces, at about the load of the slice."""
    rng = np.random.default_rng(0)
    return list(bursty_arrivals(rates, mean_interarrival_s=150.0, rng=rng, jobs=3_000))


def with_families(
    arrivals: Sequence[Arrival], rates: Throughputs, capacity: Floats, seed: int = 0
) -> list[Arrival]:
    """Return the jobs with families and steps, as the remarks describe it. capacity: (types,) devices."""
    runs = rates.rate > 0
    mean = (rates.rate @ capacity) / np.maximum(runs @ capacity, 1.0)
    families: dict[int, list[int]] = {}
    for row, one_type in enumerate(rates.job_types):
        families.setdefault(one_type.scale_factor, []).append(row)
    rng = np.random.default_rng(seed)
    last: dict[
        tuple[str, int], tuple[float, int]
    ] = {}  # of a tenant and size: when, and which job type
    made = []
    for one in arrivals:
        job = one.job
        key = (job.tenant, job.scale_factor)
        before_s, job_type = last.get(key, (-np.inf, -1))
        if one.time_s - before_s > SWEEP_S:
            candidates = families[job.scale_factor]
            job_type = candidates[int(rng.integers(len(candidates)))]
        last[key] = (one.time_s, job_type)
        duration_s = job.duration_s
        assert duration_s is not None
        family = rates.job_types[job_type].name
        made.append(
            replace(
                one, job=replace(job, family=family, total_steps=duration_s * float(mean[job_type]))
            )
        )
    return made


def _described(load: TraceLoad, jobs: Sequence[Arrival], cluster: Cluster) -> str:
    devices = float(cluster.capacity.sum())
    asked_s = sum((one.job.duration_s or 0.0) * one.job.scale_factor for one in jobs)
    lasts_s = jobs[-1].time_s
    return (
        f"{load.name}: {len(jobs):,} jobs in {lasts_s / 86_400:.0f} days, {devices:,.0f} devices "
        f"({load.cluster.replace('=', ' ').replace(',', ', ')}), load {asked_s / lasts_s / devices:.2f}."
    )


# --- what came of it -----------------------------------------------------------------------------


def overview(name: str, outcomes: Sequence[PointResult]) -> FindingTable:
    """Return a table of each policy's metrics on a trace, and of its average JCT over that of the best."""
    rows: list[FindingRow] = []
    for outcome in outcomes:
        who = POLICIES[outcome.point.policy]
        if outcome.status is not Status.COMPLETE:
            rows.append(FindingRow(who, None, remark=outcome.reason))
            continue
        metrics = outcome.metrics
        percentiles = metrics["jct_percentiles_s"]
        rows += [
            FindingRow(f"{who}: average JCT", metrics["avg_jct_s"] / 3600, unit="h"),
            FindingRow(f"{who}: median JCT", percentiles["p50"] / 3600, unit="h"),
            FindingRow(f"{who}: 99th percentile of JCT", percentiles["p99"] / 3600, unit="h"),
            FindingRow(f"{who}: average wait for the first start", _wait_h(metrics), unit="h"),
            FindingRow(f"{who}: makespan", metrics["makespan_s"] / 86_400, unit="days"),
            FindingRow(f"{who}: utilisation", metrics["utilization"]),
            FindingRow(f"{who}: devices in use", _device_days(outcome), unit="device-days"),
            FindingRow(f"{who}: preemptions per job", metrics["preemptions"] / metrics["n_jobs"]),
            FindingRow(f"{who}: part of run time lost to starts", metrics["lost_share"]),
            FindingRow(f"{who}: processor time", outcome.seconds, unit="s"),
        ]
    rows += _gains(outcomes)
    return FindingTable(f"{name}: policies", tuple(rows))


def _device_days(outcome: PointResult) -> float:
    """Return how much of the cluster all jobs took. Devices that are out of order do not count as in use."""
    given, metrics = outcome.point.input, outcome.metrics
    devices = float(parse_cluster(given.cluster, given.devices_per_server).capacity.sum())
    return float(metrics["utilization"] * metrics["makespan_s"] * devices / 86_400)


def _wait_h(metrics: dict[str, float]) -> float:
    return metrics["avg_queueing_delay_s"] / 3600


def _gains(outcomes: Sequence[PointResult]) -> list[FindingRow]:
    """Each policy's average JCT over that of the best."""
    known = {
        POLICIES[one.point.policy]: float(one.metrics["avg_jct_s"])
        for one in outcomes
        if one.status is Status.COMPLETE
    }
    if len(known) < 2:
        return []
    best = min(known, key=lambda who: known[who])
    return [
        FindingRow(f"average JCT, {who} over {best}", jct / known[best], unit="x")
        for who, jct in known.items()
        if who != best
    ]


def by_size(name: str, outcomes: Sequence[PointResult]) -> FindingTable:
    """Average JCT by the number of devices."""
    rows = []
    for outcome in outcomes:
        if outcome.status is Status.COMPLETE:
            who = POLICIES[outcome.point.policy]
            for size, jct in zip(SIZES, _by_size(outcome), strict=True):
                value = None if np.isnan(jct) else float(jct)
                rows.append(FindingRow(f"{who}: {size}", value, unit="h"))
    return FindingTable(f"{name}: average JCT by size", tuple(rows))


def _jobs(outcome: PointResult) -> pl.DataFrame:
    return pl.read_parquet(outcome.jobs).filter(pl.col("end") == "completed")


def _by_size(outcome: PointResult) -> Floats:
    """(sizes,) average JCT in hours, nan where no job is so large."""
    jobs = _jobs(outcome)
    scale: Ints = jobs["scale_factor"].to_numpy()
    jct_h: Floats = jobs["jct_s"].to_numpy() / 3600
    means = np.full(len(SIZES), np.nan)
    for i, (least, most) in enumerate(SIZES.values()):
        here: Bools = (least <= scale) & (scale <= most)
        if here.any():
            means[i] = jct_h[here].mean()
    return means


def _complete(outcomes: Sequence[PointResult]) -> list[tuple[str, PointResult]]:
    return [(POLICIES[o.point.policy], o) for o in outcomes if o.status is Status.COMPLETE]


def _cdf(name: str, outcomes: Sequence[PointResult]) -> Chart:
    series = []
    for who, outcome in _complete(outcomes):
        jct_h = np.sort(_jobs(outcome)["jct_s"].to_numpy()) / 3600
        at: Ints = np.unique(np.linspace(0, len(jct_h) - 1, 500).round().astype(np.int64))
        series.append(Series(who, jct_h[at], (at + 1) / len(jct_h), steps=True))
    return Chart(
        f"{name}: completion times", "JCT (hours)", "Part of the jobs", tuple(series), log_x=True
    )


def _bars(name: str, outcomes: Sequence[PointResult]) -> Chart:
    at = np.arange(len(SIZES), dtype=np.float64)
    series = tuple(Series(who, at, _by_size(one)) for who, one in _complete(outcomes))
    return Chart(
        f"{name}: average JCT by size",
        "Devices of a job",
        "Average JCT (hours)",
        series,
        kind="bars",
        categories=tuple(SIZES),
        log_y=True,
    )


REPRODUCTIONS = (
    Reproduction(
        "realism",
        "Real traces on today's accelerators",
        "no published figures; traces of Philly (2017) and ITP (2021)",
        realism,
    ),
)
