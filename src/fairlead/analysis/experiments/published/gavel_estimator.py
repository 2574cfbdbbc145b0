"""Gavel's throughput estimator: JCT against load where rates of pairs are known, estimated, or not used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.point import Point
from fairlead.analysis.experiments.published.gavel_curves import (
    CurveLine,
    LoadCurve,
    Loads,
    curve,
    marks,
    mean_rows,
    named,
    published_series,
    ratio,
)
from fairlead.analysis.report.chart import Chart

CLUSTER = "v100=4,p100=4,k80=4"
ESTIMATOR = "gavel:references=16,profiling=0.2"
DEFECT = f"{ESTIMATOR},defect"

KNOWN_PAIRS, NO_PACKING = "Packing, rates of pairs known", "No packing"
ESTIMATED, AS_RELEASED = "Packing, estimated", "Packing, estimated with the release's defect"
DEFAULT_PROFILE = ", default profile"

# Hours by jobs per hour, read off the plot of figure 14, good to a tenth. The estimated curve has the defect.
PUBLISHED: Mapping[str, Mapping[float, float]] = {
    KNOWN_PAIRS: {0.6: 20.0, 0.7: 25.0},
    AS_RELEASED: {0.6: 22.0, 0.7: 37.0},
    NO_PACKING: {0.6: 34.0},
}
PAPER = Loads((0.4, 0.6, 0.7), cluster=CLUSTER)
SMALL_LOADS = Loads((0.4, 0.6), (0,), "200:400", cluster=CLUSTER)

REMARKS = (
    "LAS with packing on 4 V100, 4 P100 and 4 K80, jobs of one device. A new job is run beside each of 16 of "
    "the 26 families on each type with probability 0.2; its other rates in pairs are completed from these, "
    "and it is taken for the reference that it resembles most. A pair that has run is known.",
    "The release looks a new job's measurements up in the wrong place where there are fewer references than "
    "families, so that its fingerprint is of other pairs than those that it is compared with. 'With the "
    "release's defect' repeats that; the published curve has it. The release also stops with an error when "
    "it runs a pair that it believed to fit and that does not; ours goes on.",
    "Twelve devices are few: a single long job shifts a curve, so seeds differ by a large part of "
    "the mean. Without packing, 0.6 jobs/h are just below saturation.",
)
SMALL_SCALE_NOTE = (
    "Small scale: two rates, seed 0, jobs 200:400 in place of 4000:5000. Queues are still short then; only "
    "curves of one scale compare with each other."
)


@dataclass(frozen=True, slots=True)
class Estimated:
    """A curve: a policy and what it knows of pairs."""

    line: CurveLine
    estimator: str | None = None  # None: all

    def points(self, loads: Loads) -> list[Point]:
        """All, by rate and seed."""
        return [
            replace(point, input=replace(point.input, estimator=self.estimator))
            for point in loads.points(self.line)
        ]


LINES = (
    Estimated(CurveLine(KNOWN_PAIRS, "las_packed")),
    Estimated(CurveLine(ESTIMATED, "las_packed"), ESTIMATOR),
    Estimated(CurveLine(AS_RELEASED, "las_packed"), DEFECT),
    Estimated(CurveLine(NO_PACKING, "las_aware")),
    Estimated(CurveLine(KNOWN_PAIRS + DEFAULT_PROFILE, "las_packed", "default")),
    Estimated(CurveLine(ESTIMATED + DEFAULT_PROFILE, "las_packed", "default"), ESTIMATOR),
)
PAIRS = (
    (ESTIMATED, KNOWN_PAIRS),
    (AS_RELEASED, KNOWN_PAIRS),
    (NO_PACKING, KNOWN_PAIRS),
    (ESTIMATED + DEFAULT_PROFILE, KNOWN_PAIRS + DEFAULT_PROFILE),
)


def run(context: ExperimentContext) -> Findings:
    """Gavel, figure 14: rates from the throughput estimator."""
    paper = context.scale == "paper"
    loads = PAPER if paper else SMALL_LOADS
    outcomes = iter(context.run([point for one in LINES for point in one.points(loads)]))
    curves = []
    for one in LINES:
        grid = {(rate, seed): next(outcomes) for rate in loads.rates for seed in loads.seeds}
        curves.append(curve(one.line.name, loads, grid))
    return findings(curves, REMARKS if paper else (*REMARKS, SMALL_SCALE_NOTE))


def findings(curves: Sequence[LoadCurve], words: Sequence[str] = ()) -> Findings:
    """The tables and the chart."""
    rates = curves[0].rates
    chart = Chart(
        "Average JCT with estimated rates of pairs",
        "Jobs per hour",
        "Average JCT (h)",
        (*(one.series for one in curves), *published_series(PUBLISHED)),
        y_max=60.0,
        marks=marks(curves),
    )
    tables = (
        FindingTable("Average JCT, means over the seeds", tuple(_mean_rows(curves, rates))),
        FindingTable("Estimated over known", _ratios(named(curves), rates)),
    )
    return Findings(tables, (chart,), tuple(words))


def _mean_rows(curves: Sequence[LoadCurve], rates: Sequence[float]) -> list[FindingRow]:
    """Means with the published number, which is read off a curve of means."""
    return [
        replace(row, published=PUBLISHED.get(one.name, {}).get(rate))
        for one in curves
        for rate in rates
        for row in mean_rows([one], [rate])
    ]


def _ratios(curves: Mapping[str, LoadCurve], rates: Sequence[float]) -> tuple[FindingRow, ...]:
    """Return ratios of means, at each rate."""
    rows = []
    for over, base in PAIRS:
        for rate in rates:
            ours = ratio(curves[over].mean_at(rate), curves[base].mean_at(rate))
            theirs = ratio(PUBLISHED.get(over, {}).get(rate), PUBLISHED.get(base, {}).get(rate))
            why = "" if ours is not None else "not every run is complete"
            rows.append(
                FindingRow(
                    f"{over} over known at {rate:g} jobs/h",
                    ours,
                    theirs,
                    "x",
                    _ratios_of_seeds(curves, over, base, rate) or why,
                )
            )
    return tuple(rows)


def _ratios_of_seeds(curves: Mapping[str, LoadCurve], over: str, base: str, rate: float) -> str:
    """The ratios of single seeds."""
    a, b = (curves[name].values[curves[name].rates.index(rate)] for name in (over, base))
    if len(a) < 2 or np.isnan(a / b).any():
        return ""
    return "by seed " + " / ".join(f"{one:.3f}" for one in a / b)


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "gavel-estimator",
        "JCT against load with estimated rates of pairs",
        "Gavel (OSDI'20), figure 14",
        run,
    ),
)
