"""The simulator against physical runs: Shockwave's 120-job trace on 32 V100 under six policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
)
from fairlead.analysis.experiments.point import PointResult
from fairlead.analysis.experiments.published import shockwave_common as common
from fairlead.analysis.experiments.published.shockwave_common import (
    AVG_JCT,
    CANONICAL_CASE,
    LABELS,
    MAKESPAN,
    OURS,
    RELEASED,
    VERY_UNFAIR,
    WORST_RHO,
    PaperMetric,
)
from fairlead.analysis.experiments.published.shockwave_numbers import (
    CANONICAL,
    PHYSICAL,
    Numbers,
)
from fairlead.analysis.report.chart import Chart
from fairlead.errors import ConfigError, TraceError
from fairlead.model.arrays import Floats

FILE = "shockwave/physical_vs_simulation_tacc32_perjob.csv"
COLUMNS = {
    "policy": pl.String,
    "kind": pl.String,
    "i": pl.Int64,
    "ftf": pl.Float64,
    "jct_s": pl.Float64,
}
REMARKS = (
    "Error: |physical / simulated - 1|; published is that of the release's own simulations.",
    "The release's simulations of this comparison have settings that were not recorded: those of its "
    "canonical results, on the same trace, are up to 3.4 % longer. Against the canonical ones the mean error "
    "would be {makespan:.2f} % of makespan and {jct:.2f} % of average JCT.",
    "Ours are the canonical simulations, unchanged: rates as measured before, 20 s per start, and none of "
    "the numbers fitted to the physical runs.",
    "The makespan of the physical run of Themis has 3,600 s added, as its authors do: clocks changed "
    "during the run.",
)


@dataclass(frozen=True, slots=True)
class JobResults:
    """The jobs of a run, in order of submission."""

    jct_s: Floats
    rho: Floats


def fidelity(context: ExperimentContext) -> Findings:
    """Physical runs, the release's simulations of them, and ours. Both scales are the paper's."""
    points = [CANONICAL_CASE.point(name) for name in PHYSICAL]
    found = dict(zip(PHYSICAL, context.run(points), strict=True))
    physical = {name: one.run for name, one in PHYSICAL.items()}
    tables = [
        _errors(MAKESPAN, found, {n: one.makespan_s for n, one in PHYSICAL.items()}),
        _errors(AVG_JCT, found, {n: one.avg_jct_s for n, one in PHYSICAL.items()}),
        *(
            common.table(measure, f"{measure.title}, physical as published", found, physical)
            for measure in (MAKESPAN, AVG_JCT, WORST_RHO, VERY_UNFAIR)
        ),
    ]
    charts = [common.bars(measure, found, physical) for measure in (MAKESPAN, AVG_JCT)]
    remarks = [text.format(**_canonical_errors()) for text in REMARKS]
    try:
        jobs = _read(context.shared(FILE))
    except ConfigError as error:
        remarks.append(f"Not compared job by job: {error}")
    else:
        tables += _by_job(found, jobs)
        charts += _cdfs(found, jobs)
    return Findings(tuple(tables), tuple(charts), tuple(remarks))


def _errors(
    measure: PaperMetric, found: Mapping[str, PointResult], theirs: Mapping[str, float]
) -> FindingTable:
    """Return how far the simulations are from the physical runs, ours and the release's; theirs:
    simulated."""
    rows = []
    for name, outcome in found.items():
        real, ours = measure.of(PHYSICAL[name].run), common.numbers(outcome)
        error = None if ours is None else _error(real, measure.of(ours))
        rows.append(
            FindingRow(
                LABELS[name], error, _error(real, theirs[name]), "%", "" if ours else outcome.reason
            )
        )
    return FindingTable(f"{measure.title}: error of the simulation", (*rows, _mean(rows)))


def _mean(rows: list[FindingRow]) -> FindingRow:
    ours = [row.ours for row in rows if row.ours is not None]
    theirs = [row.published for row in rows if row.published is not None]
    whole = len(ours) == len(rows)
    return FindingRow("mean", float(np.mean(ours)) if whole else None, float(np.mean(theirs)), "%")


def _error(real: float, simulated: float) -> float:
    return 100 * abs(real / simulated - 1)


def _canonical_errors() -> dict[str, float]:
    """The mean errors (%) of the release's canonical simulations."""
    pairs = [(one.run, _canonical(name)) for name, one in PHYSICAL.items()]
    return {
        key: float(np.mean([_error(measure.of(real), measure.of(sim)) for real, sim in pairs]))
        for key, measure in (("makespan", MAKESPAN), ("jct", AVG_JCT))
    }


def _canonical(name: str) -> Numbers:
    return CANONICAL[OURS if name == RELEASED else name]


def _read(path: Path) -> dict[tuple[str, str], JobResults]:
    """By the release's name of the policy and "physical" or "simulation". Raises TraceError."""
    try:
        table = pl.read_csv(path, schema_overrides=COLUMNS).select(list(COLUMNS))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except pl.exceptions.PolarsError as error:
        first = str(error).split("\n", 1)[0]
        raise TraceError(f"{path}: {first}") from None
    found = {
        (str(policy), str(kind)): JobResults(rows["jct_s"].to_numpy(), rows["ftf"].to_numpy())
        for (policy, kind), rows in table.sort("i").group_by(["policy", "kind"])
    }
    for one in PHYSICAL.values():
        for kind in ("physical", "simulation"):
            n = len(found[one.file, kind].jct_s) if (one.file, kind) in found else 0
            if n != CANONICAL_CASE.jobs:
                raise TraceError(
                    f"{path}: {CANONICAL_CASE.jobs} rows with policy {one.file} and kind {kind} "
                    f"expected, {n} found"
                )
    return found


def _by_job(
    found: Mapping[str, PointResult], jobs: Mapping[tuple[str, str], JobResults]
) -> list[FindingTable]:
    """Return how well each job's JCT and rho are foretold, by us and by the release's simulations."""
    off, rho, alike = [], [], []
    for name, outcome in found.items():
        ours = _jobs(outcome)
        if ours is None:
            continue
        file, label = PHYSICAL[name].file, LABELS[name]
        real, theirs = jobs[file, "physical"], jobs[file, "simulation"]
        off.append(FindingRow(label, _off(real, ours), _off(real, theirs), "%"))
        rho.append(FindingRow(label, _rho_off(real, ours), _rho_off(real, theirs)))
        alike.append(FindingRow(label, _alike(real, ours), _alike(real, theirs)))
    if not off:
        return []
    return [
        FindingTable("JCT of each job: mean error of the simulation", (*off, _mean(off))),
        FindingTable("Rho of each job: mean difference from the physical one", tuple(rho)),
        FindingTable("JCT of each job: correlation with the physical one", tuple(alike)),
    ]


def _jobs(outcome: PointResult) -> JobResults | None:
    """Return the results of a run's jobs; None if it kept no table of them."""
    if not outcome.jobs:
        return None
    table = pl.read_parquet(outcome.jobs).sort("job")
    return JobResults(table["jct_s"].to_numpy(), table["rho_static"].to_numpy())


def _off(real: JobResults, simulated: JobResults) -> float:
    return 100 * float(np.abs(real.jct_s / simulated.jct_s - 1).mean())


def _rho_off(real: JobResults, simulated: JobResults) -> float:
    return float(np.abs(real.rho - simulated.rho).mean())


def _alike(real: JobResults, simulated: JobResults) -> float:
    return float(np.corrcoef(real.jct_s, simulated.jct_s)[0, 1])


def _cdfs(
    found: Mapping[str, PointResult], jobs: Mapping[tuple[str, str], JobResults]
) -> list[Chart]:
    """The JCTs of each policy, the physical ones dashed."""
    series = []
    for name, outcome in found.items():
        ours, label = _jobs(outcome), LABELS[name]
        if ours is not None:
            real = jobs[PHYSICAL[name].file, "physical"]
            series += [
                common.cdf(label, ours.jct_s / 3600),
                common.cdf(label, real.jct_s / 3600, known=True),
            ]
    title = "JCT, simulated and physical (dashed)"
    return [Chart(title, "JCT (hours)", "Share of jobs", tuple(series))] if series else []
