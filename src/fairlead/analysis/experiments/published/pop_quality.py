"""POP: what partitioning a policy costs in quality and saves in time, by number of parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

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
from fairlead.analysis.experiments.published.gavel_curves import MULTI, RATES
from fairlead.analysis.experiments.published.single_devices import problem as single_problem
from fairlead.analysis.experiments.published.single_devices import rates
from fairlead.analysis.report.chart import Chart, Series
from fairlead.analysis.report.progress_bar import progress
from fairlead.analysis.solve_benchmark import problem as mixed_problem
from fairlead.analysis.solve_benchmark import timed
from fairlead.model.allocation import Allocation
from fairlead.model.allocation_checks import effective_throughput
from fairlead.model.plan import Policy
from fairlead.model.rates import inverse_rate
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies.las import Las, SpaceSharingLas
from fairlead.policies.makespan import Makespan
from fairlead.policies.partition import Partition
from fairlead.simulator.simulation_input import SimulationInput

PARTS = (1, 2, 4, 8)
TYPES = 3
CLUSTER, SEED = "v100=32,p100=32,k80=32", 1
INTERARRIVAL_S, STATIC_JOBS = 562.5, 700
PACKED, DISTINCT_RATES_LAS, DISTINCT_RATES_MAKESPAN = (
    "LAS with packing",
    "LAS, every job its own rates",
    "makespan, every job its own rates",
)
JCT, MAKESPAN = "Average JCT, LAS with packing", f"Makespan, {STATIC_JOBS} jobs"

# From the logs of POP's release: solve seconds by jobs and parts, and the mean ratio of throughputs.
SECONDS: Mapping[int, Mapping[int, float]] = {
    1024: {1: 1837.0, 8: 4.5},
    2048: {1: 285.6, 2: 62.2, 4: 17.5, 8: 12.6},
}
QUALITY: Mapping[int, Mapping[int, float]] = {1024: {8: 0.997}}
# And of its simulations on 32 devices of each type, hours by parts.
SIMULATED: Mapping[str, Mapping[int, float]] = {
    JCT: {1: 28.871, 2: 28.765, 4: 27.860, 8: 28.809},
    MAKESPAN: {1: 255.021, 2: 255.989, 4: 256.861, 8: 270.696},
}

REMARKS = (
    "Solves: the published problem is of jobs of one device on a quarter as many devices of each of three "
    "types, under LAS with packing. Quality is the mean over jobs of the throughput that a job gets from the "
    "parts over that from the whole, and the objective of the parts over that of the whole. Times of "
    "ours are processor time, all parts one after another and without the certificate, which takes a "
    "solve of the whole; the published ones are of the slowest part, on 16 cores.",
    "Equal jobs are one variable for the whole as for the parts, so that parts cost time rather than save it "
    "where there are a few dozen families, and save little where every job has rates of its own. Which of "
    "many optima is reached differs between whole and parts, so that the mean throughput can come out above "
    "1.",
    "Simulations: jobs come at 6.4 per hour, or all 700 (of one or several devices) at the beginning, on 32 "
    "devices of each type, seed 1, in the gavel profile.",
)
SMALL_SCALE_NOTE = (
    "Small scale: fewer jobs in the solves; for the JCT jobs 200:400 in place of 4000:5000, which compares "
    "between parts only."
)


@dataclass(frozen=True, slots=True)
class PartitionSolve:
    """One policy on one problem in so many parts."""

    name: str
    jobs: int
    parts: int
    cpu_s: float
    throughput: float  # mean over jobs of their throughput over that from the whole
    objective: float  # that of the parts over that of the whole, the way that is at most 1


@dataclass(frozen=True, slots=True)
class PartitionCase:
    """A policy and a problem."""

    name: str
    policy: Policy
    snapshot: Snapshot


def run(context: ExperimentContext) -> Findings:
    """Quality and time by number of parts, of solves and of whole runs."""
    paper = context.scale == "paper"
    sizes, distinct_jobs = ((1024, 2048), 8192) if paper else ((256, 1024), 1024)
    points = simulations(paper)
    outcomes = iter(context.run([point for line in points.values() for point in line]))
    hours = {name: [hours_of(name, next(outcomes)) for _ in line] for name, line in points.items()}
    table, modelled = rates(context)
    words = (*(REMARKS if paper else (*REMARKS, SMALL_SCALE_NOTE)), *modelled)
    return findings(solves(cases(table, sizes, distinct_jobs)), hours, words, comparable=paper)


# --- solves --------------------------------------------------------------------------------------


def cases(table: Throughputs, sizes: Sequence[int], distinct_jobs: int) -> list[PartitionCase]:
    """LAS with packing at these sizes; jobs that all differ, ``distinct_jobs`` of them."""
    mixed = mixed_problem(table, distinct_jobs, TYPES, distinct_rates=True)
    return [
        *(PartitionCase(PACKED, SpaceSharingLas(), single_problem(table, jobs)) for jobs in sizes),
        PartitionCase(DISTINCT_RATES_LAS, Las(), mixed),
        PartitionCase(DISTINCT_RATES_MAKESPAN, Makespan(), mixed),
    ]


def solves(all_cases: Sequence[PartitionCase]) -> list[PartitionSolve]:
    """Each case in each number of parts."""
    found: list[PartitionSolve] = []
    with progress("solving", len(all_cases) * len(PARTS)) as update:
        for case in all_cases:
            whole = case.policy.allocate(case.snapshot)
            for parts in PARTS:
                update(len(found), f"{case.name}, {len(case.snapshot.jobs):,} jobs, {parts} parts")
                found.append(solved(case, whole, parts))
    return found


def solved(case: PartitionCase, whole: Allocation, parts: int) -> PartitionSolve:
    """whole: a solve of the whole."""
    policy = Partition(case.policy, parts, certify=False) if parts > 1 else case.policy
    made = policy.allocate(case.snapshot)
    ours, theirs = (
        effective_throughput(made, case.snapshot),
        effective_throughput(whole, case.snapshot),
    )
    objectives = (made.report.objective or 0.0, whole.report.objective or 0.0)
    return PartitionSolve(
        case.name,
        len(case.snapshot.jobs),
        parts,
        timed(policy, case.snapshot).cpu_s,
        float((ours * inverse_rate(theirs))[theirs > 0].mean()),
        min(objectives) / max(objectives) if max(objectives) > 0 else 1.0,
    )


# --- simulations ---------------------------------------------------------------------------------


def simulations(paper: bool) -> dict[str, list[Point]]:
    """By name, in order of ``PARTS``."""
    window = "4000:5000" if paper else "200:400"
    return {
        JCT: [
            Point(
                _in_parts(parts, "las_packed"),
                "gavel",
                SimulationInput(
                    generate=f"gavel,interarrival={INTERARRIVAL_S}",
                    throughputs=RATES,
                    cluster=CLUSTER,
                    window=window,
                    seed=SEED,
                ),
            )
            for parts in PARTS
        ],
        MAKESPAN: [
            Point(
                _in_parts(parts, "makespan_aware"),
                "gavel",
                SimulationInput(
                    generate=f"gavel,jobs={STATIC_JOBS},interarrival=0{MULTI}",
                    throughputs=RATES,
                    cluster=CLUSTER,
                    seed=SEED,
                ),
            )
            for parts in PARTS
        ],
    }


def _in_parts(parts: int, policy: str) -> str:
    return policy if parts == 1 else f"partition:{parts}:{policy}"


def hours_of(name: str, outcome: PointResult) -> float:
    """Return the average JCT or the makespan of a simulation, in hours; nan where it is not complete."""
    value = outcome.metrics.get("avg_jct_s" if name == JCT else "makespan_s")
    return nan if outcome.status is not Status.COMPLETE or value is None else value / 3600


# --- findings ------------------------------------------------------------------------------------


def findings(
    solved_: Sequence[PartitionSolve],
    hours: Mapping[str, Sequence[float]],
    words: Sequence[str] = (),
    *,
    comparable: bool = True,
) -> Findings:
    """hours: by name of a simulation, in order of ``PARTS``; comparable: with the published ones."""
    tables = (
        FindingTable("Time of one solve", tuple(map(_time_row, solved_))),
        FindingTable("Quality of one solve, over the whole", tuple(_quality_rows(solved_))),
        *(
            FindingTable(name, tuple(_hours_rows(name, values, comparable)))
            for name, values in hours.items()
        ),
    )
    return Findings(tables, (_time_chart(solved_), _quality_chart(solved_)), tuple(words))


def _what(one: PartitionSolve) -> str:
    return f"{one.name}, {one.jobs:,} jobs, {one.parts} part{'s' if one.parts > 1 else ''}"


def _time_row(one: PartitionSolve) -> FindingRow:
    known = SECONDS.get(one.jobs, {}).get(one.parts) if one.name == PACKED else None
    return FindingRow(_what(one), one.cpu_s, known, "s")


def _quality_rows(solved_: Sequence[PartitionSolve]) -> list[FindingRow]:
    rows = []
    for one in solved_:
        if one.parts > 1:
            known = QUALITY.get(one.jobs, {}).get(one.parts) if one.name == PACKED else None
            rows.append(FindingRow(f"{_what(one)}: mean throughput", one.throughput, known, "x"))
            rows.append(FindingRow(f"{_what(one)}: objective", one.objective, None, "x"))
    return rows


def _hours_rows(name: str, values: Sequence[float], comparable: bool) -> list[FindingRow]:
    rows = []
    known = SIMULATED[name]
    for parts, value in zip(PARTS, values, strict=True):
        gone = np.isnan(value)
        rows.append(
            FindingRow(
                f"{parts} part{'s' if parts > 1 else ''}",
                None if gone else value,
                known[parts] if comparable or name == MAKESPAN else None,
                "h",
                "the run is not complete"
                if gone
                else f"{value / values[0]:.3f} of the whole; published {known[parts] / known[1]:.3f}",
            )
        )
    return rows


def _by_name(solved_: Sequence[PartitionSolve]) -> dict[str, list[PartitionSolve]]:
    found: dict[str, list[PartitionSolve]] = {}
    for one in solved_:
        found.setdefault(f"{one.name}, {one.jobs:,} jobs", []).append(one)
    return found


def _time_chart(solved_: Sequence[PartitionSolve]) -> Chart:
    parts = np.array(PARTS, np.float64)
    ours = [
        Series(name, parts, np.array([one.cpu_s for one in each]))
        for name, each in _by_name(solved_).items()
    ]
    theirs = [
        Series(
            f"{PACKED}, {jobs:,} jobs",
            np.array(list(by), np.float64),
            np.array(list(by.values())),
            published=True,
        )
        for jobs, by in SECONDS.items()
    ]
    return Chart("Time of one solve", "Parts", "Seconds", (*ours, *theirs), log_x=True, log_y=True)


def _quality_chart(solved_: Sequence[PartitionSolve]) -> Chart:
    parts = np.array(PARTS, np.float64)
    series = [
        Series(name, parts, np.array([one.objective for one in each]))
        for name, each in _by_name(solved_).items()
    ]
    return Chart("Objective over that of the whole", "Parts", "Ratio", tuple(series), log_x=True)


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "pop-quality",
        "Quality and time of partitioned policies",
        "POP (SOSP'21), figure 2; the logs of its release",
        run,
    ),
)
