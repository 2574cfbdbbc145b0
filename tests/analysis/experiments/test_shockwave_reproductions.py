"""Shockwave's published results: what is run, and how it is held against the published numbers."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairlead.analysis.experiments.findings import (
    FindingRow,
    Findings,
    Scale,
)
from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.experiments.published.shockwave_common import (
    CANONICAL_CASE,
    LABELS,
    OURS,
    RELEASED,
    TraceCase,
    cdf,
)
from fairlead.analysis.experiments.published.shockwave_contention import DEVICES, case
from fairlead.analysis.experiments.published.shockwave_fidelity import FILE
from fairlead.analysis.experiments.published.shockwave_numbers import (
    CANONICAL,
    PHYSICAL,
    RERUN_64,
)
from fairlead.analysis.experiments.published.shockwave_runs import REPRODUCTIONS, SIZES
from fairlead.errors import ConfigError, TraceError
from fairlead.model.job import Arrival
from fairlead.simulator.generate import generate
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.traces.cluster_files import parse_cluster
from fairlead.simulator.traces.read_trace import read_trace
from fairlead.simulator.traces.throughput_tables import read_throughputs

BY_NAME = {one.name: one for one in REPRODUCTIONS}


@dataclass
class MadeUpContext:
    """A workbench that makes outcomes one by one, and keeps them."""

    folder: Path
    made: Callable[[Point, Path], PointResult]
    scale: Scale = "small"
    data: Path | None = None
    known: dict[Point, PointResult] = field(default_factory=dict)

    def run(self, points: Sequence[Point]) -> list[PointResult]:
        for point in points:
            key = point.key("")
            if point not in self.known:
                self.known[point] = self.made(point, self.folder / f"{key}.parquet")
        return [self.known[point] for point in points]

    def shared(self, name: str) -> Path:
        if self.data is None:
            raise ConfigError(f"{name} is not there")
        return self.data / name


def placed(given: SimulationInput) -> SimulationInput:
    """With the table where it lies here; tests that need it are skipped where it does not."""
    data = Path(__file__).resolve().parents[4] / "shared" / "data"
    return replace(given, throughputs=str(data / given.throughputs.removeprefix("data:")))


def simulated(point: Point, jobs: Path) -> PointResult:
    result = placed(point.input).prepare(point.policy, point.profile).execute()
    result.jobs.write_parquet(jobs)
    return PointResult(point, Status.COMPLETE, result.metrics, jobs=str(jobs))


def failed(point: Point, _: Path) -> PointResult:
    return PointResult(point, Status.FAILED, {}, f"{point.policy} could not be run")


def told(point: Point, _: Path) -> PointResult:
    """Numbers that tell the point: a makespan of 100 for each job, plus the seed."""
    jobs = int(str(point.input.generate).split(",")[1].removeprefix("jobs="))
    rho = {"max": 2.0, "unfair_1": 0.5, "unfair_1_05": 0.25, "unfair_1_1": 0.125}
    metrics: dict[str, Any] = {
        "makespan_s": 100.0 * jobs + point.input.seed,
        "avg_jct_s": 10.0,
        "rho": {"static": rho},
    }
    return PointResult(point, Status.COMPLETE, metrics)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> MadeUpContext:
    """One for all tests: the canonical runs serve the fidelity of the simulator too."""
    return MadeUpContext(tmp_path_factory.mktemp("runs"), simulated)


def rows(findings: Findings, title: str) -> dict[str, FindingRow]:
    (table,) = (table for table in findings.tables if table.title == title)
    return {row.what: row for row in table.rows}


def jobs_of(case: TraceCase) -> list[Arrival]:
    given = placed(case.point(OURS).input)
    cluster = parse_cluster(given.cluster)
    assert given.generate is not None
    table = read_throughputs(given.throughputs).columns(cluster.slots)
    return list(generate(given.generate, table, cluster, given.seed)[0])


def test_names_are_those_of_the_command() -> None:
    assert list(BY_NAME) == [
        "shockwave-canonical",
        "shockwave-scale",
        "shockwave-contention",
        "shockwave-fidelity",
    ]
    assert all(one.needs_data for one in REPRODUCTIONS)


@pytest.mark.shared
def test_canonical_numbers_stand_beside_the_published_ones(context: MadeUpContext) -> None:
    found = BY_NAME["shockwave-canonical"].run(context)
    for title in ("Makespan", "Average JCT"):
        ratio = {what: row.ratio for what, row in rows(found, title).items()}
        assert ratio.keys() == set(LABELS.values())
        for name in ("Gavel LAS", "Gandiva-Fair"):  # whose released runs repeat bit for bit
            assert ratio[name] == pytest.approx(1, abs=5e-5)
        for name in ("AlloX", "MST", "Shockwave, as released"):
            assert ratio[name] == pytest.approx(1, abs=0.01)
        for name in ("OSSP", "Themis"):
            assert ratio[name] == pytest.approx(1, abs=0.02)
    rho = rows(found, "Worst rho")
    assert rho["Gandiva-Fair"].ratio == pytest.approx(1, abs=1e-3)
    assert rho["Shockwave"].ours < rho["Shockwave, as released"].ours  # type: ignore[operator]
    assert rho["Shockwave"].published == rho["Shockwave, as released"].published == 1.784
    unfair = rows(found, "Jobs with rho > 1.05")
    assert unfair["Gavel LAS"].ours == pytest.approx(25.0)
    assert unfair["Gavel LAS"].unit == "%"
    assert any("Gavel LAS" in remark and "0.0 %" in remark for remark in found.remarks)


@pytest.mark.shared
def test_canonical_says_how_many_times_worse_the_others_are(context: MadeUpContext) -> None:
    found = BY_NAME["shockwave-canonical"].run(context)
    times = rows(found, "Times Shockwave's, as released")
    makespan, base = (
        context.known[CANONICAL_CASE.point(name)].metrics["makespan_s"]
        for name in ("las", RELEASED)
    )
    row = times["Gavel LAS: makespan"]
    assert row.ours == pytest.approx(makespan / base)
    assert row.published == pytest.approx(33208 / 24197)


@pytest.mark.shared
def test_canonical_charts_show_both(context: MadeUpContext) -> None:
    found = BY_NAME["shockwave-canonical"].run(context)
    charts = {chart.title: chart for chart in found.charts}
    ours, theirs = charts["Makespan"].series
    assert (ours.published, theirs.published) == (False, True)
    assert ours.name == theirs.name
    assert len(charts["Makespan"].categories) == len(ours.x) == len(ours.y) == len(theirs.y)
    assert theirs.y[-1] == CANONICAL["gandiva_fair"].makespan_s
    last = charts["Finish-time fairness"].series[-1]
    assert len(last.x) == 120
    assert last.y[-1] == 1.0
    assert (last.x <= 1.05).mean() == pytest.approx(1 - 0.517, abs=1e-3)


@pytest.mark.parametrize("name", BY_NAME)
def test_runs_that_fail_leave_gaps_and_say_why(name: str, tmp_path: Path) -> None:
    found = BY_NAME[name].run(MadeUpContext(tmp_path, failed))
    every = [row for table in found.tables for row in table.rows if row.what != "mean"]
    assert all(row.ours is None for row in every)
    assert any(row.remark == "las could not be run" for row in every)
    for chart in found.charts:
        assert all(s.published or np.isnan(s.y).all() for s in chart.series)


@pytest.mark.shared
def test_the_sizes_of_the_paper_have_the_jobs_that_it_describes(shared: Path) -> None:
    counts = {
        120: (92, 20, 8, 0),
        220: (160, 49, 9, 2),
        460: (310, 106, 40, 4),
        900: (617, 208, 63, 12),
    }
    modes = {120: (4, 59, 57), 220: (7, 106, 107), 460: (19, 214, 227), 900: (33, 448, 419)}
    last_s = {120: 5011, 220: 5956, 460: 4749, 900: 4400}
    for one in (CANONICAL_CASE, *SIZES):
        jobs = jobs_of(one)
        scales = Counter(arrival.job.scale_factor for arrival in jobs)
        assert tuple(scales[s] for s in (1, 2, 4, 8)) == counts[one.jobs]
        rules = Counter(str(a.job.adaptation.mode.value) for a in jobs if a.job.adaptation)
        assert tuple(rules[mode] for mode in ("static", "accordion", "gns")) == modes[one.jobs]
        assert jobs[-1].time_s == last_s[one.jobs]


@pytest.mark.shared
@pytest.mark.parametrize("one", [CANONICAL_CASE, SIZES[0], SIZES[2]], ids=lambda one: str(one.jobs))
def test_generated_jobs_equal_the_published_ones(one: TraceCase, shared: Path) -> None:
    (file,) = (shared / "data/shockwave/traces").glob(f"{one.jobs}_*")
    published = read_trace(
        file, read_throughputs(placed(one.point(OURS).input).throughputs)
    ).arrivals
    for mine, theirs in zip(jobs_of(one), published, strict=True):
        assert mine.time_s == theirs.time_s
        assert (mine.job.family, mine.job.scale_factor) == (
            theirs.job.family,
            theirs.job.scale_factor,
        )
        assert mine.job.total_steps == theirs.job.total_steps
        assert mine.job.adaptation == theirs.job.adaptation


def test_scale_has_one_setting_of_ours_and_the_released_ones(tmp_path: Path) -> None:
    context = MadeUpContext(tmp_path, told, "paper")
    found = BY_NAME["shockwave-scale"].run(context)
    policies = {
        (point.input.cluster, point.policy) for point in context.known if "shock" in point.policy
    }
    assert ("v100=64", "shockwave:released,k=10,power=5") in policies
    assert ("v100=256", "shockwave:released,k=100000,power=5") in policies
    assert {p for _, p in policies if "released" not in p} == {"shockwave"}
    beside = rows(found, "Makespan, 220 jobs on 64 devices")
    assert beside["Themis"].published == RERUN_64["themis"].makespan_s
    assert beside["Themis"].ours == 22_004
    gain = rows(found, "Fair schedulers over Shockwave")
    assert gain["256 devices, makespan, over Shockwave"].ours == 1.0
    assert found.charts[0].categories[2] == "900 jobs, 256 devices"
    small = BY_NAME["shockwave-scale"].run(MadeUpContext(tmp_path, told, "small"))
    assert len(small.charts[0].categories) == 2


def test_contention_counts_jobs_per_device_and_spreads_over_seeds(tmp_path: Path) -> None:
    context = MadeUpContext(tmp_path, told, "paper")
    found = BY_NAME["shockwave-contention"].run(context)
    assert len(context.known) == len(LABELS) * 8 * 5
    chart = found.charts[0]
    series = chart.series[0]
    assert series.x.tolist() == [1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]
    assert series.y.tolist() == [100 * round(x * DEVICES) + 2 for x in series.x]
    assert series.low is not None
    assert series.high is not None
    assert (series.high - series.low == 4).all()  # seeds 0 to 4
    assert rows(found, "Makespan, mean of the seeds")["Themis, 5 jobs per device"].ours == 7_002
    gains = rows(found, "Fair schedulers over Shockwave")
    assert gains["Worst rho, over Shockwave, 3 jobs per device"].ours == 1.0
    assert "not released" in found.remarks[0]


@pytest.mark.shared
def test_contention_draws_other_jobs_from_each_seed(shared: Path) -> None:
    first, other = jobs_of(case(2.5, 0)), jobs_of(case(2.5, 1))
    assert len(first) == len(other) == 35
    assert [a.job.family for a in first] != [a.job.family for a in other]
    assert max(a.job.scale_factor for a in first) <= DEVICES


@pytest.mark.shared
def test_fidelity_without_data_has_the_totals(context: MadeUpContext) -> None:
    found = BY_NAME["shockwave-fidelity"].run(context)
    error = rows(found, "Makespan: error of the simulation")
    assert error["mean"].published == pytest.approx(4.97, abs=0.005)
    assert rows(found, "Average JCT: error of the simulation")["mean"].published == pytest.approx(
        4.62, abs=0.005
    )
    ours = context.known[CANONICAL_CASE.point("mst")].metrics["makespan_s"]
    assert error["MST"].ours == pytest.approx(100 * (34701 / ours - 1))
    assert "Not compared job by job" in found.remarks[-1]


def written(context: MadeUpContext, folder: Path, factor: float) -> Path:
    """A file of jobs whose physical JCTs are ours times a factor."""
    parts = []
    for name, one in PHYSICAL.items():
        outcome = context.run([CANONICAL_CASE.point(name)])[0]
        jobs = pl.read_parquet(outcome.jobs).select("jct_s", ftf="rho_static", i="job")
        for kind, times in (("physical", factor), ("simulation", 2.0)):
            parts.append(
                jobs.with_columns(
                    pl.col("jct_s") * times,
                    pl.col("ftf") * times,
                    policy=pl.lit(one.file),
                    kind=pl.lit(kind),
                )
            )
    file = folder / FILE
    file.parent.mkdir(parents=True)
    pl.concat(parts).sample(fraction=1, shuffle=True, seed=1).write_csv(file)
    return file


@pytest.mark.shared
def test_fidelity_with_data_compares_job_by_job(context: MadeUpContext, tmp_path: Path) -> None:
    written(context, tmp_path, 1.25)
    found = BY_NAME["shockwave-fidelity"].run(
        MadeUpContext(context.folder, simulated, data=tmp_path, known=context.known)
    )
    off = rows(found, "JCT of each job: mean error of the simulation")
    assert off["AlloX"].ours == pytest.approx(25.0)
    assert off["AlloX"].published == pytest.approx(37.5)
    assert off["mean"].ours == pytest.approx(25.0)
    alike = rows(found, "JCT of each job: correlation with the physical one")
    assert alike["OSSP"].ours == pytest.approx(1.0)
    ours, real = found.charts[-1].series[:2]
    assert real.published
    assert real.x == pytest.approx(1.25 * ours.x)


@pytest.mark.shared
@pytest.mark.parametrize("spoilt", ["rows", "columns", "text", "absent"])
def test_a_spoilt_file_is_one_sentence(spoilt: str, context: MadeUpContext, tmp_path: Path) -> None:
    file = written(context, tmp_path, 1.0)
    table = pl.read_csv(file)
    match spoilt:
        case "rows":
            table.head(100).write_csv(file)
        case "columns":
            table.drop("jct_s").write_csv(file)
        case "text":
            table.with_columns(jct_s=pl.lit("soon")).write_csv(file)
        case _:
            file.unlink()
    other = MadeUpContext(context.folder, simulated, data=tmp_path, known=context.known)
    with pytest.raises(TraceError) as caught:
        BY_NAME["shockwave-fidelity"].run(other)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.shared
def test_fidelity_of_the_release_is_as_published(context: MadeUpContext, shared: Path) -> None:
    golden = json.loads((shared / "golden/shockwave/fidelity_tab3.json").read_text())
    found = BY_NAME["shockwave-fidelity"].run(
        MadeUpContext(context.folder, simulated, data=shared / "data", known=context.known)
    )
    off = rows(found, "JCT of each job: mean error of the simulation")
    alike = rows(found, "JCT of each job: correlation with the physical one")
    error = rows(found, "Average JCT: error of the simulation")
    for name, one in PHYSICAL.items():
        expected, label = golden[one.file], LABELS[name]
        assert error[label].published == pytest.approx(expected["jct_diff"], abs=2e-3)
        assert alike[label].published == pytest.approx(expected["perjob_corr"])
        # There, relative to the physical JCT or to the simulated one, as the release has it.
        assert off[label].published == pytest.approx(100 * expected["perjob_mean_abs"], rel=0.02)
    assert off["mean"].ours == pytest.approx(16.2, abs=0.1)


def test_a_cdf_ends_at_one() -> None:
    series = cdf("x", np.array([3.0, 1.0, 2.0, 2.0]))
    assert series.x.tolist() == [1, 2, 2, 3]
    assert series.y.tolist() == [0.25, 0.5, 0.75, 1]
    assert series.steps
