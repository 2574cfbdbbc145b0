"""What runs show beside their completion times: shares, lost work, fragmentation, cost."""

import base64
import gzip
import json

import numpy as np
import polars as pl
import pytest
from tests.analysis.report.test_run_report import (
    CONFIG,
    SIZES,
    metrics_of,
    table_of_jobs,
    table_of_rounds,
)
from tests.small import job, run

from fairlead.analysis.report.aggregate import over_time
from fairlead.analysis.report.downloads import (
    chart_table,
    compressed,
    metric_table,
)
from fairlead.analysis.report.fair_share import fair_share_s, received_s
from fairlead.analysis.report.run_charts import (
    RUN_FIGURES,
    PlottedRun,
    run_charts,
)
from fairlead.model.job import RestartCosts
from fairlead.simulator.ground_truth import GroundTruth


def some_run(label: str = "las", **columns: object) -> PlottedRun:
    jobs = table_of_jobs(40, **columns)
    config = CONFIG | {"prices": {"k80": 0.5, "v100": 2.0}}
    return PlottedRun(label, config, metrics_of(jobs), jobs, table_of_rounds(300, SIZES))


def test_an_equal_split_goes_by_weight_and_ends_at_what_a_job_can_use() -> None:
    rounds = pl.DataFrame({"time_s": [0.0, 50.0], "seconds": [50.0, 50.0], "capacity_a": [4, 2]})
    rounds = rounds.with_columns(busy_a=0.0)
    jobs = table_of_jobs(
        3, arrival_s=[0.0, 0.0, 50.0], end_s=[100.0, 50.0, None], weight=[3.0, 1.0, 1.0],
        scale_factor=[4, 4, 1], tenant=[""] * 3, run_s=[10.0, 20.0, 30.0],
    )  # fmt: skip
    # Until 50 s: 4 devices, 3:1. Then 2 devices, 3:1, so 1.5 and 0.5.
    due = fair_share_s(jobs, rounds)
    assert due is not None
    assert due.tolist() == pytest.approx([3 * 50 + 1.5 * 50, 50, 25])
    assert received_s(jobs).to_list() == [40.0, 80.0, 30.0]
    alone = fair_share_s(jobs.head(1).with_columns(scale_factor=1), rounds)
    assert alone is not None
    assert alone.tolist() == pytest.approx([100.0])


def test_the_recorder_keeps_what_the_policy_promised() -> None:
    """Two equal jobs on one device: each is promised half of it, then the other all of it."""
    result = run([job(0, 0.0, 36000.0), job(1, 0.0, 72000.0)], policy="las")
    jobs = result.jobs
    assert jobs["target_run_s"].to_list() == pytest.approx(jobs["run_s"].to_list(), abs=400)
    assert jobs["target_run_s"].sum() == pytest.approx(jobs["end_s"].max(), rel=0.02)
    assert run([job(0, 0.0, 3600.0)], policy="tiresias").jobs["target_run_s"].to_list() == [None]
    waits = result.rounds.filter(pl.col("running") > 0)
    assert (waits["waiting"] == waits["active"] - 1).all()


def test_lost_work_counts_starts_on_all_devices_of_a_job() -> None:
    ground_truth = GroundTruth(RestartCosts(90.0, {}))
    jobs = [job(i, 0.0, 72000.0, devices=2) for i in range(2)]
    result = run(jobs, fast=2, ground_truth=ground_truth, policy="las")
    assert result.jobs["restarts"].sum() > 0
    assert result.rounds["lost_s"].sum() == 2 * result.jobs["restart_lost_s"].sum() > 0


def test_lost_work_counts_rounds_that_a_failed_node_undid() -> None:
    ground_truth = GroundTruth(mtbf_s=40_000.0, mttr_s=600.0, seed=3)
    rounds = run([job(0, 0.0, 720_000.0)], ground_truth=ground_truth).rounds
    assert 0 < rounds["lost_s"].sum() < rounds["busy_fast"].sum()
    assert (rounds["lost_s"] <= rounds["busy_fast"] + 1e-9).all()


def test_idle_devices_are_stranded_only_while_jobs_wait() -> None:
    rounds = pl.DataFrame(
        {
            "time_s": [0.0, 100.0], "seconds": [100.0, 100.0], "active": [3, 1], "running": [1, 1],
            "waiting": [2, 0], "busy_a": [100.0, 100.0], "capacity_a": [4, 4], "lost_s": [30.0, 0.0],
            "spread_s": [50.0, 0.0], "preempted": [2, 1],
        }
    )  # fmt: skip
    over = over_time(rounds)
    assert over is not None
    assert over.stranded.tolist() == [0.75, 0.0]
    assert over.busy.tolist() == [0.25, 0.25]
    assert over.scattered.tolist() == [0.5, 0.0]
    assert over.lost_s.tolist() == [30.0, 0.0]
    assert over.preempted.tolist() == [2.0, 1.0]


def test_runs_keep_their_colours_where_one_has_nothing_to_show() -> None:
    promised = 2 * table_of_jobs(40)["run_s"]
    runs = [some_run("fifo"), some_run("las", target_run_s=promised)]
    ((_, chart),) = run_charts(runs, "promised")
    assert chart.names == ("fifo", "las")
    assert chart.legend_entries == (("las", 1, False),)
    assert chart.series[1].x[0] == pytest.approx(0.5)


def test_cost_is_device_time_at_its_price() -> None:
    one = some_run()
    ((_, chart),) = run_charts([one], "cost")
    k80, v100 = (float(one.rounds[f"busy_{name}"].sum()) / 3600 for name in ("k80", "v100"))
    assert chart.categories == ("k80", "v100", "all")
    assert chart.series[0].y.tolist() == pytest.approx([k80 / 2, 2 * v100, k80 / 2 + 2 * v100])


def test_tenants_are_shown_where_there_are_several() -> None:
    assert run_charts([some_run()], "tenants") == []
    ((_, chart),) = run_charts([some_run(tenant=["a", "b"] * 20)], "tenants")
    assert chart.categories == ("a", "b")
    assert [series.name for series in chart.series] == ["promised", "las"]
    for series in chart.series:
        assert series.y.sum() == pytest.approx(100.0)


def test_every_figure_can_be_made_of_one_run_and_of_eight() -> None:
    more = {"tenant": ["a", "b"] * 20, "target_run_s": np.full(40, 9e3)}
    for n in (1, 8):
        runs = [some_run(f"p{i}", **more) for i in range(n)]
        names = [name for name, _ in run_charts(runs)]
        assert set(names) == {figure.name for figure in RUN_FIGURES} - {"scattered", "lost-work"}
    empty = PlottedRun("x", {}, {}, pl.DataFrame(), pl.DataFrame())
    assert run_charts([empty]) == []


def test_tables_in_pages_are_small_and_whole() -> None:
    table = pl.DataFrame({"a": [1.23456789, None], "b": ["x", '"<']})
    text = compressed(table)
    assert text == compressed(table)
    back = json.loads(gzip.decompress(base64.b64decode(text)))
    assert back == {"a": [1.234568, None], "b": ["x", '"<']}
    flat = metric_table(
        [({"run": "a"}, {"rho": {"max": 2.0}, "x": None}), ({"run": "b"}, {"x": 3})]
    )
    assert flat.rows(named=True) == [
        {"run": "a", "rho.max": 2.0, "x": None}, {"run": "b", "rho.max": None, "x": 3.0},
    ]  # fmt: skip
    points = chart_table(run_charts([some_run()], "jct", "cost"))
    assert points.columns == ["figure", "series", "published", "category", "x", "y", "low", "high"]
    assert points.filter(figure="cost")["category"].to_list() == ["k80", "v100", "all"]
