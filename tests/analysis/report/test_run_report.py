"""The HTML reports: well-formed, safe with any name, small, and whole without data."""

import html.parser
import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairlead.analysis.report.comparison_report import comparison_report
from fairlead.analysis.report.page import command
from fairlead.analysis.report.run_report import run_report

VOID = {"meta", "link", "br", "img", "input", "hr"}
NASTY = "</title><script>alert('x')</script> \"q\" & \x00 \U0001f680"
SIZES = {"k80": 6, "v100": 4}
CONFIG: dict[str, object] = {
    "policy": "max_min_fairness_perf", "profile": "default", "trace": "my traces/a.csv",
    "throughputs": "builtin", "cluster": SIZES, "round_s": 360.0, "seed": 7, "version": "0.1.0",
}  # fmt: skip


class Page(html.parser.HTMLParser):
    """Checks that every element is closed where it should be; keeps tags and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def table_of_jobs(n: int, **columns: Any) -> pl.DataFrame:
    arrival, took = np.linspace(0.0, 3600.0 * 20, n), 600.0 + np.arange(n) * 7919 % 36000
    known: dict[str, Any] = {
        "job": np.arange(n), "family": ["lm (batch size 20)"] * n, "scale_factor": np.ones(n, np.int64),
        "weight": np.ones(n), "tenant": [""] * n, "total_steps": took, "steps_done": took,
        "arrival_s": arrival, "start_s": arrival + 60, "end_s": arrival + took, "end": ["completed"] * n,
        "jct_s": took, "run_s": took - 60, "cost": took / 3600, "restarts": [0] * n, "moves": [0] * n,
        "restart_lost_s": [0.0] * n, "rho_isolated": took / 9000, "rho_static": took / 18000,
        "slo_s": pl.Series([None] * n, dtype=pl.Float64),
    }  # fmt: skip
    return pl.DataFrame(known | columns)


def table_of_rounds(n: int, sizes: dict[str, int]) -> pl.DataFrame:
    at = np.arange(n)
    known = {"round": at, "time_s": at * 360.0, "seconds": np.full(n, 360.0), "active": 5 + at % 9,
             "running": 3 + at % 5, "started": at % 2, "preempted": at % 2, "moved": at % 2,
             "solved": at % 3 == 0}  # fmt: skip
    busy = {f"busy_{name}": 360.0 * size * (at % 4) / 4 for name, size in sizes.items()}
    capacity = {f"capacity_{name}": np.full(n, size) for name, size in sizes.items()}
    return pl.DataFrame(known | busy | capacity)


def table_of_intervals(n: int, jobs: int, rounds: int, sizes: dict[str, int]) -> pl.DataFrame:
    at = np.arange(n)
    first = dict(
        zip(sorted(sizes), np.cumsum([0, *(sizes[s] for s in sorted(sizes))]), strict=False)
    )
    names = np.array(sorted(sizes))[at % len(sizes)]
    device = [
        int(first[name]) + int(i) % sizes[name] for i, name in zip(at * 31, names, strict=True)
    ]
    start = at * 13 % max(rounds - 2, 1) * 360.0
    frame = {"job": at % jobs, "accelerator": names, "device": device, "start_s": start,
             "end_s": start + 360.0 * (1 + at % 3)}  # fmt: skip
    return pl.DataFrame(frame).select(
        "job", pl.lit(None, pl.Int64).alias("partner"), "accelerator",
        pl.concat_list("device").alias("devices"), "start_s", "end_s",
    )  # fmt: skip


def metrics_of(jobs: pl.DataFrame) -> dict[str, object]:
    jct = jobs["jct_s"].drop_nulls().to_numpy()
    share = {
        "mean": 0.9,
        "max": 1.7,
        "p50": 0.8,
        "unfair_1": 0.2,
        "unfair_1_05": 0.1,
        "unfair_1_1": 0.05,
    }
    return {
        "makespan_s": 80000.0, "avg_jct_s": float(jct.mean()), "jct_percentiles_s": {"p50": 1e4, "p99": 3e4},
        "avg_jct_by_scale_s": {"1": 1e4, "2": 2e4}, "avg_queueing_delay_s": 60.0, "utilization": 0.873,
        "utilization_by_type": {"k80": 0.8, "v100": 0.95}, "cost": 123.456,
        "rho": {"isolated": share, "static": share},
        "preemptions": 3, "n_jobs": jobs.height, "n_completed": jobs.height, "cpu_s": 0.5,
    }  # fmt: skip


def report(jobs: pl.DataFrame, **metrics: object) -> str:
    rounds = table_of_rounds(300, SIZES)
    known = metrics_of(jobs) | metrics
    return run_report(CONFIG, known, jobs, rounds, table_of_intervals(800, jobs.height, 300, SIZES))


def test_a_run_report_is_one_balanced_page_that_needs_no_network() -> None:
    page = Page(report(table_of_jobs(50)))
    assert page.links == ["data:,"]
    assert page.tags.count("svg") >= 6
    for words in ("87.3 %", "$123.46", "50 of 50", "22.2 h", "1.70", "Close-up", "k80: 6 devices"):
        assert words in page.text


def test_names_are_text_and_never_markup() -> None:
    jobs = table_of_jobs(8, family=[NASTY] * 8, tenant=["<i>"] * 8)
    config = CONFIG | {"policy": NASTY, "trace": NASTY, NASTY: NASTY + "\ud800"}
    rounds, intervals = table_of_rounds(20, SIZES), table_of_intervals(40, 8, 20, SIZES)
    text = run_report(config, metrics_of(jobs), jobs, rounds, intervals)
    page = Page(text)
    text.encode("utf-8")
    assert page.tags.count("script") == 1
    assert "i" not in page.tags
    assert "</title><script>alert('x')</script> \"q\" &" in page.text
    other = comparison_report([(NASTY, config, metrics_of(jobs), jobs, rounds)] * 2)
    assert Page(other).tags.count("script") == 1


def test_without_rounds_intervals_or_completed_jobs_there_is_still_a_page() -> None:
    waiting = table_of_jobs(3).with_columns(
        pl.lit(None, pl.Float64).alias(name) for name in ("jct_s", "start_s", "end_s", "rho_isolated")
    )  # fmt: skip
    rounds, intervals = (
        table_of_rounds(0, SIZES),
        table_of_intervals(40, 3, 20, SIZES).head(0),
    )
    for jobs in (waiting, waiting.head(0), pl.DataFrame()):
        for config in (CONFIG, {}):
            page = Page(run_report(config, {}, jobs, rounds, intervals))
            assert "No job has completed." in page.text
            assert "No round was run." in page.text
    assert "No job has completed." in Page(comparison_report([("a", {}, {}, waiting, rounds)])).text
    Page(comparison_report([]))


@pytest.mark.parametrize("missing", [None, math.nan, math.inf, "n/a"])
def test_a_number_that_is_missing_shows_as_a_dash(missing: object) -> None:
    text = report(
        table_of_jobs(5), makespan_s=missing, rho=missing, utilization_by_type={"k80": missing}
    )
    page = Page(text)
    assert "<b>-</b><span>Makespan</span>" in text
    assert "<b>-</b><span>Worst rho (isolated)</span>" in text
    assert "nan" not in page.text.lower().split()


def test_a_hundred_thousand_jobs_make_a_page_of_a_few_megabytes() -> None:
    sizes = {f"gpu{i}": 1000 for i in range(10)}
    jobs = table_of_jobs(100_000)
    intervals = table_of_intervals(300_000, 100_000, 10_000, sizes)
    text = run_report(
        CONFIG | {"cluster": sizes}, {}, jobs, table_of_rounds(10_000, sizes), intervals
    )
    assert len(text.encode()) < 4_000_000
    assert "The 500 worst of 100,000 jobs" in text
    assert "gpu3: 1,000 devices, the first 9 shown" in text


def test_a_full_timeline_stays_within_its_size() -> None:
    """Every device changes its job at every column of pixels: the most that there can be."""
    n, rounds = 96, 1200
    intervals = pl.DataFrame(
        {
            "job": np.arange(n * rounds) % 5000,
            "partner": pl.Series([None] * (n * rounds), dtype=pl.Int64),
            "accelerator": ["v100"] * (n * rounds),
            "devices": np.arange(n * rounds)[:, None] % n,
            "start_s": np.arange(n * rounds) // n * 360.0,
            "end_s": (np.arange(n * rounds) // n + 1) * 360.0,
        }
    ).with_columns(pl.col("devices").arr.to_list())
    sizes = {"v100": n}
    jobs = table_of_jobs(5000)
    text = run_report(
        CONFIG | {"cluster": sizes}, {}, jobs, table_of_rounds(rounds, sizes), intervals
    )
    assert len(text.encode()) < 4_000_000


def test_the_worst_jobs_are_those_that_did_not_complete_and_the_slowest() -> None:
    jobs = table_of_jobs(1000).with_columns(
        end=pl.when(pl.col("job") < 3).then(pl.lit("dropped")).otherwise(pl.lit("completed"))
    )
    slowest = jobs.filter(pl.col("job") >= 3).sort("jct_s")["job"].to_list()
    text = report(jobs)
    assert text.count(">dropped</td>") == 3
    assert f'<td class="n" data-v="{slowest[-1]}">' in text
    assert f'<td class="n" data-v="{slowest[0]}">' not in text


def test_a_comparison_marks_the_best_and_says_how_far_the_others_are() -> None:
    jobs, rounds = table_of_jobs(30), table_of_rounds(40, SIZES)
    fast = metrics_of(jobs) | {"makespan_s": 72000.0}
    slow = metrics_of(jobs) | {"makespan_s": 90000.0}
    text = comparison_report(
        [
            ("las", CONFIG, fast, jobs, rounds),
            ("fifo", CONFIG | {"policy": "fifo"}, slow, jobs, rounds),
        ]
    )
    Page(text)
    assert '<td class="n best">20.00 ★</td><td class="n">25.00<small>+25.0 %</small></td>' in text
    assert "--policy max_min_fairness_perf --policy fifo" in text
    assert "did not complete the same number" not in text


def test_a_run_report_tells_who_was_treated_unfairly() -> None:
    mode = ["gns", "static", None, "gns"]
    rho = [0.5, 1.02, 1.5, 1.07]
    jobs = table_of_jobs(4, rho_static=rho, mode=mode, scale_factor=[1, 1, 2, 2])
    text = Page(report(jobs)).text
    for words in ("75.0 % above 1", "50.0 % above 1.05", "25.0 % above 1.1"):
        assert words in text
    assert "gns: 1.070" in text
    assert "2 devices: 1.500" in text
    rho_of_window: dict[str, object] = {"rho": {"isolated": {"max": 1.0}}}
    assert "static rho" not in Page(report(jobs, **rho_of_window)).text


def test_jobs_that_adapt_show_how() -> None:
    jobs = table_of_jobs(
        2, mode=["static", "gns"], batch_sizes=[None, "0:16;31:32"], rho_themis=[2.5, 1.0]
    )
    text = report(jobs)
    assert '<td class="name">16, 32 from 31</td>' in text
    assert "Rho, Themis" in text
    assert "Batch size from epoch" not in report(table_of_jobs(2))


def test_a_comparison_relates_the_runs_to_one_of_them() -> None:
    jobs, rounds = table_of_jobs(30), table_of_rounds(40, SIZES)
    ours = metrics_of(jobs) | {"makespan_s": 72000.0}
    other = metrics_of(jobs) | {"makespan_s": 90000.0}
    runs = [(NASTY, CONFIG, other, jobs, rounds), ("ours<", CONFIG, ours, jobs, rounds)]
    page = Page(comparison_report(runs, reference=1))
    assert "Relative to ours<" in page.text
    assert "1.25×" in page.text
    assert page.tags.count("script") == 1
    assert "RelativeMetric to" not in Page(comparison_report(runs)).text


def test_a_comparison_of_unequal_runs_says_so() -> None:
    jobs, rounds = table_of_jobs(30), table_of_rounds(40, SIZES)
    other = metrics_of(jobs) | {"n_completed": 29}
    runs = [("a", CONFIG, metrics_of(jobs), jobs, rounds), ("b", CONFIG, other, jobs, rounds)]
    assert "Completed: a 30, b 29." in comparison_report(runs)
    within = [(label, CONFIG | {"window": [5, 20]}, *rest) for label, _, *rest in runs]
    assert "did not complete" not in comparison_report(within)  # type: ignore[arg-type]


def test_the_command_repeats_the_run() -> None:
    assert command([CONFIG | {"window": [10, 20]}], "simulate") == (
        "fairlead simulate --trace 'my traces/a.csv' --throughputs builtin --cluster k80=6,v100=4 "
        "--policy max_min_fairness_perf --profile default --round 360 --seed 7 --window 10:20"
    )
