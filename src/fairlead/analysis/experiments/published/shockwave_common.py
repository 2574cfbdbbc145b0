"""Common parts of the reproductions of Shockwave: its traces, the policies compared, rows and charts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fairlead.analysis.experiments.findings import FindingRow, FindingTable
from fairlead.analysis.experiments.point import Point, PointResult
from fairlead.analysis.experiments.published.shockwave_numbers import Numbers
from fairlead.analysis.report.chart import Chart, Series
from fairlead.model.arrays import Floats
from fairlead.simulator.simulation_input import SimulationInput

PROFILE = "shockwave"
OURS, RELEASED = "shockwave", "released"
# Who is compared, and how charts call them.
LABELS = {
    OURS: "Shockwave",
    RELEASED: "Shockwave, as released",
    "ossp": "OSSP",
    "themis": "Themis",
    "las": "Gavel LAS",
    "allox": "AlloX",
    "mst": "MST",
    "gandiva_fair": "Gandiva-Fair",
}
FAIR = ("themis", "las", "gandiva_fair")  # the fair schedulers among them


@dataclass(frozen=True, slots=True)
class TraceCase:
    """Jobs of Shockwave's generator on a cluster of one accelerator type."""

    jobs: int
    devices: int
    interarrival_s: float  # mean
    seed: int
    rates: str  # a table of the directory of data
    released: str = "shockwave:released"  # with the release's settings for this size

    def point(self, name: str) -> Point:
        """The simulation; name: of ``LABELS``."""
        given = SimulationInput(
            generate=f"shockwave,jobs={self.jobs},interarrival={self.interarrival_s:g},multi-gpu",
            throughputs=self.rates,
            cluster=f"v100={self.devices}",
            seed=self.seed,
        )
        return Point(self.released if name == RELEASED else name, PROFILE, given)


# With the rates of the release, and only with these, the generator repeats its traces.
TACC, WISR = "data:shockwave/tacc_throughputs.json", "data:shockwave/wisr_throughputs.json"
CANONICAL_CASE = TraceCase(120, 32, 40, 25, TACC)


@dataclass(frozen=True, slots=True)
class PaperMetric:
    """A column of ``Numbers``."""

    title: str
    unit: str
    of: Callable[[Numbers], float]


MAKESPAN = PaperMetric("Makespan", "s", lambda n: n.makespan_s)
AVG_JCT = PaperMetric("Average JCT", "s", lambda n: n.avg_jct_s)
WORST_RHO = PaperMetric("Worst rho", "", lambda n: n.worst_rho)
UNFAIR = PaperMetric("Jobs with rho > 1.05", "%", lambda n: n.unfair_1_05)
UNFAIR_AT_ALL = PaperMetric("Jobs with rho > 1", "%", lambda n: n.unfair_1)
VERY_UNFAIR = PaperMetric("Jobs with rho > 1.1", "%", lambda n: n.unfair_1_1)
MEASURES = (MAKESPAN, AVG_JCT, WORST_RHO, UNFAIR)


def numbers(outcome: PointResult) -> Numbers | None:
    """Return the numbers of a run; None where it is not complete."""
    if not outcome.metrics:
        return None
    metrics, rho = outcome.metrics, outcome.metrics["rho"]["static"]
    return Numbers(
        metrics["makespan_s"],
        metrics["avg_jct_s"],
        rho["max"],
        100 * rho["unfair_1"],
        100 * rho["unfair_1_05"],
        100 * rho["unfair_1_1"],
    )


def row(
    measure: PaperMetric, what: str, outcome: PointResult, known: Numbers | None, remark: str = ""
) -> FindingRow:
    """Our number and the published one; the remark says why where there is none of ours."""
    found = numbers(outcome)
    return FindingRow(
        what,
        None if found is None else measure.of(found),
        None if known is None else measure.of(known),
        measure.unit,
        remark if found is not None else outcome.reason,
    )


def table(
    measure: PaperMetric,
    title: str,
    found: Mapping[str, PointResult],
    known: Mapping[str, Numbers],
    remarks: Mapping[str, str] | None = None,
) -> FindingTable:
    """A row for each contender. Both of our rows of Shockwave show its published numbers."""
    words = remarks or {}
    rows = (
        row(measure, LABELS[name], outcome, published(known, name), words.get(name, ""))
        for name, outcome in found.items()
    )
    return FindingTable(title, tuple(rows))


def published(known: Mapping[str, Numbers], name: str) -> Numbers | None:
    """The numbers to hold a contender's against."""
    return known.get(name, known.get(OURS) if name == RELEASED else None)


def over(
    measure: PaperMetric, found: Mapping[str, PointResult], names: Sequence[str], base: str
) -> float | None:
    """The mean of a measure over contenders, over that of another; None where one is missing."""
    values = [numbers(found[name]) for name in (*names, base)]
    known = [measure.of(value) for value in values if value is not None]
    if len(known) < len(values) or known[-1] == 0:
        return None
    return float(np.mean(known[:-1])) / known[-1]


def bars(
    measure: PaperMetric, found: Mapping[str, PointResult], known: Mapping[str, Numbers]
) -> Chart:
    """A bar for each contender, next to the published one."""
    x = np.arange(float(len(found)))
    ours = np.array([value(measure, numbers(outcome)) for outcome in found.values()])
    theirs = np.array([value(measure, published(known, name)) for name in found])
    return Chart(
        measure.title,
        "",
        axis(measure),
        (Series("Fairlead", x, ours), Series("Fairlead", x, theirs, published=True)),
        kind="bars",
        categories=tuple(LABELS[name] for name in found),
    )


def rho_cdf(found: Mapping[str, PointResult]) -> Chart | None:
    """The share of jobs up to each rho; None where no run has a table of its jobs."""
    series = tuple(
        cdf(LABELS[name], pl.read_parquet(outcome.jobs)["rho_static"].drop_nulls().to_numpy())
        for name, outcome in found.items()
        if outcome.jobs
    )
    if not series:
        return None
    return Chart("Finish-time fairness", "rho", "Share of jobs", series, marks=((1.0, "fair"),))


def cdf(name: str, values: Floats, known: bool = False) -> Series:
    """The share of values up to each; known: published ones."""
    x = np.sort(values)
    return Series(name, x, np.arange(1.0, len(x) + 1) / max(len(x), 1), published=known, steps=True)


def value(measure: PaperMetric, found: Numbers | None) -> float:
    """nan where there is none."""
    return float("nan") if found is None else measure.of(found)


def axis(measure: PaperMetric) -> str:
    """The name of its axis."""
    return f"{measure.title} ({measure.unit})" if measure.unit else measure.title
