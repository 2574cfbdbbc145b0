"""Gavel's continuous experiments: which points they are, and what is made of outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
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
from fairlead.analysis.experiments.published import (
    gavel_continuous,
    gavel_cost,
    gavel_jct_numbers,
    gavel_rounds,
    gavel_share,
)
from fairlead.analysis.experiments.published.gavel_continuous import LAS_SINGLE, mean_rho
from fairlead.analysis.experiments.published.gavel_curves import (
    CurveLine,
    LoadCurve,
    Loads,
    marks,
    sustained,
)
from fairlead.errors import ConfigError
from fairlead.simulator.simulation_input import SimulationInput


@dataclass
class MadeUpContext:
    """A workbench that makes outcomes up, or runs points here."""

    of: Callable[[Point], PointResult]
    folder: Path
    scale: Scale = "small"

    def __post_init__(self) -> None:
        self.known: dict[str, PointResult] = {}
        self.asked: list[Point] = []

    def run(self, points: Sequence[Point]) -> list[PointResult]:
        self.asked += points
        for point in points:
            if point.key("") not in self.known:
                self.known[point.key("")] = self.of(point)
        return [self.known[point.key("")] for point in points]

    def shared(self, name: str) -> Path:
        raise ConfigError(name)

    @property
    def points(self) -> list[Point]:
        """Each once."""
        return list({point.key(""): point for point in self.asked}.values())


def rate_of(point: Point) -> float:
    assert point.input.generate is not None
    (part,) = [p for p in point.input.generate.split(",") if p.startswith("interarrival=")]
    return round(3600 / float(part.removeprefix("interarrival=")), 6)


def made_up(point: Point, **metrics: Any) -> PointResult:
    return PointResult(point, Status.COMPLETE, metrics)


def plain(point: Point) -> PointResult:
    """20 hours, the seed's number of hours more, half of that for aware policies."""
    hours = 20.0 + point.input.seed
    hours = hours / 2 if point.policy.endswith(("aware", "packed")) else hours
    return made_up(point, avg_jct_s=3600 * hours, makespan_s=3600 * hours)


def gone_at_5(point: Point) -> PointResult:
    """As plain, but agnostic ones take 50 h from 4.8 jobs/h on and diverge above 5, with seed 1."""
    if point.policy == "las" and rate_of(point) > 5 and point.input.seed == 1:
        return PointResult(point, Status.DIVERGED, {}, "1,200 jobs wait")
    if point.policy == "las" and rate_of(point) > 4.7:
        return made_up(point, avg_jct_s=3600 * 50.0)
    return plain(point)


def row(found: Findings, table: str, what: str) -> FindingRow:
    (one,) = [r for t in found.tables if t.title.endswith(table) for r in t.rows if r.what == what]
    return one


def test_the_papers_points_of_figure_8(tmp_path: Path) -> None:
    context = MadeUpContext(plain, tmp_path, "paper")
    gavel_continuous.las_single(context)
    curves = [p for p in context.points if p.input.solve_interval_s is None]
    released = [p for p in curves if p.profile == "gavel"]
    assert {p.policy for p in released} == {"las", "gandiva", "allox", "las_aware", "las_packed"}
    assert len(released) == 5 * 15 * 3
    assert sorted({rate_of(p) for p in released}) == [round(0.4 * k, 6) for k in range(1, 16)]
    assert {p.input.seed for p in curves} == {0, 1, 2}
    assert {p.input.cluster for p in context.points} == {"v100=36,p100=36,k80=36"}
    assert {p.input.window for p in context.points} == {"4000:5000"}
    assert {p.policy for p in curves if p.profile == "default"} == {
        "las",
        "las_aware",
        "las_packed",
    }
    at_once = [p for p in context.points if p.input.solve_interval_s == 0]
    assert len(at_once) == sum(len(known) for known in gavel_jct_numbers.LAS_SINGLE.values())
    assert {p.input.seed for p in at_once} == {0}


def test_several_devices_up_to_3_jobs_an_hour(tmp_path: Path) -> None:
    context = MadeUpContext(plain, tmp_path, "paper")
    gavel_continuous.las_multi(context)
    assert sorted({rate_of(p) for p in context.points}) == [0.2, 1.0, 2.0, 2.4, 2.6, 2.8, 3.0]
    assert all("multi-gpu" in (p.input.generate or "") for p in context.points)


@pytest.mark.parametrize(
    "reproduction",
    [
        one
        for module in (gavel_continuous, gavel_rounds, gavel_share, gavel_cost)
        for one in module.REPRODUCTIONS
    ],
    ids=lambda one: one.name,
)
def test_small_is_small_and_says_so(reproduction: Any, tmp_path: Path) -> None:
    def of(point: Point) -> PointResult:
        return replace(plain(point), metrics=plain(point).metrics | COSTS)

    context = MadeUpContext(of, tmp_path)
    found = reproduction.run(context)
    assert len(context.points) <= 40
    assert {p.input.seed for p in context.points} == {0}
    for point in context.points:
        if point.input.window is not None:
            assert int(point.input.window.split(":")[1]) <= 1300
    assert any("mall scale" in remark or "150 jobs" in remark for remark in found.remarks)
    assert found.tables
    assert found.charts


COSTS = {"cost": 10.0, "slo_jobs": 4, "slo_violations": 1}


def test_ratios_and_sustainable_rates_of_made_up_outcomes(tmp_path: Path) -> None:
    found = gavel_continuous.las_single(MadeUpContext(gone_at_5, tmp_path, "paper"))
    near = row(found, "ratios near saturation", "LAS over Gavel at 4 jobs/h, seed 0")
    assert near.ours == 2.0
    assert near.published == pytest.approx(23.49 / 16.82)
    assert row(found, "near saturation", "LAS over Gavel at 4 jobs/h, means").ours == 2.0
    las = row(found, "sustainable rates", "LAS")
    assert las.ours == 4.4  # 50 h at 4.8 are more than twice 21 h
    assert las.published == 4.8
    assert row(found, "sustainable rates", "Gavel").ours == 6.0
    assert "at least" in row(found, "sustainable rates", "Gavel").remark
    mean = row(found, "means", "Gavel at 4 jobs/h")
    assert mean.ours == pytest.approx(10.5)
    assert mean.remark == "10 to 11 h over 3 seeds"


def test_diverged_points_are_shown_as_such(tmp_path: Path) -> None:
    found = gavel_continuous.las_single(MadeUpContext(gone_at_5, tmp_path, "paper"))
    lost = row(found, "means", "LAS at 5.6 jobs/h")
    assert lost.ours is None
    assert lost.remark == "seed 1 diverged: 1,200 jobs wait"
    assert row(found, "as released", "LAS at 5.6 jobs/h").ours == 50.0  # seed 0 has not
    chart = found.charts[0]
    assert chart.marks == ((5.2, "LAS diverges"),)
    las = next(s for s in chart.series if s.name == "LAS" and not s.published)
    assert las.low is not None
    assert las.high is not None
    at = las.x.tolist().index(5.2)
    assert isnan(las.y[at])
    assert isnan(las.low[at])
    assert las.y[at - 2] == pytest.approx(21.0)
    assert (las.low[at - 2], las.high[at - 2]) == (20.0, 22.0)
    known = next(s for s in chart.series if s.name == "LAS" and s.published)
    assert dict(zip(known.x.tolist(), known.y.tolist(), strict=True))[4.8] == 35.79


def test_lines_that_diverge_at_one_rate_share_a_mark() -> None:
    def gone(name: str, rate: float | None) -> LoadCurve:
        return LoadCurve(name, (1.0,), (0,), np.ones((1, 1)), diverges=rate)

    some = [gone("a", 6.0), gone("b", None), gone("c", 5.0), gone("d", 6.0)]
    assert marks(some) == ((5.0, "c diverges"), (6.0, "a and d diverge"))
    assert marks([gone(name * 20, 6.0) for name in "abc"]) == ((6.0, "3 of them diverge"),)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.0, 1.5, 2.0, 2.1), 3.0),
        ((1.0, 2.5, 1.0, 1.0), 1.0),
        ((1.0, nan, 1.0, 1.0), 1.0),
        ((nan, 1.0, 1.0, 1.0), None),
        ((1.0, 1.0, 1.0, 1.0), 4.0),
    ],
)
def test_a_rate_is_sustained_as_long_as_all_below_are(
    values: tuple[float, ...], expected: float | None
) -> None:
    assert sustained((1.0, 2.0, 3.0, 4.0), np.array(values)) == expected


def test_rho_is_against_the_same_jobs_isolated(tmp_path: Path) -> None:
    def of(point: Point) -> PointResult:
        scale = 1.0 if point.policy == "isolated" else 0.5
        path = tmp_path / f"{point.key('')}.parquet"
        jct = [scale * 10.0, scale * 1000.0, None]
        pl.DataFrame({"job": [4000, 4001, 4002], "jct_s": jct}).write_parquet(path)
        return replace(plain(point), jobs=str(path))

    title = "isolated runs, finish-time fairness, jobs of one device, "
    found = gavel_continuous.finish_time(MadeUpContext(of, tmp_path))
    one = row(found, title + "as released", "Gavel at 5.6 jobs/h")
    assert (one.ours, one.published) == (0.5, 0.36)
    context = MadeUpContext(of, tmp_path, "paper")
    one = row(
        gavel_continuous.finish_time(context), title + "solving at once", "Gavel at 5.6 jobs/h"
    )
    assert (one.ours, one.published) == (0.5, 0.36)
    assert "isolated" in {p.policy for p in context.points if p.input.solve_interval_s == 0}
    point = Point("las")
    assert isnan(mean_rho(plain(point), plain(point)))  # no tables of jobs


def test_rounds_are_compared_with_none(tmp_path: Path) -> None:
    def of(point: Point) -> PointResult:
        round_s = point.input.round_s or 0.0
        assert round_s != "auto"
        hours = 10.0 if point.input.ideal else 10.0 + round_s / 360
        return made_up(point, avg_jct_s=3600 * hours)

    context = MadeUpContext(of, tmp_path, "paper")
    found = gavel_rounds.round_length(context)
    assert row(found, "without rounds", "2880 s at 6 jobs/h").ours == pytest.approx(1.8)
    assert row(found, "without rounds", "2880 s at 6 jobs/h").published == pytest.approx(90 / 38.5)
    assert {p.input.round_s for p in context.points} == {None, 360, 720, 1440, 2880}
    for point in context.points:
        assert point.input.ideal == (point.input.round_s is None)
    assert row(found, "at 6 jobs/h", "no rounds").ours == 10.0


def test_shares_of_fast_devices(tmp_path: Path) -> None:
    assert gavel_share.cluster_of(0.1) == "v100=10,k80=90"
    assert gavel_share.cluster_of(1.0) == "v100=100"
    context = MadeUpContext(plain, tmp_path, "paper")
    found = gavel_share.share_of_fast(context)
    gain = row(found, "Gain in makespan", "50% v100, seed 0, as released")
    assert (gain.ours, gain.published) == (2.0, 1.6663)
    jct = row(found, "Gain in average JCT", "50% v100, as released at 4.4 jobs/h, seed 1")
    assert (jct.ours, jct.published) == (2.0, 3.216701)
    static = [p for p in context.points if p.input.window is None]
    assert len(static) == 10 * 3 * 2 * 2
    assert all("jobs=500" in (p.input.generate or "") for p in static)


def test_costs_and_missed_deadlines(tmp_path: Path) -> None:
    def of(point: Point) -> PointResult:
        cheap = point.policy != "total_throughput"
        return made_up(
            point, cost=50.0 if cheap else 80.0, slo_jobs=200, slo_violations=70 if cheap else 0
        )

    found = gavel_cost.cost_deadlines(MadeUpContext(of, tmp_path))
    gain = row(found, "over cost of the policy", "throughput per $")
    assert (gain.ours, gain.published) == (1.6, 1.4)
    missed = row(found, "Deadlines missed", "throughput per $")
    assert (missed.ours, missed.published) == (35.0, 35.0)
    assert row(found, "Deadlines missed", "throughput").ours == 0.0


def test_a_run_end_to_end(tmp_path: Path) -> None:
    """On six devices; the real simulator in place of made-up outcomes."""

    def of(point: Point) -> PointResult:
        result = point.input.prepare(point.policy, point.profile).execute()
        return made_up(point, **result.metrics)

    tiny = replace(
        LAS_SINGLE,
        lines=(LAS_SINGLE.lines[0], LAS_SINGLE.lines[3]),
        ours=("Gavel",),
        small=Loads((0.5, 2.0), (0, 1), "5:25", "v100=2,p100=2,k80=2", ",duration=7200"),
        ratios=(("LAS", "Gavel", 2.0),),
    )
    found = gavel_continuous.findings(MadeUpContext(of, tmp_path), tiny)
    ratio = row(found, "near saturation", "LAS over Gavel at 2 jobs/h, means").ours
    assert ratio is not None
    assert 1.0 < ratio < 10.0
    better = row(found, "near saturation", "Gavel over Gavel, default profile at 2 jobs/h, seed 0")
    assert better.ours is not None
    assert better.ours == pytest.approx(1.0, abs=0.3)
    assert row(found, "sustainable rates", "Gavel").ours in (0.5, 2.0)


def test_solving_at_once_solves_more_often() -> None:
    given = SimulationInput(
        generate="gavel,interarrival=1200,duration=7200",
        throughputs="builtin:gavel",
        cluster="v100=4,p100=4,k80=4",
        window="20:40",
    )
    solves = {
        at: replace(given, solve_interval_s=at).prepare("las_aware", "gavel").execute().metrics
        for at in (None, 0.0)
    }
    assert solves[0.0]["n_solves"] > solves[None]["n_solves"]
    wrong = r"solve interval \(solve_interval_s\): must be from 0 to .* seconds, got -1"
    with pytest.raises(ConfigError, match=wrong):
        replace(given, solve_interval_s=-1.0).prepare("las_aware", "gavel")
    with pytest.raises(ConfigError, match="a solve interval"):
        replace(given, solve_interval_s=0.0, ideal=True).prepare("las_aware", "gavel")


def test_a_line_of_the_default_profile_has_no_switches_of_the_release() -> None:
    loads = Loads((1.0,), (0,))
    point = loads.point(CurveLine("x", "las", "default"), 1.0, 0)
    assert (point.input.solve_interval_s, point.input.round_s, point.input.ideal) == (
        None,
        None,
        False,
    )
    assert point.input.throughputs == "builtin:gavel"
