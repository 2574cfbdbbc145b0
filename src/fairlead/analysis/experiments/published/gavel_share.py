"""Gavel on clusters of two types: what it is worth to know their rates, by the share of fast devices."""

from collections.abc import Callable, Sequence
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
from fairlead.analysis.experiments.published.gavel_continuous import SEED, SMALL_SCALE_NOTE
from fairlead.analysis.experiments.published.gavel_curves import (
    RATES,
    SEEDS,
    CurveLine,
    LoadCurve,
    Loads,
    curve_of,
    either,
    jct_h,
    marks,
    mean_rows,
    measure,
    under,
)
from fairlead.analysis.experiments.published.gavel_jct_numbers import (
    JCT_GAIN,
    MAKESPAN_GAIN,
    PAPER,
)
from fairlead.analysis.report.chart import Chart, Series
from fairlead.model.arrays import Floats
from fairlead.simulator.simulation_input import SimulationInput

DEVICES = 100
STATIC_JOBS, SMALL_SCALE_JOBS = 500, 100  # at the paper's and at small scale
PROFILES = {"gavel": "as released", "default": "default profile"}
SHARES = (0.1, 0.5, 1.0)  # of v100, of the gains in JCT
RATES_AT = (0.4, 2.0, 3.2, 4.0, 4.4)  # jobs per hour
HETEROGENEITY_AGNOSTIC, HETEROGENEITY_AWARE = (
    CurveLine("agnostic", "las"),
    CurveLine("aware", "las_aware"),
)


def share_of_fast(context: ExperimentContext) -> Findings:
    """Gains in makespan and in average JCT: the agnostic policy's over the aware one's."""
    makespan_table, makespan_chart = _makespans(context)
    jct_table, jct_means, jct_chart = _jcts(context)
    jobs = STATIC_JOBS if context.scale == "paper" else SMALL_SCALE_JOBS
    return Findings(
        (makespan_table, jct_table, jct_means),
        (makespan_chart, jct_chart),
        (
            f"{DEVICES} devices, v100 and k80. Gain: the agnostic policy's makespan or average JCT over the "
            "aware one's, of the same jobs.",
            "It is not known how many jobs the published makespans are of, and a single makespan depends on "
            f"the few longest jobs; ours are of {jobs} jobs of one device that have all arrived at the "
            "start. Compare the shape: the gain falls to nothing as all devices become alike.",
            "Agnostic makespan as released takes the rates of v100 for those of all types; since the release "
            "draws the order of types anew every round, its jobs come to all of them. In the default profile "
            "jobs stay where they are, and a long one that has begun on k80 may end there: up to twice the "
            "makespan, where the aware policy has the same in both.",
            *(() if context.scale == "paper" else (SMALL_SCALE_NOTE,)),
        ),
    )


def cluster_of(share: float) -> str:
    """A cluster with this share of v100."""
    fast = round(DEVICES * share)
    parts = (("v100", fast), ("k80", DEVICES - fast))
    return ",".join(f"{name}={count}" for name, count in parts if count)


def makespan_point(share: float, seed: int, jobs: int, policy: str, profile: str) -> Point:
    """All jobs there at the start."""
    given = SimulationInput(
        generate=f"gavel,interarrival=0,jobs={jobs}",
        throughputs=RATES,
        cluster=cluster_of(share),
        seed=seed,
    )
    return Point(policy, profile, given)


def _makespans(context: ExperimentContext) -> tuple[FindingTable, Chart]:
    paper = context.scale == "paper"
    shares = tuple(MAKESPAN_GAIN) if paper else SHARES
    seeds, jobs = (SEEDS, STATIC_JOBS) if paper else ((SEED,), SMALL_SCALE_JOBS)
    outcomes = iter(
        context.run(
            [
                makespan_point(share, seed, jobs, policy, profile)
                for profile in PROFILES
                for share in shares
                for seed in seeds
                for policy in ("makespan", "makespan_aware")
            ]
        )
    )
    gains = {
        how: np.array(
            [[_ratio(next(outcomes), next(outcomes), _makespan) for _ in seeds] for _ in shares]
        )
        for how in PROFILES.values()
    }
    table = FindingTable(
        "Gain in makespan",
        tuple(
            _row(f"{share:.0%} v100, seed {seed}, {how}", gain[i, k], known)
            for how, gain in gains.items()
            for i, share in enumerate(shares)
            for k, seed in enumerate(seeds)
            for known in [MAKESPAN_GAIN[share][seed] if how == PROFILES["gavel"] else None]
        ),
    )
    ours = [_bars(how, shares, gain) for how, gain in gains.items()]
    known = np.array(list(MAKESPAN_GAIN.values()))
    theirs = _bars(PROFILES["gavel"], tuple(MAKESPAN_GAIN), known, published=True)
    chart = Chart("Gain in makespan", "Share of v100", "Agnostic over aware", (*ours, theirs))
    return table, chart


def _jcts(context: ExperimentContext) -> tuple[FindingTable, FindingTable, Chart]:
    """Gains in average JCT against the load, a curve for each share."""
    curves = [_jct_curve(context, share, profile) for profile in PROFILES for share in SHARES]
    rows = []
    for one, share in zip(curves, SHARES, strict=False):  # the first ones, as released
        for (at, rate), known in JCT_GAIN.items():
            if at == share and rate in one.rates:
                rows += [
                    _row(f"{one.name} at {rate:g} jobs/h, seed {seed}", one.at(rate, seed), value)
                    for seed, value in enumerate(known)
                    if seed in one.seeds and value is not None
                ]
    chart = Chart(
        "Gain in average JCT, least attained service",
        "Jobs per hour",
        "Agnostic over aware",
        tuple(one.series for one in curves),
        marks=marks(curves),
    )
    every = sorted({rate for one in curves for rate in one.rates})
    return (
        FindingTable("Gain in average JCT", tuple(rows)),
        FindingTable("Gain in average JCT: means", mean_rows(curves, every, "x")),
        chart,
    )


def jct_loads(context: ExperimentContext, share: float) -> Loads:
    """Return the loads at which the gain in JCT is measured."""
    if context.scale == "paper":
        return Loads(RATES_AT, cluster=cluster_of(share))
    return Loads((0.4, 4.4), (SEED,), "600:800", cluster_of(share))


def _jct_curve(context: ExperimentContext, share: float, profile: str) -> LoadCurve:
    loads = jct_loads(context, share)
    lines = [
        under(line, line.name, profile=profile)
        for line in (HETEROGENEITY_AGNOSTIC, HETEROGENEITY_AWARE)
    ]
    grids = measure(context, lines, loads)
    over, base = (grids[line.name] for line in lines)
    values = np.array(
        [[_ratio(over[r, s], base[r, s], jct_h) for s in loads.seeds] for r in loads.rates]
    )
    name = f"{share:.0%} v100, {PROFILES[profile]}"
    return curve_of(name, loads, either(over, base), values)


def _makespan(outcome: PointResult) -> float:
    value = outcome.metrics.get("makespan_s") if outcome.status is Status.COMPLETE else None
    return nan if value is None else float(value)


def _ratio(over: PointResult, base: PointResult, of: Callable[[PointResult], float]) -> float:
    return of(over) / of(base)


def _row(what: str, ours: float | None, known: float | None) -> FindingRow:
    gone = ours is None or np.isnan(ours)
    return FindingRow(
        what, None if gone else ours, known, "x", "a run is not complete" if gone else ""
    )


def _bars(name: str, shares: Sequence[float], gain: Floats, published: bool = False) -> Series:
    """Means over the seeds, with the least and the greatest; gain: (shares, seeds)."""
    x = np.array(shares)
    return Series(name, x, gain.mean(axis=1), gain.min(axis=1), gain.max(axis=1), published)


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "gavel-heterogeneity-share",
        "Gains in makespan and JCT by the share of fast devices",
        f"{PAPER}; the release's notebook of cluster sweeps",
        share_of_fast,
    ),
)
