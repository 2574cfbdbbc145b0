"""The figures of one run or of several, as charts, for pages and for files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fairlead.analysis.report.aggregate import (
    accelerators,
    completion_times,
    measured_jobs,
    over_time,
    rho_of,
    static_rho,
)
from fairlead.analysis.report.chart import Chart, Series
from fairlead.analysis.report.fair_share import fair_share_s, received_s
from fairlead.analysis.report.metric_catalogue import (
    MetricKind,
    Unit,
    number,
    unit_for,
)
from fairlead.analysis.report.picture_data import OverTime, step_line_of
from fairlead.model.arrays import Floats

MAX_RATIO = 2.0  # larger ratios are drawn here: a few short jobs would squeeze all others
MAX_TENANTS = 12
_EMPTY: Floats = np.empty(0)


@dataclass(frozen=True)
class PlottedRun:
    """A run, as it is in its folder."""

    label: str
    config: Mapping[str, object]
    metrics: Mapping[str, object]
    jobs: pl.DataFrame
    rounds: pl.DataFrame


@dataclass(frozen=True)
class RunFigure:
    """A figure that can be made of runs."""

    name: str  # as ``--figure`` takes it
    title: str
    make: Callable[[Sequence[PlottedRun]], Chart | None]  # None: the runs do not have what it shows


def distribution(
    title: str, axis: str, samples: Sequence[tuple[str, Floats]], kind: MetricKind = MetricKind.TIME
) -> Chart | None:
    """The share of each sample (increasing) up to each value. None where there are no values at all."""
    known = [(name, sample) for name, sample in samples if sample.size]
    if not known:
        return None
    largest = max(float(sample[-1]) for _, sample in known)
    unit = unit_for(kind, [largest])
    median = max(float(np.median(sample)) for _, sample in known)
    positive = all(sample[0] > 0 for _, sample in known)
    return Chart(
        title,
        f"{axis} ({unit.name})" if unit.name else axis,
        "Share of jobs (%)",
        tuple(_step_series(name, sample, unit, largest) for name, sample in samples),
        log_x=positive and largest > 25 * median,
    )


def _step_series(name: str, sample: Floats, unit: Unit, until: float) -> Series:
    if not sample.size:
        return Series(name, sample, sample, steps=True)
    values, shares = step_line_of(sample)
    x = np.concatenate([values[:1], values, [until]]) / unit.size
    return Series(name, x, 100 * np.concatenate([[0.0], shares, [1.0]]), steps=True)


def _jct(runs: Sequence[PlottedRun]) -> Chart | None:
    samples = [(run.label, completion_times(measured_jobs(run.config, run.jobs))) for run in runs]
    return distribution("Job completion time", "Completion time", samples)


def _rho(runs: Sequence[PlottedRun]) -> Chart | None:
    samples = [
        (run.label, rho_of(measured_jobs(run.config, run.jobs), "rho_isolated")) for run in runs
    ]
    return _at_one(
        distribution("Finish-time fairness (isolated)", "Rho, isolated", samples, MetricKind.RATIO)
    )


def _static_rho(runs: Sequence[PlottedRun]) -> Chart | None:
    samples = [
        (run.label, static_rho(run.jobs) if run.config.get("window") is None else _EMPTY)
        for run in runs
    ]
    return _at_one(
        distribution("Finish-time fairness (static)", "Rho, static", samples, MetricKind.RATIO)
    )


def _at_one(chart: Chart | None, name: str = "equal split") -> Chart | None:
    """The chart with a mark at 1."""
    if chart is None:
        return None
    return Chart(
        chart.title, chart.x_label, chart.y_label, chart.series, log_x=chart.log_x,
        marks=((1.0, name),),
    )  # fmt: skip


def _over_time_chart(
    runs: Sequence[PlottedRun], title: str, label: str, values: Callable[[OverTime], Floats]
) -> Chart | None:
    """A chart over time, a line per run. values: (bins,) means or, for cumulative ones, (bins + 1,)."""
    bins = 300 if len(runs) == 1 else 120
    lines = [(run.label, over_time(run.rounds, bins)) for run in runs]
    known = [over for _, over in lines if over is not None]
    if not any(values(over).any() for over in known):
        return None
    unit = unit_for(MetricKind.TIME, [float(over.edges_s[-1]) for over in known])
    series = tuple(
        Series(name, _EMPTY, _EMPTY)
        if over is None
        else _mean_series(name, over.edges_s / unit.size, values(over))
        for name, over in lines
    )
    return Chart(title, f"Time ({unit.name})", label, series)


def _mean_series(name: str, edges: Floats, values: Floats) -> Series:
    if len(values) == len(edges):
        return Series(name, edges, values)
    return Series(name, edges, np.append(values, values[-1:]), steps=True)


def _cumulative(amount: Floats) -> Floats:
    """(bins + 1,) the cumulative amount at each edge of the bins."""
    return np.append(0.0, np.cumsum(amount))


def _utilization(runs: Sequence[PlottedRun]) -> Chart | None:
    return _over_time_chart(
        runs, "Utilisation", "Busy devices (% of those there are)", lambda over: 100 * over.busy
    )


def _stranded(runs: Sequence[PlottedRun]) -> Chart | None:
    return _over_time_chart(
        runs,
        "Fragmentation: devices idle while jobs wait",
        "Idle devices while jobs wait (% of those there are)",
        lambda over: 100 * over.stranded,
    )


def _scattered(runs: Sequence[PlottedRun]) -> Chart | None:
    return _over_time_chart(
        runs,
        "Fragmentation: jobs on more servers than they need",
        "Devices of such jobs (% of busy ones)",
        lambda over: 100 * over.scattered,
    )


def _queue(runs: Sequence[PlottedRun]) -> Chart | None:
    return _over_time_chart(runs, "Jobs in the system", "Jobs", lambda over: over.active)


def _lost(runs: Sequence[PlottedRun]) -> Chart | None:
    return _over_time_chart(
        runs,
        "Lost work: starts, failed attempts and lost nodes",
        "Device-hours lost so far",
        lambda over: _cumulative(over.lost_s) / 3600,
    )


def _preempted(runs: Sequence[PlottedRun]) -> Chart | None:
    return _over_time_chart(
        runs, "Preemptions", "Preemptions so far", lambda over: _cumulative(over.preempted)
    )


def _promised(runs: Sequence[PlottedRun]) -> Chart | None:
    """Time on devices over what the policy's shares promised."""
    samples = [
        (
            run.label,
            _ratios(run.jobs["run_s"], run.jobs["target_run_s"])
            if "target_run_s" in run.jobs.columns
            else _EMPTY,
        )
        for run in runs
    ]
    return _ratio_chart(
        "Shares: time received against what the policy promised",
        "Time received over time promised",
        samples,
        "as promised",
    )


def _fair_shares(runs: Sequence[PlottedRun]) -> Chart | None:
    """Device time over an equal share of the cluster."""
    samples = []
    for run in runs:
        due_s = fair_share_s(run.jobs, run.rounds)
        known = _EMPTY if due_s is None else _ratios(received_s(run.jobs), pl.Series(due_s))
        samples.append((run.label, known))
    return _ratio_chart(
        "Shares: device time received against an equal split",
        "Device time received over an equal share (by weight) of the cluster",
        samples,
        "equal split",
    )


def _ratios(received: pl.Series, due: pl.Series) -> Floats:
    """(jobs,) received over due, increasing, of the jobs with more than 1 s due."""
    known = (
        pl.DataFrame({"received": received, "due": due}).drop_nulls().filter(pl.col("due") > 1.0)
    )
    ratio = (known["received"] / known["due"]).clip(0.0, MAX_RATIO).to_numpy()
    return np.sort(ratio)


def _ratio_chart(
    title: str, axis: str, samples: Sequence[tuple[str, Floats]], mark: str
) -> Chart | None:
    chart = distribution(title, axis, samples, MetricKind.RATIO)
    if chart is None:
        return None
    most = max(float(series.x[-1]) for series in chart.series if series.x.size)
    end = f" (at {MAX_RATIO:g}: that or more)" if most >= MAX_RATIO else ""
    return Chart(title, axis + end, chart.y_label, chart.series, marks=((1.0, mark),), log_x=False)


def _tenants(runs: Sequence[PlottedRun]) -> Chart | None:
    """Each tenant's part of the device time, and the part that the weights of its jobs promise."""
    parts = [(run.label, part) for run in runs if (part := _parts(run)) is not None]
    if not parts:
        return None
    names = sorted({str(name) for _, part in parts for name in part["tenant"]})
    biggest = sorted(names, key=lambda name: -_part(parts[0][1], name, "due"))[:MAX_TENANTS]
    shown = sorted(biggest)
    series = [
        Series(
            label,
            np.arange(len(shown), dtype=np.float64),
            np.array([_part(part, name, "received") for name in shown]),
        )
        for label, part in parts
    ]
    due = np.array([_part(parts[0][1], name, "due") for name in shown])
    promised = Series(f"promised ({parts[0][0]})" if len(parts) > 1 else "promised",
                      np.arange(len(shown), dtype=np.float64), due)  # fmt: skip
    title = "Shares of tenants: device time received against promised by weight"
    of = f" (the {len(shown)} largest of {len(names)})" if len(shown) < len(names) else ""
    return Chart(
        title, f"Tenant{of}", "Device time (%)", (promised, *series), kind="bars",
        categories=tuple(name or "(none)" for name in shown),
    )  # fmt: skip


def _parts(run: PlottedRun) -> pl.DataFrame | None:
    """By tenant, in % of all device time, what it received and what was due to it."""
    due_s = fair_share_s(run.jobs, run.rounds)
    if due_s is None or run.jobs["tenant"].n_unique() < 2:
        return None
    both = pl.DataFrame(
        {"tenant": run.jobs["tenant"], "received": received_s(run.jobs), "due": due_s}
    )
    totals = both.group_by("tenant").agg(pl.col("received").sum(), pl.col("due").sum())
    return totals.with_columns(
        (100 * pl.col(name) / pl.col(name).sum()).fill_nan(0.0).alias(name)
        for name in ("received", "due")
    )


def _part(parts: pl.DataFrame, tenant: str, column: str) -> float:
    found = parts.filter(pl.col("tenant") == tenant)[column]
    return float(found[0]) if len(found) else 0.0


def _changes(runs: Sequence[PlottedRun]) -> Chart | None:
    kinds = ("preemptions", "moves", "restarts")
    series = []
    for run in runs:
        jobs = number(run.metrics.get("n_jobs"))
        counts = [number(run.metrics.get(kind)) for kind in kinds]
        if jobs:
            per_job = [np.nan if count is None else count / jobs for count in counts]
            series.append(Series(run.label, np.arange(3.0), np.array(per_job)))
    if not series:
        return None
    names = ("Preemptions", "Moves", "Restarts")
    return Chart("Changes of place", "", "Times per job", tuple(series), "bars", names)


def _cost(runs: Sequence[PlottedRun]) -> Chart | None:
    """Return the cost of each accelerator type: its device time in use, at its price. None = all cost 0."""
    spent = [(run.label, _dollars(run)) for run in runs]
    names = list(dict.fromkeys(name for _, dollars in spent for name in dollars))
    if not any(sum(dollars.values()) > 0 for _, dollars in spent):
        return None
    series = tuple(
        Series(
            label,
            np.arange(len(names) + 1.0),
            np.array([*(dollars.get(name, np.nan) for name in names), sum(dollars.values())]),
        )
        for label, dollars in spent
    )
    kinds = (*names, "all")
    return Chart("Cost", "Accelerator type", "Device time in use, at its price ($)", series,
                 "bars", kinds)  # fmt: skip


def _dollars(run: PlottedRun) -> dict[str, float]:
    """Accelerator type -> $."""
    prices = run.config.get("prices")
    if not isinstance(prices, Mapping):
        return {}
    return {
        name: float(run.rounds[f"busy_{name}"].sum()) / 3600 * (number(prices.get(name)) or 0.0)
        for name in accelerators(run.rounds)
    }


RUN_FIGURES = (
    RunFigure("jct", "CDF of job completion times", _jct),
    RunFigure("rho", "CDF of rho, isolated", _rho),
    RunFigure("static-rho", "CDF of rho, static (not with a window)", _static_rho),
    RunFigure("utilisation", "utilisation over time", _utilization),
    RunFigure("fragmentation", "devices idle while jobs wait, over time", _stranded),
    RunFigure("scattered", "devices of jobs on more servers than they need, over time", _scattered),
    RunFigure("queue", "jobs in the system over time", _queue),
    RunFigure("promised", "CDF of time received over time promised by the policy", _promised),
    RunFigure("equal-split", "CDF of device time received over an equal split", _fair_shares),
    RunFigure("tenants", "device time of tenants, received and promised by weight", _tenants),
    RunFigure("preemptions", "preemptions over time", _preempted),
    RunFigure("lost-work", "device time lost to starts and failures, over time", _lost),
    RunFigure("changes", "preemptions, moves and restarts per job", _changes),
    RunFigure("cost", "cost by accelerator type", _cost),
)

# What stands together on a page.
OVER_TIME = ("fragmentation", "scattered")
SHARES = ("promised", "equal-split", "tenants")
CHANGES = ("preemptions", "lost-work", "changes", "cost")


def run_charts(runs: Sequence[PlottedRun], *names: str) -> list[tuple[str, Chart]]:
    """The figures of these names (all, where none is named) that the runs can give, by name."""
    chosen = [figure for figure in RUN_FIGURES if not names or figure.name in names]
    made = [(figure.name, figure.make(runs)) for figure in chosen]
    return [(name, chart) for name, chart in made if chart is not None]
