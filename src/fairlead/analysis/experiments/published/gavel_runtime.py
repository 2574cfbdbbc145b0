"""Gavel's policy run times: how long one solve takes, by number of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.published.single_devices import (
    ENTITIES,
    entity,
    problem,
    rates,
)
from fairlead.analysis.report.chart import Chart, Series
from fairlead.analysis.report.progress_bar import progress
from fairlead.analysis.solve_benchmark import SolveTiming, timed
from fairlead.model.plan import Policy
from fairlead.model.throughputs import Throughputs
from fairlead.policies.entities import Entities, Entity
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.las import Las, SpaceSharingLas
from fairlead.policies.makespan import Makespan
from fairlead.policies.water_filling import SpaceSharingWaterFilling, WaterFilling

PLAIN, PACKED = "Gavel", "Gavel with packing"
HIERARCHICAL, HIERARCHICAL_PACKED = "Gavel, hierarchical", "Gavel, hierarchical, with packing"
MAKESPAN, FINISH_TIME = "Gavel, makespan", "Gavel, finish-time fairness"

# Seconds by number of jobs, read off the plots of figure 12: good to some ten percent.
PUBLISHED: Mapping[str, Mapping[int, float]] = {
    PLAIN: {512: 0.03, 2048: 0.09},
    PACKED: {128: 1.0, 512: 34.0, 1024: 300.0},
    HIERARCHICAL: {128: 0.6, 512: 5.5, 2048: 100.0},
    HIERARCHICAL_PACKED: {32: 0.75, 128: 30.0, 256: 290.0, 512: 2200.0},
}
PAPER_JOBS = (32, 64, 128, 256, 512, 1024, 2048)
SMALL_JOBS = (32, 128, 512)

Timings: TypeAlias = Mapping[tuple[str, int], SolveTiming]  # by name and number of jobs

REMARKS = (
    "Jobs of one device on a quarter as many devices of each of three types, rates and families as in the "
    "release; the hierarchical policies have five entities with weights 1, 2, 3, 1 and 2 and fairness "
    "inside. Ours is processor time of one core for one solve without an earlier answer, the median of up to "
    "five, with the shares of every job and the certificate; the published times are on another machine and "
    "on the clock, so only orders of magnitude compare.",
    "Ours solves over classes of equal jobs and finds those that can still rise by water filling's own "
    "linear programs; the release has a variable for every job or pair, builds the program anew in "
    "Python for each solve, and an integer program in each turn of water filling.",
)


@dataclass(frozen=True, slots=True)
class TimedPolicy:
    """A policy and its name here."""

    name: str
    policy: Policy


def policies() -> tuple[TimedPolicy, ...]:
    """Return the policies of the figure, and two more without published times."""
    tree = Entities(
        (Entity("", 0), *(Entity(entity(e), 0, 1.0 + e % 3) for e in range(ENTITIES))), "entities"
    )
    return (
        TimedPolicy(PLAIN, Las()),
        TimedPolicy(PACKED, SpaceSharingLas()),
        TimedPolicy(HIERARCHICAL, WaterFilling(entities=tree)),
        TimedPolicy(HIERARCHICAL_PACKED, SpaceSharingWaterFilling(entities=tree)),
        TimedPolicy(MAKESPAN, Makespan()),
        TimedPolicy(FINISH_TIME, FinishTime()),
    )


def run(context: ExperimentContext) -> Findings:
    """Gavel, figure 12: run time of policies against the number of jobs."""
    jobs = PAPER_JOBS if context.scale == "paper" else SMALL_JOBS
    table, words = rates(context)
    return findings(jobs, measured(table, jobs), words)


def measured(table: Throughputs, jobs: Sequence[int]) -> dict[tuple[str, int], SolveTiming]:
    """All policies at all sizes."""
    chosen = policies()
    found: dict[tuple[str, int], SolveTiming] = {}
    with progress("solving", len(jobs) * len(chosen)) as update:
        for n in jobs:
            snapshot = problem(table, n)
            for one in chosen:
                update(len(found), f"{one.name}, {n:,} jobs")
                found[one.name, n] = timed(one.policy, snapshot)
    return found


def findings(jobs: Sequence[int], timings: Timings, more: Sequence[str] = ()) -> Findings:
    """The table and the chart."""
    names = list(dict.fromkeys(name for name, _ in timings))
    rows = tuple(_row(name, n, timings[name, n]) for name in names for n in jobs)
    ours = [
        Series(name, np.array(jobs, np.float64), np.array([timings[name, n].cpu_s for n in jobs]))
        for name in names
    ]
    theirs = [
        Series(name, np.array(list(by), np.float64), np.array(list(by.values())), published=True)
        for name, by in PUBLISHED.items()
    ]
    chart = Chart(
        "Time of one solve",
        "Number of jobs",
        "Seconds",
        (*ours, *theirs),
        log_x=True,
        log_y=True,
    )
    return Findings((FindingTable("Time of one solve", rows),), (chart,), (*REMARKS, *more))


def _row(name: str, jobs: int, timing: SolveTiming) -> FindingRow:
    known = PUBLISHED.get(name, {}).get(jobs)
    gap = "" if timing.gap is None else f"proven within {timing.gap:.0e} of the optimum"
    faster = f"{known / timing.cpu_s:,.0f} times as fast" if known else ""
    return FindingRow(
        f"{name}, {jobs:,} jobs",
        timing.cpu_s,
        known,
        "s",
        "; ".join(part for part in (faster, gap) if part),
    )


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "gavel-policy-runtime",
        "Time of one solve against the number of jobs",
        "Gavel (OSDI'20), figure 12",
        run,
    ),
)
