"""What the figures and the page of a sweep show."""

from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
from rich.console import Console
from tests.analysis.report.test_run_report import Page

from fairlead.analysis.experiments.point import PointResult, Status
from fairlead.analysis.experiments.sweep import (
    PARTIAL_MEANS,
    Axis,
    Spec,
    SweepCell,
    SweepResult,
    summarise,
)
from fairlead.analysis.experiments.sweep_charts import (
    Swept,
    confidence_half_width,
    curves,
    shared_load,
    sweep_charts,
)
from fairlead.analysis.experiments.sweep_page import sweep_report
from fairlead.analysis.report.figure_style import SeedInterval
from fairlead.cli.sweep import summary_table
from fairlead.errors import ConfigError

WHY = "the queue grew without bound"


def swept(
    folder: Path,
    policies: tuple[str, ...] = ("fifo", "las"),
    loads: tuple[float, ...] = (1.0, 2.0, 3.0),
    seeds: int = 2,
    axis: Axis = "rates",
) -> Swept:
    """The JCT is hours of load x (seed + 1), ten times as many for the first policy; its last load
    diverges with the last seed."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = Spec(policies, seeds=tuple(range(seeds)), axis=axis, loads=loads)
    cells = []
    for line in spec.lines():
        for load in loads or (None,):
            for seed in spec.seeds:
                point = spec.point(line, load, seed)
                if line == policies[0] and loads and load == loads[-1] and seed == seeds - 1:
                    cells.append(
                        SweepCell(line, load, seed, PointResult(point, Status.DIVERGED, {}, WHY))
                    )
                    continue
                jct_s = 3600 * (load or 1.0) * (seed + 1) * (10 if line == policies[0] else 1)
                metrics = {"avg_jct_s": jct_s, "utilization": 0.5, "n_jobs": 10, "preemptions": 20,
                           "rho": {"isolated": {"mean": 0.7, "max": 2.0}}}  # fmt: skip
                name = f"{line}-{load}-{seed}.parquet"
                pl.DataFrame({"jct_s": [jct_s, 3 * jct_s]}).write_parquet(folder / name)
                cells.append(
                    SweepCell(
                        line, load, seed, PointResult(point, Status.COMPLETE, metrics, jobs=name)
                    )
                )
    lines = tuple(line for line, _ in spec.lines().values())
    return Swept(folder, SweepResult("0.1.0", spec, lines, tuple(cells)))


def test_a_curve_is_the_mean_of_the_seeds_between_least_and_greatest(tmp_path: Path) -> None:
    ((_, chart),) = sweep_charts([swept(tmp_path)], "jct-load")
    fifo, las = chart.series
    assert chart.x_label == "Jobs per hour"
    assert chart.y_label == "Average JCT (h)"
    assert las.y.tolist() == pytest.approx([1.5, 3.0, 4.5])
    assert las.low is not None
    assert las.high is not None
    assert las.low.tolist() == pytest.approx([1, 2, 3])
    assert las.high.tolist() == pytest.approx([2, 4, 6])
    assert np.isnan(fifo.y[2])  # a seed of it diverged
    assert chart.y_max == pytest.approx(8 * 1.5)


def test_error_bars_can_be_confidence_intervals(tmp_path: Path) -> None:
    one = swept(tmp_path)
    ((_, chart),) = sweep_charts([one], "jct-load", interval=SeedInterval.CONFIDENCE)
    las = chart.series[1]
    assert las.low is not None
    assert las.high is not None
    half = 12.706205 * 0.5  # t with one degree of freedom, times the standard error of 1 and 2
    assert (las.y - las.low).tolist() == pytest.approx([half, 2 * half, 3 * half])
    assert (las.high - las.y).tolist() == pytest.approx([half, 2 * half, 3 * half])
    values = np.array([1.0, 2.0, 4.0, 7.0])
    student = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert confidence_half_width(values) == pytest.approx((student.high - student.low) / 2)
    assert np.isnan(confidence_half_width(values[:1]))


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    one = swept(tmp_path)
    ((_, chart),) = sweep_charts([one], "jct-load", relative_to="las")
    (fifo,) = chart.series
    assert fifo.name == "fifo"
    assert chart.y_label == "Average JCT less that of las (h)"
    assert fifo.y[:2].tolist() == pytest.approx([13.5, 27.0])  # 9 and 18 h, of the two seeds
    assert np.isnan(fifo.y[2])  # a seed of it diverged
    assert fifo.low is not None
    assert fifo.y[0] - fifo.low[0] == pytest.approx(12.706205 * 4.5)
    with pytest.raises(ConfigError, match="'gavel' is not a line of the sweep"):
        sweep_charts([one], relative_to="gavel")


def test_one_seed_has_no_error_bars(tmp_path: Path) -> None:
    ((_, chart),) = sweep_charts([swept(tmp_path, seeds=1)], "jct-load")
    assert all(series.low is None for series in chart.series)


def test_distributions_are_at_the_highest_load_that_all_lines_sustain(tmp_path: Path) -> None:
    one = swept(tmp_path)
    assert shared_load(curves([one])) == 2.0
    ((_, chart),) = sweep_charts([one], "jct")
    assert chart.title == "Job completion time at 2 jobs per hour"
    last = chart.series[1]
    assert sorted(set(last.x[:-1].round(6))) == [2.0, 4.0, 6.0, 12.0]  # h: jobs of both seeds


def test_without_loads_there_are_bars(tmp_path: Path) -> None:
    one = swept(tmp_path, ("a", "b"), loads=(), axis="none")
    ((_, chart),) = sweep_charts([one], "jct-load")
    assert chart.kind == "bars"
    assert chart.categories == ("a", "b")
    assert chart.series[0].y.tolist() == pytest.approx([15.0, 1.5])
    assert "All numbers side by side" in sweep_report([one])


def test_numbers_that_nobody_has_make_no_figure(tmp_path: Path) -> None:
    names = [name for name, _ in sweep_charts([swept(tmp_path)])]
    assert names == [
        "jct-load",
        "rho-load",
        "worst-rho-load",
        "utilisation-load",
        "preemptions-load",
        "jct",
    ]


def test_several_sweeps_share_figures_if_their_loads_are_of_one_kind(tmp_path: Path) -> None:
    first, second = swept(tmp_path / "a"), swept(tmp_path / "b", ("las", "allox"))
    ((_, chart),) = sweep_charts([first, second], "jct-load")
    assert chart.names == ("a: fifo", "a: las", "b: las", "b: allox")
    other = swept(tmp_path / "c", loads=(100.0,), axis="jobs")
    with pytest.raises(ConfigError, match="cannot share figures: their loads are rates and jobs"):
        sweep_charts([first, other])


def test_the_page_tells_what_is_sustained_and_what_is_missing(tmp_path: Path) -> None:
    text = sweep_report([swept(tmp_path / "las <against> fifo")])
    page = Page(text)
    assert page.links == ["data:,"]
    assert "12 points: 11 complete, 1 diverged" in page.text
    assert "Sweep las <against> fifo" in page.text
    assert WHY in page.text
    assert page.tags.count("script") == 1
    assert text.count("data-table=") == 2


def test_means_over_some_of_the_seeds_are_marked(tmp_path: Path) -> None:
    """At its last load, one of two seeds of fifo has diverged."""
    made = swept(tmp_path)
    text = Page(sweep_report([made])).text
    assert "fifo *" in text
    assert "las *" not in text
    assert f"* {PARTIAL_MEANS}" in text
    wide = Console(width=200, file=StringIO())
    wide.print(summary_table(made.result, summarise(made.result)))
    rows = wide.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [row.count("*") for row in rows if "1 diverged" in row] == [4]
    assert sum(row.count("*") for row in rows) == 4


def test_hundreds_of_points_make_a_page_that_can_be_mailed(tmp_path: Path) -> None:
    many = swept(tmp_path, tuple(f"policy{i}" for i in range(8)), tuple(np.arange(1.0, 21.0)), 5)
    assert len(many.result.cells) == 800
    assert len(sweep_report([many]).encode()) < 2_000_000
