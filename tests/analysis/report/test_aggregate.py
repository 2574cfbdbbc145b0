"""Down-sampling keeps totals, and shows what is there."""

import numpy as np
import polars as pl
import pytest

from fairlead.analysis.report.aggregate import over_time, timeline
from fairlead.analysis.report.picture_data import step_line_of
from fairlead.analysis.report.report_figures import cdf, device_timeline


def rounds(start_s: list[float], seconds: list[float], busy: list[float]) -> pl.DataFrame:
    n = len(start_s)
    columns = {"time_s": start_s, "seconds": seconds, "active": [4] * n, "running": [2] * n}
    return pl.DataFrame(columns | {"busy_v100": busy, "capacity_v100": [2] * n})


def intervals(*rows: tuple[int, int | None, list[int], float, float]) -> pl.DataFrame:
    schema = pl.Schema({
        "job": pl.Int64(), "partner": pl.Int64(), "accelerator": pl.String(),
        "devices": pl.List(pl.Int64()), "start_s": pl.Float64(), "end_s": pl.Float64(),
    })  # fmt: skip
    named = [(job, other, "v100", devices, start, end) for job, other, devices, start, end in rows]
    return pl.DataFrame(named, schema=schema, orient="row")


def test_a_bin_is_a_round_where_rounds_are_few_and_gaps_are_idle() -> None:
    over = over_time(rounds([0.0, 100.0, 300.0], [100.0, 100.0, 50.0], [200.0, 100.0, 100.0]))
    assert over is not None
    assert over.edges_s.tolist() == [0.0, 100.0, 200.0, 300.0, 350.0]
    assert over.active.tolist() == [4.0, 4.0, 0.0, 4.0]
    assert over.utilization["v100"].tolist() == [1.0, 0.5, 0.0, 1.0]


def test_bins_of_many_rounds_keep_the_total() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.uniform(1.0, 360.0, 5000)
    start = np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
    busy = rng.uniform(0.0, 2.0, 5000) * seconds
    over = over_time(rounds(start.tolist(), seconds.tolist(), busy.tolist()), max_bins=100)
    assert over is not None
    assert over.edges_s.size == 101
    got = (over.utilization["v100"] * 2 * np.diff(over.edges_s)).sum()
    assert got == pytest.approx(busy.sum())


def test_a_timeline_merges_touching_intervals_and_drops_what_covers_no_column() -> None:
    frame = intervals((1, None, [0, 1], 0, 50), (1, None, [0, 1], 50, 60), (2, None, [0], 60.6, 60.9),
                   (3, None, [1], 70, 100))  # fmt: skip
    shown = timeline(frame, {"v100": 2}, (0.0, 100.0), columns=10)
    assert shown is not None
    assert shown.groups == (("v100", 2, 2),)
    assert shown.bars.select("job", "row", "first", "last").rows() == [
        (1, 0, 0, 6), (1, 1, 0, 6), (3, 1, 7, 10),
    ]  # fmt: skip


@pytest.mark.parametrize("both", [False, True])
def test_a_packed_pair_shares_its_row_whether_listed_once_or_twice(both: bool) -> None:
    rows = [(7, 4, [0], 0.0, 10.0), (4, 7, [0], 0.0, 10.0)]
    shown = timeline(intervals(*rows[: 1 + both]), {"v100": 1}, (0.0, 10.0), columns=10)
    assert shown is not None
    assert shown.bars.select("job", "half").sort("job").rows() == [(4, 1), (7, 2)]


def test_a_timeline_shows_the_first_devices_of_each_type_and_says_how_many_there_are() -> None:
    frame = intervals((1, None, [40], 0, 10))
    shown = timeline(frame, {"k80": 40, "v100": 2}, (0.0, 10.0), max_rows=10)
    assert shown is not None
    assert shown.groups == (("k80", 8, 40), ("v100", 2, 2))
    assert shown.rows[-2:] == (("v100", 40), ("v100", 41))
    assert "k80: 40 devices, the first 8 shown" in device_timeline(shown, {1: "job 1"}, "")


def test_a_timeline_knows_devices_that_no_size_was_given_for() -> None:
    shown = timeline(intervals((1, None, [7, 3], 0, 10)), {}, (0.0, 10.0))
    assert shown is not None
    assert shown.rows == (("v100", 3), ("v100", 7))


def test_a_long_sample_keeps_its_ends() -> None:
    values, share = step_line_of(np.arange(10_000.0), most=50)
    assert (values[0], values[-1], share[-1], values.size) == (0.0, 9999.0, 1.0, 50)


def test_a_heavy_tail_is_drawn_on_a_logarithmic_axis_and_zeros_do_no_harm() -> None:
    assert "logarithmic" in cdf([("a", np.array([1.0, 2.0, 3.0, 5000.0]))], "time")
    assert "logarithmic" not in cdf([("a", np.array([0.0, 2.0, 3.0, 5000.0]))], "time")
    assert "<svg" in cdf([("a", np.array([0.0, 0.0]))], "time")
