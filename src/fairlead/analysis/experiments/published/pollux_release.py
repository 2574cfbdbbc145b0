"""Pollux against Tiresias and Optimus in its released simulator, with its workloads, and what came after
it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.report.chart import Chart, Series
from fairlead.model.arrays import Floats
from fairlead.simulator.pollux_reference.applications import read_by_accelerator
from fairlead.simulator.pollux_reference.fairness import finish_time_fairness
from fairlead.simulator.pollux_reference.registry import elastic_policy
from fairlead.simulator.pollux_reference.simulation import simulate_elastic
from fairlead.simulator.pollux_reference.workload import read_workload

SIZES = [4] * 16
ROUND_S = 60.0
WORKLOADS = {"small": (1, 5), "paper": tuple(range(1, 9))}
FOLDERS = {0.5: "workloads-0.5", 1.0: "workloads"}  # by load
PERIODS = (30.0, 60.0, 120.0, 240.0, 480.0)
NAMES = {
    "tiresias": "Tiresias",
    "optimus": "Optimus",
    "pollux": "Pollux",
    "sia": "Sia",
    "elastic_srpt": "elastic SRPT",
}
# Average completion times of workloads 1 to 8 in seconds, from the release's results; Pollux's are of one run
# of its genetic search each.
PUBLISHED = {
    ("tiresias", 0.5): (
        1450.9375,
        2333.275,
        1869.9,
        1946.7625,
        1425.3875,
        1826.575,
        3979.15,
        1899.95,
    ),
    ("optimus", 0.5): (
        1309.6875,
        3124.5625,
        1986.8375,
        2173.8625,
        1324.525,
        1957.9625,
        5314.0,
        1971.475,
    ),
    ("pollux", 0.5): (
        1059.5125,
        1826.2625,
        1310.525,
        1497.7625,
        976.8375,
        1287.825,
        2881.05,
        1432.0375,
    ),
    ("tiresias", 1.0): (
        2473.65,
        5144.9625,
        3876.2562,
        3280.2625,
        3501.0125,
        3469.6937,
        5479.9125,
        5079.7063,
    ),
    ("optimus", 1.0): (
        4087.0625,
        6913.875,
        3944.0062,
        5967.75,
        5656.25,
        5301.875,
        7290.8562,
        6293.7937,
    ),
    ("pollux", 1.0): (
        2088.7688,
        3322.9437,
        2188.4938,
        2720.9812,
        2673.7,
        2446.1312,
        3616.1438,
        2951.9062,
    ),
}
PUBLISHED_PERIODS = dict(zip(PERIODS, (2729.0, 2751.0, 2806.0, 2969.0, 3354.0), strict=True))
UNFAIR = 1.2


@dataclass(frozen=True)
class _Outcome:
    """Of one policy over the workloads of a load."""

    jct_s: float
    restarts: float
    rho: Floats  # (jobs,) of all workloads; empty where it was not asked for
    gap: float | None


def load(context: ExperimentContext) -> Findings:
    """Average completion times at the two loads whose workloads were released."""
    numbers = WORKLOADS[context.scale]
    found = {
        (load, policy): _outcome(context, policy, load, ROUND_S, fairness=True)
        for load in FOLDERS
        for policy in NAMES
    }
    tables = []
    for load in FOLDERS:
        rows = []
        for policy, name in NAMES.items():
            one, published = found[load, policy], PUBLISHED.get((policy, load))
            mean = (
                None if published is None else float(np.mean([published[k - 1] for k in numbers]))
            )
            rows.append(FindingRow(name, one.jct_s, mean, "s"))
        tables.append(FindingTable(f"Average completion time at load {load}", tuple(rows)))
        tables.append(
            FindingTable(
                f"Fairness and restarts at load {load}",
                tuple(
                    row
                    for policy, name in NAMES.items()
                    for row in _fairness(name, found[load, policy])
                ),
            )
        )
    return Findings(tuple(tables), (_bars(found, numbers),), _METHOD)


def _fairness(name: str, one: _Outcome) -> tuple[FindingRow, ...]:
    restarts = FindingRow(f"{name}: restarts per run", one.restarts)
    if not len(one.rho):
        return (restarts,)
    worst, unfair = float(one.rho.max()), 100 * float((one.rho > UNFAIR).mean())
    return (
        FindingRow(f"{name}: worst rho", worst),
        FindingRow(f"{name}: jobs with rho above {UNFAIR}", unfair, unit="%"),
        restarts,
    )


def period(context: ExperimentContext) -> Findings:
    """Pollux with longer and shorter times between two decisions, at load 1."""
    ours = {
        policy: np.array(
            [_outcome(context, policy, 1.0, round_s, fairness=False).jct_s for round_s in PERIODS]
        )
        for policy in ("pollux", "elastic_srpt")
    }
    whole = context.scale == "paper"
    rows = [
        FindingRow(
            f"{NAMES[policy]}, a decision each {round_s:.0f} s",
            float(jct_s),
            PUBLISHED_PERIODS[round_s] if policy == "pollux" and whole else None,
            "s",
        )
        for policy, values in ours.items()
        for round_s, jct_s in zip(PERIODS, values, strict=True)
    ]
    x = np.array(PERIODS) / 60
    series = [Series(NAMES[policy], x, values / 3600) for policy, values in ours.items()]
    if whole:
        published = np.array(list(PUBLISHED_PERIODS.values())) / 3600
        series.append(Series(NAMES["pollux"], x, published, published=True))
    chart = Chart(
        title="Time between two decisions",
        x_label="Minutes between two decisions",
        y_label="Average completion time (h)",
        series=tuple(series),
        log_x=True,
    )
    return Findings(
        (FindingTable("Average completion time at load 1.0", tuple(rows)),), (chart,), _METHOD
    )


def _outcome(
    context: ExperimentContext, policy: str, load: float, round_s: float, *, fairness: bool
) -> _Outcome:
    """Run the workloads of a load."""
    folder: Path = context.shared("pollux")
    applications = read_by_accelerator(folder, ["gpu"])
    jct_s, restarts, rho, gaps = [], [], [np.empty(0)], []
    for number in WORKLOADS[context.scale]:
        path = context.shared(f"pollux/{FOLDERS[load]}/workload-{number}.csv")
        run = simulate_elastic(
            read_workload(path, applications), elastic_policy(policy), SIZES, round_s
        )
        jct_s.append(np.mean(list(run.jct_s().values())))
        restarts.append(sum(one.restarts for one in run.trainings))
        gaps.append(run.gap)
        if fairness and elastic_policy(policy).adapts_batch:
            found = finish_time_fairness(run, partial(elastic_policy, policy), SIZES, round_s)
            rho.append(np.array(list(found.values())))
    known = [gap for gap in gaps if gap is not None]
    return _Outcome(
        jct_s=float(np.mean(jct_s)),
        restarts=float(np.mean(restarts)),
        rho=np.concatenate(rho),
        gap=max(known, default=None),
    )


def _bars(found: dict[tuple[float, str], _Outcome], numbers: tuple[int, ...]) -> Chart:
    series = []
    at = np.arange(len(FOLDERS), dtype=np.float64)
    for policy, name in NAMES.items():
        ours = np.array([found[load, policy].jct_s for load in FOLDERS]) / 3600
        series.append(Series(name, at, ours))
    published = [
        np.mean([PUBLISHED["pollux", load][k - 1] for k in numbers]) / 3600 for load in FOLDERS
    ]
    series.append(Series("Pollux, published", at, np.array(published)))
    return Chart(
        title="Average completion time",
        x_label="Load",
        y_label="Hours",
        series=tuple(series),
        kind="bars",
        categories=tuple(str(load) for load in FOLDERS),
    )


_METHOD = (
    "The world is that of Pollux's released simulator, with its measurements and workloads: 16 nodes of 4 "
    "devices. Tiresias and Optimus are those of the release, to the second.",
    "Pollux's objective is solved to its optimum over powers of two within a node and whole nodes; the "
    "release has a genetic search over any numbers. NCF trains on one device under it, as in the release, "
    "and under Sia.",
    "Elastic SRPT is Fairlead's own policy: it knows how many steps a job is to do, which Pollux does not "
    "use, and its jobs learn step times from others of the same application.",
    "Rho is the completion time of a job over that which it would have alone, on 1/n of the cluster under "
    "the same policy, where n is the mean number of jobs that were there with it. Tiresias and Optimus have "
    "none: their jobs may ask for more than 1/n.",
)

REPRODUCTIONS = (
    Reproduction(
        "pollux-load",
        "Pollux: completion times at two loads",
        "Pollux (OSDI'21), figure 7 and its released results",
        load,
        needs_data=True,
    ),
    Reproduction(
        "pollux-period",
        "Pollux: time between two decisions",
        "Pollux (OSDI'21), section 5.3 and its released results",
        period,
        needs_data=True,
    ),
)
