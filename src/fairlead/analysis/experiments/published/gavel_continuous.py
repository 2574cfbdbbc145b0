"""Gavel's continuous experiments: JCT against load under LAS, finish-time fairness and FIFO.

Each policy is run three ways. *Solving at once*: the ``gavel`` profile with a solve at every arrival and end,
which is nearest to the published numbers; the release solves at most every 1,920 s. *As released*: the
``gavel`` profile as it is. *Ours*: the default profile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from fairlead.analysis.experiments.findings import (
    ExperimentContext,
    FindingRow,
    Findings,
    FindingTable,
    Reproduction,
)
from fairlead.analysis.experiments.point import PointResult
from fairlead.analysis.experiments.published import gavel_jct_numbers as numbers
from fairlead.analysis.experiments.published.gavel_curves import (
    MULTI,
    CurveLine,
    Grid,
    LoadCurve,
    Loads,
    Published,
    curve,
    curve_of,
    either,
    grid_rates,
    marks,
    mean_rows,
    measure,
    named,
    published_rows,
    published_series,
    ratio_rows,
    sustained_rows,
    under,
)
from fairlead.analysis.experiments.published.gavel_jct_numbers import (
    ALLOX,
    FIFO,
    FTF,
    GANDIVA,
    GAVEL,
    LAS,
    PACKED,
    PAPER,
)
from fairlead.analysis.report.chart import Chart

AT_ONCE = 0.0  # seconds between solves
SEED = 0  # of the published numbers
ISOLATED = CurveLine("isolated", "isolated")
DEFAULT_PROFILE = ", default profile"

SINGLE_RATES = grid_rates(0.4, 6.0)
# At low load and near saturation, where policies part: for the default profile, FIFO, and jobs of several
# devices, whose runs near saturation take long.
COARSE_SINGLE_RATES, COARSE_MULTI_RATES = (
    (0.4, 2.0, 4.0, 4.4, 4.8, 5.2, 5.6, 6.0),
    (0.2, 1.0, 2.0, 2.4, 2.6, 2.8, 3.0),
)
FIFO_RATES = COARSE_MULTI_RATES[:5]  # of several devices: beyond them FIFO carries nothing any more
SMALL_WINDOW = "1000:1300"


@dataclass(frozen=True)
class Study:
    """Policies, loads and what is known of them."""

    title: str
    lines: tuple[CurveLine, ...]  # as released
    ours: tuple[str, ...]  # those of them that are run in the default profile too
    published: Published
    paper: Loads
    ours_rates: tuple[float, ...]  # those of the paper's rates at which ours are run
    small: Loads
    ratios: tuple[tuple[str, str, float], ...]  # of two lines, at a rate
    max_h: float  # the top of the chart

    def loads(self, context: ExperimentContext) -> Loads:
        """Those of the workbench's scale."""
        return self.paper if context.scale == "paper" else self.small

    def ours_loads(self, context: ExperimentContext) -> Loads:
        """Return the loads at which our policies run."""
        loads = self.loads(context)
        return replace(loads, rates=self.ours_rates) if context.scale == "paper" else loads

    def known(self, line: str) -> Loads:
        """Return the loads, rates and seed, for which numbers of a line are published."""
        rates = tuple(sorted(self.published.get(line, {})))
        return replace(self.paper, rates=rates, seeds=(SEED,))


LAS_SINGLE = Study(
    title="Average JCT, least attained service, jobs of one device",
    lines=(
        CurveLine(LAS, "las"),
        CurveLine(GANDIVA, "gandiva"),
        CurveLine(ALLOX, "allox"),
        CurveLine(GAVEL, "las_aware"),
        CurveLine(PACKED, "las_packed"),
    ),
    ours=(LAS, GAVEL, PACKED),
    published=numbers.LAS_SINGLE,
    paper=Loads(SINGLE_RATES),
    ours_rates=COARSE_SINGLE_RATES,
    small=Loads((0.8, 4.0, 4.8, 5.6), (SEED,), SMALL_WINDOW),
    ratios=((LAS, GAVEL, 5.6), (LAS, PACKED, 5.6), (GANDIVA, GAVEL, 5.6), (LAS, GAVEL, 4.0)),
    max_h=100.0,
)
LAS_MULTI = Study(
    title="Average JCT, least attained service, jobs of several devices",
    lines=(
        CurveLine(LAS, "las"),
        CurveLine(GANDIVA, "gandiva"),
        CurveLine(GAVEL, "las_aware"),
        CurveLine(PACKED, "las_packed"),
    ),
    ours=(LAS, GAVEL, PACKED),
    published=numbers.LAS_MULTI,
    paper=Loads(COARSE_MULTI_RATES, flags=MULTI),
    ours_rates=COARSE_MULTI_RATES,
    small=Loads((0.4, 2.0, 2.6), (SEED,), SMALL_WINDOW, flags=MULTI),
    ratios=((LAS, GAVEL, 2.6), (LAS, PACKED, 2.6), (LAS, GAVEL, 2.0)),
    max_h=180.0,
)
_FTF_LINES = (CurveLine(FTF, "finish_time"), CurveLine(GAVEL, "finish_time_aware"))
FTF_MULTI = Study(
    title="Average JCT, finish-time fairness, jobs of several devices",
    lines=_FTF_LINES,
    ours=(GAVEL,),
    published=numbers.FTF_MULTI,
    paper=Loads((1.0, 2.0, 2.4, 2.6), flags=MULTI),
    ours_rates=(1.0, 2.0, 2.6),
    small=Loads((1.0, 2.6), (SEED,), SMALL_WINDOW, flags=MULTI),
    ratios=((FTF, GAVEL, 2.6), (FTF, GAVEL, 2.0)),
    max_h=100.0,
)
FTF_SINGLE = Study(
    title="Average JCT, finish-time fairness, jobs of one device",
    lines=_FTF_LINES,
    ours=(FTF, GAVEL),
    published=numbers.FTF_SINGLE,
    paper=Loads((0.4, 2.0, 4.0, 4.8, 5.6)),
    ours_rates=(0.4, 4.0, 5.6),
    small=Loads((0.8, 5.6), (SEED,), SMALL_WINDOW),
    ratios=((FTF, GAVEL, 5.6),),
    max_h=100.0,
)
_FIFO_LINES = (
    CurveLine(FIFO, "fifo"),
    CurveLine(GAVEL, "fifo_aware"),
    CurveLine(PACKED, "fifo_packed"),
)
FIFO_SINGLE = Study(
    title="Average JCT, FIFO, jobs of one device",
    lines=_FIFO_LINES,
    ours=(FIFO, GAVEL),
    published=numbers.FIFO_SINGLE,
    paper=Loads(COARSE_SINGLE_RATES),
    ours_rates=COARSE_SINGLE_RATES,
    small=Loads((0.8, 4.0, 5.2), (SEED,), SMALL_WINDOW),
    ratios=((FIFO, GAVEL, 5.2), (FIFO, PACKED, 5.2), (FIFO, GAVEL, 4.0)),
    max_h=160.0,
)
FIFO_MULTI = Study(
    title="Average JCT, FIFO, jobs of several devices",
    lines=_FIFO_LINES,
    ours=(FIFO, GAVEL),
    published=numbers.FIFO_MULTI,
    paper=Loads(FIFO_RATES, flags=MULTI),
    ours_rates=FIFO_RATES,
    small=Loads((0.4, 2.0, 2.6), (SEED,), SMALL_WINDOW, flags=MULTI),
    ratios=((FIFO, GAVEL, 2.6), (FIFO, PACKED, 2.6)),
    max_h=310.0,
)

METHOD = (
    "The published numbers are of seed 0 and are compared with ours of that seed. Some were made "
    "by a version of "
    "the release that let jobs wait less: at 4.8 jobs/h they are those of the gavel profile with "
    "--solve-interval 0, to four digits for LAS and Gavel. The version that was released solves at most "
    "every 1,920 s, as the gavel profile does.",
    "Where a program has many optimal shares, the solver ends at one of them. The release takes "
    "those at which its interior-point solver stops, ours takes the analytic centre; near "
    "saturation this changes a run's JCT by a few percent.",
    "A rate is sustained while the mean JCT is at most twice that at the lowest rate. Near saturation JCTs "
    "depend on the seed, on the window and on every detail; sustainable rates do not.",
)
SMALL_SCALE_NOTE = (
    f"Small scale: few rates, seed {SEED}, and jobs {SMALL_WINDOW} in place of 4000:5000, before which "
    "queues near saturation are still short. Only at the paper's scale do the numbers compare with the "
    "published ones."
)
OTHER_JOBS = (
    "Jobs of several devices: at 1 job/h, where nothing waits, the published JCTs of both policies are 6 % "
    "above ours, so the jobs themselves are not the same. Compare the ratios and rho with them instead."
)
VERSIONS = {
    ALLOX: "AlloX as released gives, to all digits, the six JCTs of AlloX that the release's instructions "
    "print for 0.4 and 0.8 jobs/h (seeds 42, 1234 and 15). The published curve is of an earlier version.",
}


def las_single(context: ExperimentContext) -> Findings:
    """Gavel, figure 8: LAS, jobs of one device."""
    return findings(context, LAS_SINGLE, (VERSIONS[ALLOX],))


def las_multi(context: ExperimentContext) -> Findings:
    """Gavel, figure 9: LAS, jobs of several devices."""
    words = (
        "Pairs of jobs of several devices have no rates in the table: packing is of jobs of one device.",
        "The published JCTs of all policies at all loads are 6 to 16 % above ours, as they are under "
        "finish-time fairness where nothing waits: the jobs themselves are not the same. Hold the ratios and "
        "the sustainable rates against them.",
        "As released, a job that does not fit into what devices are left is passed over, so near saturation "
        "jobs of eight devices starve. Such runs are ended once four times as many jobs have come as it "
        "takes to get the measured ones. Left to itself, aware LAS at 2.8 jobs/h (seed 0) took 2,259 days "
        "until the last measured job had ended, and 98 h on average, 1,304 h for jobs of eight devices. The "
        "published averages are of jobs or of a version that did not starve them; the default profile does "
        "so less.",
    )
    return findings(context, LAS_MULTI, words)


def fifo(context: ExperimentContext) -> Findings:
    """FIFO, for jobs of one and of several devices."""
    words = (
        "FIFO as released sends a job to the accelerator type that is last by name and does not look "
        "whether enough devices of it are free; the published curve is of a version before that.",
        "Agnostic FIFO does not carry 5.2 jobs/h of one device, nor 2.6 of several: the queue grows for as "
        "long as jobs come, and a JCT tells only how long the run lasted, as the published 151.7 and 304.8 h "
        "may. Ours are ended and have none.",
    )
    return joined(findings(context, FIFO_SINGLE, words), findings(context, FIFO_MULTI))


def finish_time(context: ExperimentContext) -> Findings:
    """Figure 10: JCT, and finish-time fairness against the isolated policy."""
    words = (
        "Rho is a job's JCT over its JCT in a run of the isolated policy on the same jobs, mean over the "
        "measured jobs, as the notebooks of the release compute it.",
        "Agnostic finish-time fairness as released takes the rates of v100 for those of all types; the "
        "published one did not.",
        "The isolated policy gives a job of eight devices an eighth of the time that others get. Near "
        "saturation such jobs starve, and where their runs are ended for it there is no rho.",
    )
    return joined(
        _finish_time(context, FTF_SINGLE, numbers.FTF_SINGLE_RHO, words),
        _finish_time(context, FTF_MULTI, numbers.FTF_MULTI_RHO, (OTHER_JOBS,)),
    )


def findings(context: ExperimentContext, study: Study, words: Sequence[str] = ()) -> Findings:
    """A study's tables and charts."""
    measured = _measured(context, study)
    curves = named([curve(name, loads, grid) for name, (loads, grid) in measured.items()])
    released = [curves[line.name] for line in study.lines]
    exact = _at_once(context, study) if context.scale == "paper" else []
    rates = sorted({rate for known in study.published.values() for rate in known})
    tables = [
        *([_table(study, "solving at once", exact, study.published)] if exact else []),
        _table(study, "as released", released, study.published),
        FindingTable(
            f"{study.title}: ratios near saturation",
            (
                *_exact_ratios(study, exact),
                *ratio_rows(curves, study.published, study.ratios, SEED),
                *ratio_rows(curves, {}, _of_ours(study), SEED),
            ),
        ),
        FindingTable(
            f"{study.title}: sustainable rates",
            sustained_rows(list(curves.values()), study.published),
        ),
        FindingTable(f"{study.title}: means", mean_rows(list(curves.values()), rates)),
    ]
    small = () if context.scale == "paper" else (SMALL_SCALE_NOTE,)
    return Findings(tuple(tables), _charts(study, curves), (*words, *METHOD, *small))


def joined(*parts: Findings) -> Findings:
    """One page of several; each remark once."""
    return Findings(
        tuple(table for part in parts for table in part.tables),
        tuple(chart for part in parts for chart in part.charts),
        tuple(dict.fromkeys(remark for part in parts for remark in part.remarks)),
    )


def _ours(study: Study) -> list[CurveLine]:
    return [
        under(line, line.name + DEFAULT_PROFILE, profile="default")
        for line in study.lines
        if line.name in study.ours
    ]


def _measured(context: ExperimentContext, study: Study) -> dict[str, tuple[Loads, Grid]]:
    """Every line as released and ours, by name: where it was run, and what came out."""
    loads, fewer = study.loads(context), study.ours_loads(context)
    released = measure(context, study.lines, loads)
    ours = measure(context, _ours(study), fewer)
    return {name: (loads, grid) for name, grid in released.items()} | {
        name: (fewer, grid) for name, grid in ours.items()
    }


def _of_ours(study: Study) -> list[tuple[str, str, float]]:
    """The ratios in the default profile, and how much better it is than the release."""
    both = [
        (over + DEFAULT_PROFILE, base + DEFAULT_PROFILE, rate)
        for over, base, rate in study.ratios
        if {over, base} <= set(study.ours)
    ]
    rate = max((rate for _, _, rate in study.ratios), default=0.0)
    return [*both, *((name, name + DEFAULT_PROFILE, rate) for name in study.ours)]


def _at_once(context: ExperimentContext, study: Study) -> list[LoadCurve]:
    """Every line where there are published numbers, with a solve at every arrival and end."""
    lines = [
        replace(line, solve_interval_s=AT_ONCE)
        for line in study.lines
        if line.name in study.published
    ]
    points = [point for line in lines for point in study.known(line.name).points(line)]
    outcomes = iter(context.run(points))
    curves = []
    for line in lines:
        loads = study.known(line.name)
        grid = {(rate, SEED): next(outcomes) for rate in loads.rates}
        curves.append(curve(line.name, loads, grid))
    return curves


def _exact_ratios(study: Study, exact: Sequence[LoadCurve]) -> tuple[FindingRow, ...]:
    rows = ratio_rows(named(exact), study.published, study.ratios, SEED)
    return tuple(replace(row, what=f"{row.what}, solving at once") for row in rows)


def _table(
    study: Study, how: str, curves: Sequence[LoadCurve], published: Published
) -> FindingTable:
    return FindingTable(f"{study.title}, {how}", published_rows(curves, published, SEED))


def _charts(study: Study, curves: Mapping[str, LoadCurve]) -> tuple[Chart, ...]:
    released = [curves[line.name] for line in study.lines]
    shown = [one for name in study.ours for one in (curves[name], curves[name + DEFAULT_PROFILE])]
    chart = partial(_chart, study)
    return (
        chart(f"{study.title}, as released", released, study.published),
        chart(f"{study.title}, default profile", shown, {}),
    )


def _chart(study: Study, title: str, curves: Sequence[LoadCurve], published: Published) -> Chart:
    return Chart(
        title,
        "Jobs per hour",
        "Average JCT (h)",
        (*(one.series for one in curves), *published_series(published)),
        y_max=study.max_h,
        marks=marks(curves),
    )


def _finish_time(
    context: ExperimentContext, study: Study, published: Published, words: Sequence[str]
) -> Findings:
    """The study's findings, and finish-time fairness."""
    found = findings(context, study, words)
    isolated = measure(context, [ISOLATED], study.loads(context))[ISOLATED.name]
    curves = [
        _rho_curve(name, loads, grid, isolated)
        for name, (loads, grid) in _measured(context, study).items()  # known by now, not run again
    ]
    rows = published_rows(curves, published, SEED, "")
    title = study.title.replace("Average JCT", "Mean rho against isolated runs")
    chart = Chart(
        title,
        "Jobs per hour",
        "Mean rho",
        (*(one.series for one in curves), *published_series(published)),
        y_max=2.0,
    )
    exact = _rho_at_once(context, study, published) if context.scale == "paper" else []
    tables = (
        *(
            [FindingTable(f"{title}, solving at once", published_rows(exact, published, SEED, ""))]
            if exact
            else []
        ),
        FindingTable(f"{title}, as released", rows),
        FindingTable(f"{title}: means", mean_rows(curves, study.loads(context).rates, "")),
    )
    return Findings((*found.tables, *tables), (*found.charts, chart), found.remarks)


def _rho_at_once(context: ExperimentContext, study: Study, published: Published) -> list[LoadCurve]:
    """Return curves at the published rates, with a solve at every arrival and end in both runs."""
    curves = []
    for line in study.lines:
        rates = tuple(sorted(published.get(line.name, {})))
        loads = replace(study.paper, rates=rates, seeds=(SEED,))
        both = [replace(one, solve_interval_s=AT_ONCE) for one in (line, ISOLATED)]
        grid, isolated = measure(context, both, loads).values()
        curves.append(_rho_curve(line.name, loads, grid, isolated))
    return curves


def _rho_curve(name: str, loads: Loads, grid: Grid, isolated: Grid) -> LoadCurve:
    rho = [[mean_rho(grid[r, s], isolated[r, s]) for s in loads.seeds] for r in loads.rates]
    return curve_of(name, loads, either(grid, isolated), np.array(rho))


def mean_rho(outcome: PointResult, isolated: PointResult) -> float:
    """The mean over jobs of the JCT over that in the other run; nan if a run has no table of its jobs."""
    if not (outcome.jobs and isolated.jobs):
        return float("nan")
    mine, theirs = (
        pl.read_parquet(one.jobs, columns=["job", "jct_s"]).drop_nulls()
        for one in (outcome, isolated)
    )
    both = mine.join(theirs, on="job", suffix="_isolated")
    mean = (both["jct_s"] / both["jct_s_isolated"]).mean()
    return float("nan") if mean is None else float(mean)  # type: ignore[arg-type]


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "gavel-las-single",
        "JCT against load under least attained service, jobs of one device",
        f"{PAPER}, figure 8; the release's notebook of continuous jobs",
        las_single,
    ),
    Reproduction(
        "gavel-las-multi",
        "JCT against load under least attained service, jobs of several devices",
        f"{PAPER}, figure 9; the release's notebook of continuous jobs",
        las_multi,
    ),
    Reproduction(
        "gavel-ftf",
        "JCT and finish-time fairness against load",
        f"{PAPER}, figure 10; the release's notebooks of continuous jobs",
        finish_time,
    ),
    Reproduction(
        "gavel-fifo",
        "JCT against load under FIFO",
        f"{PAPER}, section 7.3; the release's notebooks of continuous jobs",
        fifo,
    ),
)
