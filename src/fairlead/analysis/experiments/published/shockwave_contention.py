"""Shockwave as more jobs share 14 devices; on jobs of our own, for the published traces are not to be had."""

from collections.abc import Mapping, Sequence

import numpy as np

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Scale,
)
from fairlead.analysis.experiments.point import PointResult
from fairlead.analysis.experiments.published import shockwave_common as common
from fairlead.analysis.experiments.published.shockwave_common import (
    FAIR,
    LABELS,
    MAKESPAN,
    MEASURES,
    OURS,
    RELEASED,
    TACC,
    WORST_RHO,
    PaperMetric,
    TraceCase,
)
from fairlead.analysis.report.chart import Chart, Series
from fairlead.model.arrays import Floats

DEVICES = 14
ARRIVALS_S = 5000.0  # all jobs come within about this, as in the published traces
FACTORS: dict[Scale, tuple[float, ...]] = {
    "small": (1.5, 3.0, 5.0),
    "paper": (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
}
SEEDS: dict[Scale, tuple[int, ...]] = {"small": (0, 1), "paper": (0, 1, 2, 3, 4)}
SHOWN = (1.5, 3.0, 5.0)  # in the tables


def contention(context: ExperimentContext) -> Findings:
    """Jobs of the trace per device, from 1.5 to 5."""
    factors, seeds = FACTORS[context.scale], SEEDS[context.scale]
    points = [
        case(factor, seed).point(name) for name in LABELS for factor in factors for seed in seeds
    ]
    outcomes = iter(context.run(points))
    found = {
        name: [[next(outcomes) for _ in seeds] for _ in factors] for name in LABELS
    }  # by factor and seed
    return Findings(
        (_gains(factors, found), *(_table(measure, factors, found) for measure in MEASURES)),
        tuple(_chart(measure, factors, found) for measure in MEASURES),
        (
            "The published traces of this figure were not released. These jobs come from the same "
            f"generator, {len(seeds)} seeds for each contention factor, within about {ARRIVALS_S:,.0f} s: "
            "what can be compared with the paper is the shape, not the numbers.",
            "Shockwave's lead in makespan over the fair schedulers (the mean of Themis, Gavel LAS and "
            "Gandiva-Fair) grows from 1.5 to 3 jobs per device and then stays. The worst rho of Fairlead's "
            "Shockwave stays near 1 while theirs grows; that of the released one grows with theirs.",
            "The contention factor is the jobs of the trace per device.",
            "The release's settings for 14 devices were not available; its Shockwave runs with those for 32.",
        ),
    )


def case(factor: float, seed: int) -> TraceCase:
    """So many jobs per device."""
    jobs = round(factor * DEVICES)
    return TraceCase(jobs, DEVICES, ARRIVALS_S / jobs, seed, TACC)


def _values(measure: PaperMetric, runs: Sequence[Sequence[PointResult]]) -> Floats:
    """(factors, seeds) nan where a run is not complete."""
    return np.array([[common.value(measure, common.numbers(run)) for run in some] for some in runs])


def _gains(
    factors: Sequence[float], found: Mapping[str, Sequence[Sequence[PointResult]]]
) -> FindingTable:
    """Return how much worse the fair schedulers are than both of Shockwave, as means over the seeds."""
    rows = []
    for measure in (MAKESPAN, WORST_RHO):
        fair = np.mean([_values(measure, found[name]) for name in FAIR], axis=0)
        for base in (OURS, RELEASED):
            times = (fair / _values(measure, found[base])).mean(axis=1)
            rows += [
                FindingRow(
                    f"{measure.title}, over {LABELS[base]}, {factor:g} jobs per device",
                    float(value) if np.isfinite(value) else None,
                    None,
                    "x",
                    "" if np.isfinite(value) else "a run is not complete",
                )
                for factor, value in zip(factors, times, strict=True)
                if factor in SHOWN
            ]
    return FindingTable("Fair schedulers over Shockwave", tuple(rows))


def _table(
    measure: PaperMetric,
    factors: Sequence[float],
    found: Mapping[str, Sequence[Sequence[PointResult]]],
) -> FindingTable:
    rows = [
        _row(measure, f"{LABELS[name]}, {factor:g} jobs per device", seeds)
        for name, runs in found.items()
        for factor, seeds in zip(factors, runs, strict=True)
        if factor in SHOWN
    ]
    return FindingTable(f"{measure.title}, mean of the seeds", tuple(rows))


def _row(measure: PaperMetric, what: str, seeds: Sequence[PointResult]) -> FindingRow:
    broken = next((run.reason for run in seeds if not run.metrics), None)
    mean = float(_values(measure, [seeds]).mean()) if broken is None else None
    return FindingRow(what, mean, None, measure.unit, broken or "")


def _chart(
    measure: PaperMetric,
    factors: Sequence[float],
    found: Mapping[str, Sequence[Sequence[PointResult]]],
) -> Chart:
    """Means over the seeds, and the least and largest."""
    x = np.array(factors)
    series = []
    for name, runs in found.items():
        values = _values(measure, runs)
        low, high = values.min(axis=1), values.max(axis=1)
        series.append(Series(LABELS[name], x, values.mean(axis=1), low, high))
    return Chart(measure.title, "Jobs per device", common.axis(measure), tuple(series))
