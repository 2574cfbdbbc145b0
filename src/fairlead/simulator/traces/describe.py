"""Descriptions of traces: how long, how wide and how bursty their jobs are."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.traces.trace import Trace

PERCENTS = (5, 25, 50, 75, 90, 95, 99)
DAY_S = 86400.0
HOUR_S = 3600.0
SWEEP_S = 10.0  # submitted within this time of the job before: probably by one script


@dataclass(frozen=True, slots=True)
class Durations:
    """Running times in seconds."""

    stated: bool  # by the trace; otherwise steps over the rate on the fastest accelerator type
    jobs: int  # that have one
    percentiles_s: dict[int, float]
    mean_s: float
    over_a_day: float  # share of jobs


@dataclass(frozen=True, slots=True)
class Demand:
    """Jobs that ask for a number of devices in one range."""

    devices: str  # "1", "3-4", ">32"
    jobs: float  # share of jobs
    device_time: float | None  # share of devices x duration; None where durations are not known


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When jobs come. A Poisson process has CV 1 and Fano factor 1; None = too few jobs to say."""

    span_s: float
    jobs_per_hour: float | None
    gap_cv: float | None  # standard deviation over mean of the time between arrivals
    same_second: float | None  # share of jobs less than 1 s behind the one before
    within_10_s: float | None  # share of jobs at most 10 s behind the one before
    hourly_fano: float | None  # variance over mean of arrivals per hour
    peak_hour: float | None  # largest over mean


@dataclass(frozen=True, slots=True)
class TraceDescription:
    """All of it, ready to be printed or turned into JSON."""

    name: str
    format: str
    jobs: int
    skipped: int
    notes: tuple[str, ...]
    durations: Durations | None
    demand: tuple[Demand, ...]
    largest_demand: int
    arrivals: Arrivals
    families: dict[str, int]  # jobs by family, most first
    tenants: dict[str, int]  # the same by tenant
    with_deadline: int
    adapting: dict[str, int]  # jobs by mode of adaptation, those without one left out


def describe(trace: Trace, throughputs: Throughputs) -> TraceDescription:
    """Counts, percentiles, demand, arrival pattern. Durations that the trace does not state are those
    on the fastest accelerator type of the table."""
    jobs = [arrival.job for arrival in trace.arrivals]
    asked = np.array(trace.devices or [job.scale_factor for job in jobs], np.int64)
    stated, duration_s = _durations(trace, throughputs)
    return TraceDescription(
        name=trace.name,
        format=trace.format,
        jobs=len(jobs),
        skipped=len(trace.skipped),
        notes=trace.notes,
        durations=_duration_figures(stated, duration_s),
        demand=_demand(asked, duration_s),
        largest_demand=int(asked.max(initial=0)),
        arrivals=_arrivals(np.array([arrival.time_s for arrival in trace.arrivals], np.float64)),
        families=_counted([job.family for job in jobs]),
        tenants=_counted([job.tenant for job in jobs if job.tenant]),
        with_deadline=sum(job.slo_s is not None for job in jobs),
        adapting=_counted(
            [job.adaptation.mode.value for job in jobs if job.adaptation is not None]
        ),
    )


def _counted(names: list[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda one: (-one[1], one[0])))


def _durations(trace: Trace, throughputs: Throughputs) -> tuple[bool, Floats]:
    """(jobs,) seconds, nan where not known."""
    jobs = [arrival.job for arrival in trace.arrivals]
    if any(job.duration_s is not None for job in jobs):
        known = [np.nan if job.duration_s is None else job.duration_s for job in jobs]
        return True, np.array(known, np.float64)
    rows = [throughputs.row(job.job_type) for job in jobs]
    rate = np.array([0.0 if r is None else throughputs.fastest[r] for r in rows], np.float64)
    steps = np.array([job.total_steps for job in jobs], np.float64)
    return False, np.divide(steps, rate, out=np.full(len(jobs), np.nan), where=rate > 0)


def _duration_figures(stated: bool, duration_s: Floats) -> Durations | None:
    known = duration_s[~np.isnan(duration_s)]
    if not known.size:
        return None
    values = np.percentile(known, PERCENTS).tolist()
    return Durations(
        stated,
        int(known.size),
        dict(zip(PERCENTS, values, strict=True)),
        float(known.mean()),
        float((known > DAY_S).mean()),
    )


def _demand(devices: Ints, duration_s: Floats) -> tuple[Demand, ...]:
    """By powers of two up to 32, as published tables do; ranges without a job are left out."""
    known = ~np.isnan(duration_s)
    device_time = np.where(known, devices * np.where(known, duration_s, 0.0), 0.0)
    total = device_time.sum()
    edges = (0, 1, 2, 4, 8, 16, 32, np.inf)
    rows = []
    for low, high in pairwise(edges):
        here = (devices > low) & (devices <= high)
        if here.any():
            share = float(device_time[here].sum() / total) if total > 0 else None
            rows.append(Demand(_range(low, high), float(here.mean()), share))
    return tuple(rows)


def _range(low: float, high: float) -> str:
    if high == np.inf:
        return f">{low:.0f}"
    return f"{high:.0f}" if high - low == 1 else f"{low + 1:.0f}-{high:.0f}"


def _arrivals(time_s: Floats) -> Arrivals:
    span_s = float(time_s[-1] - time_s[0]) if time_s.size else 0.0
    if span_s == 0:
        return Arrivals(
            span_s=span_s,
            jobs_per_hour=None,
            gap_cv=None,
            same_second=None,
            within_10_s=None,
            hourly_fano=None,
            peak_hour=None,
        )
    gaps = np.diff(time_s)
    per_hour = np.bincount(((time_s - time_s[0]) // HOUR_S).astype(np.int64))
    return Arrivals(
        span_s=span_s,
        jobs_per_hour=len(time_s) / span_s * HOUR_S,
        gap_cv=float(gaps.std() / gaps.mean()),
        same_second=float((gaps < 1).mean()),
        within_10_s=float((gaps <= SWEEP_S).mean()),
        hourly_fano=float(per_hour.var() / per_hour.mean()),
        peak_hour=float(per_hour.max() / per_hour.mean()),
    )
