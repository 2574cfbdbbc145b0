"""Gavel's static experiment: how long a number of jobs take that are all there at the beginning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TypeAlias

import numpy as np

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
from fairlead.analysis.experiments.published.gavel_curves import CLUSTER, RATES
from fairlead.analysis.report.chart import Chart, Series
from fairlead.model.arrays import Floats
from fairlead.simulator.simulation_input import SimulationInput

FIFO, GANDIVA, GAVEL, PACKED = "FIFO", "Gandiva", "Gavel", "Gavel with packing"
FASTEST_ONLY, FIFO_AWARE = "FIFO on the V100s alone", "FIFO, fastest type first"
DEFAULT_PROFILE = ", default profile"

# Hours, by number of jobs: the release's notebook of makespans.
PUBLISHED: Mapping[str, Mapping[int, float]] = {
    FIFO: {100: 182.3, 300: 295.6, 500: 426.6, 700: 619.5},
    GANDIVA: {100: 166.6, 300: 199.9, 500: 263.9, 700: 347.3},
    GAVEL: {100: 161.2, 300: 161.2, 500: 169.4, 700: 244.2},
    PACKED: {100: 163.6, 300: 161.2, 500: 168.1, 700: 226.2},
}
RATIOS = ((FIFO, GAVEL), (FASTEST_ONLY, GAVEL), (GANDIVA, GAVEL), (GAVEL, PACKED))
PUBLISHED_STAND_IN = {FASTEST_ONLY: FIFO}  # whose published numbers stand beside it too


@dataclass(frozen=True, slots=True)
class MakespanLine:
    """A policy, under a profile, on a cluster."""

    name: str
    policy: str
    profile: str = "gavel"
    cluster: str = CLUSTER

    def point(self, jobs: int, seed: int) -> Point:
        """So many jobs, all there at the beginning."""
        generate = f"gavel,jobs={jobs},interarrival=0,multi-gpu"
        given = SimulationInput(
            generate=generate, throughputs=RATES, cluster=self.cluster, seed=seed
        )
        return Point(self.policy, self.profile, given)


LINES = (
    MakespanLine(FIFO, "fifo"),
    MakespanLine(FASTEST_ONLY, "fifo", cluster=CLUSTER.partition(",")[0]),
    MakespanLine(FIFO_AWARE, "fifo_aware"),
    MakespanLine(GANDIVA, "gandiva"),
    MakespanLine(GAVEL, "makespan_aware"),
    MakespanLine(GAVEL + DEFAULT_PROFILE, "makespan_aware", "default"),
    MakespanLine(PACKED, "makespan_packed", "default"),
)
PAPER_JOBS, PAPER_SEEDS = (100, 300, 500, 700), (0, 1, 2)
SMALL_JOBS, SMALL_SEEDS = (100, 300), (0,)

Makespans: TypeAlias = Mapping[str, Floats]  # by line: (numbers of jobs, seeds) hours; nan = none

REMARKS = (
    "All jobs come at time 0, of one or several devices, on 36 V100, 36 P100 and 36 K80. Ours are means over "
    "the seeds; the notebook prints one number for each number of jobs.",
    "FIFO as the paper describes it draws an accelerator type at random and keeps it: one long job that has "
    "drawn K80s decides the makespan, for some are 14 times slower there. FIFO as released never applies the "
    "type that it draws, but that which is last by name, V100, with little regard to how many are free. FIFO "
    "on the V100s alone is what that comes to, and the published numbers lie at or below it.",
    "The release finds a makespan within 5 % of the least by bisection and takes any shares that reach it; "
    "ours is the least. The longest job alone takes 156 to 166 hours on a V100, by seed, so that no policy "
    "does better up to 300 jobs.",
    "With packing, ours is the default profile: the gavel profile takes the middle of the best shares of all "
    "pairs of jobs, which takes very long for hundreds of jobs that all differ in what they have left.",
)
SMALL_SCALE_NOTE = (
    "Small scale: up to 300 jobs and one seed. The ratios are published for 700 jobs."
)


def run(context: ExperimentContext) -> Findings:
    """Makespans by number of jobs."""
    paper = context.scale == "paper"
    jobs, seeds = (PAPER_JOBS, PAPER_SEEDS) if paper else (SMALL_JOBS, SMALL_SEEDS)
    points = [line.point(n, seed) for line in LINES for n in jobs for seed in seeds]
    outcomes = context.run(points)
    words = REMARKS if paper else (*REMARKS, SMALL_SCALE_NOTE)
    hours = np.array([_hours(one) for one in outcomes]).reshape(len(LINES), len(jobs), len(seeds))
    return findings(
        jobs, {line.name: hours[i] for i, line in enumerate(LINES)}, words + _gone(outcomes)
    )


def findings(jobs: Sequence[int], hours: Makespans, words: Sequence[str] = ()) -> Findings:
    """The tables and the chart."""
    known = {name: PUBLISHED.get(PUBLISHED_STAND_IN.get(name, name), {}) for name in hours}
    rows = tuple(
        _row(f"{name}, {n} jobs", hours[name][k], known[name].get(n))
        for name in hours
        for k, n in enumerate(jobs)
    )
    series = [_series(name, jobs, hours[name]) for name in hours]
    theirs = [
        Series(name, np.array(list(by)), np.array(list(by.values())), published=True)
        for name, by in PUBLISHED.items()
    ]
    chart = Chart(
        "Makespan of jobs that all come at the beginning",
        "Number of jobs",
        "Makespan (h)",
        (*series, *theirs),
        y_max=1000.0,
    )
    tables = (
        FindingTable("Makespan", rows),
        FindingTable("Ratios of makespans", _ratios(jobs, hours)),
    )
    return Findings(tables, (chart,), tuple(words))


def _hours(outcome: PointResult) -> float:
    complete = outcome.status is Status.COMPLETE
    return outcome.metrics["makespan_s"] / 3600 if complete else nan


def _gone(outcomes: Sequence[PointResult]) -> tuple[str, ...]:
    """Return a sentence for each point that is not complete, with the reason."""
    return tuple(
        f"{one.point.policy} ({one.point.profile}), {one.point.input.generate}, seed "
        f"{one.point.input.seed}: {one.status}. {one.reason}".rstrip()
        for one in outcomes
        if one.status is not Status.COMPLETE
    )


def _row(what: str, hours: Floats, known: float | None) -> FindingRow:
    """The mean of the seeds."""
    if np.isnan(hours).any():
        return FindingRow(what, None, known, "h", "not every run is complete")
    each = " / ".join(f"{one:.1f}" for one in hours) if len(hours) > 1 else ""
    return FindingRow(
        what, float(hours.mean()), known, "h", f"by seed {each}" if each else "one seed"
    )


def _series(name: str, jobs: Sequence[int], hours: Floats) -> Series:
    return Series(
        name, np.array(jobs, np.float64), hours.mean(axis=1), hours.min(axis=1), hours.max(axis=1)
    )


def _ratios(jobs: Sequence[int], hours: Makespans) -> tuple[FindingRow, ...]:
    """Return ratios of the means, at the largest number of jobs."""
    rows = []
    for over, base in RATIOS:
        ours = float(hours[over][-1].mean() / hours[base][-1].mean())
        a, b = (
            PUBLISHED[PUBLISHED_STAND_IN.get(name, name)].get(jobs[-1]) for name in (over, base)
        )
        rows.append(
            FindingRow(
                f"{over} over {base}, {jobs[-1]} jobs",
                None if np.isnan(ours) else ours,
                a / b if a and b else None,
                "x",
                "not every run is complete" if np.isnan(ours) else "",
            )
        )
    return tuple(rows)


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "gavel-makespan",
        "Makespan against the number of jobs",
        "Gavel (OSDI'20), section 7.3; the release's notebook of makespans",
        run,
    ),
)
