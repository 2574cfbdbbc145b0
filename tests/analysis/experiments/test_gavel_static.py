"""Gavel's static figures and POP's: which points they are, and what is made of outcomes."""

from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.experiments.made_up import (
    MadeUpContext,
    complete,
    rows_of,
    run_here,
)

from fairlead.analysis.experiments.findings import Scale
from fairlead.analysis.experiments.point import (
    Point,
    PointResult,
    Status,
)
from fairlead.analysis.experiments.published import (
    gavel_estimator,
    gavel_makespan,
    gavel_runtime,
    pop_quality,
)
from fairlead.analysis.experiments.published.gavel_curves import (
    RATES,
    CurveLine,
    Loads,
)
from fairlead.analysis.experiments.published.single_devices import problem, rates
from fairlead.analysis.solve_benchmark import SolveTiming
from fairlead.policies.las import Las
from fairlead.simulator.traces.throughput_tables import read_throughputs


def jobs_of(point: Point) -> int:
    assert point.input.generate is not None
    (part,) = [p for p in point.input.generate.split(",") if p.startswith("jobs=")]
    return int(part.removeprefix("jobs="))


# --- makespan ------------------------------------------------------------------------------------


def made_up_makespan(point: Point) -> PointResult:
    """An hour for each job and seed; twice that on V100s alone."""
    hours = jobs_of(point) + point.input.seed
    return complete(point, makespan_s=3600.0 * hours * (1 + ("," not in point.input.cluster)))


def test_makespans_are_means_over_seeds() -> None:
    found = gavel_makespan.run(MadeUpContext(made_up_makespan, "paper"))
    rows = rows_of(found, "Makespan")
    row = rows["Gavel, 700 jobs"]
    assert row.ours == pytest.approx(701.0)  # of seeds 0, 1, 2
    assert row.published == 244.2
    assert row.remark == "by seed 700.0 / 701.0 / 702.0"
    ratios = rows_of(found, "Ratios of makespans")
    fifo = ratios["FIFO over Gavel, 700 jobs"]
    assert fifo.ours == pytest.approx(1.0)
    assert fifo.published == pytest.approx(619.5 / 244.2)
    alone = ratios["FIFO on the V100s alone over Gavel, 700 jobs"]
    assert alone.ours == pytest.approx(2.0)
    (chart,) = found.charts
    gavel = next(s for s in chart.series if s.name == "Gavel" and not s.published)
    assert gavel.low is not None
    assert gavel.low.tolist() == [100.0, 300.0, 500.0, 700.0]


def test_a_run_that_fails_has_no_number_and_is_named() -> None:
    def of(point: Point) -> PointResult:
        if point.policy == "gandiva" and jobs_of(point) == 300:
            return PointResult(point, Status.FAILED, {}, "MemoryError")
        return made_up_makespan(point)

    found = gavel_makespan.run(MadeUpContext(of))
    assert rows_of(found, "Makespan")["Gandiva, 300 jobs"].ours is None
    ratio = rows_of(found, "Ratios of makespans")["Gandiva over Gavel, 300 jobs"]
    assert ratio.ours is None
    assert ratio.remark == "not every run is complete"
    assert any("gandiva" in remark and "MemoryError" in remark for remark in found.remarks)


@pytest.mark.parametrize(("scale", "points"), [("small", 14), ("paper", 84)])
def test_points_of_makespan_can_be_run(scale: Scale, points: int) -> None:
    context = MadeUpContext(made_up_makespan, scale)
    gavel_makespan.run(context)
    assert len(context.asked) == points
    assert len({point.key("") for point in context.asked}) == points
    for point in context.asked[:: 13 if scale == "paper" else 1]:
        point.input.prepare(point.policy, point.profile)


def test_aware_makespans_are_shorter() -> None:
    lines = [one for one in gavel_makespan.LINES if one.name in ("FIFO", "Gavel")]
    fifo, gavel = (
        run_here(replace(line, cluster="v100=4,p100=4,k80=4").point(40, 0)) for line in lines
    )
    assert gavel.metrics["makespan_s"] < 0.8 * fifo.metrics["makespan_s"]


# --- policy run times ----------------------------------------------------------------------------


def test_times_of_policies_and_their_problem() -> None:
    table = read_throughputs(RATES)
    snapshot = problem(table, 33)
    assert len(snapshot.jobs) == 33
    assert snapshot.capacity.tolist() == [8.0, 8.0, 8.0]
    assert (snapshot.job_scale == 1).all()
    assert np.bincount(snapshot.tenant).tolist() == [7, 7, 7, 6, 6]
    timings = gavel_runtime.measured(table, (16,))
    assert len(timings) == len(gavel_runtime.policies())
    assert all(one.jobs == 16 and one.cpu_s > 0 for one in timings.values())
    assert all(one.gap is not None and one.gap < 1e-6 for one in timings.values())


def test_times_stand_beside_the_published_ones() -> None:
    def timing(jobs: int) -> SolveTiming:
        return SolveTiming("las", jobs, 3, False, jobs * 1e-4, (), 1e-9, 0.0)

    names = (gavel_runtime.PLAIN, gavel_runtime.HIERARCHICAL)
    found = gavel_runtime.findings(
        (128, 512), {(n, j): timing(j) for n in names for j in (128, 512)}
    )
    rows = rows_of(found, "Time of one solve")
    row = rows["Gavel, hierarchical, 512 jobs"]
    assert row.ours == pytest.approx(0.0512)
    assert row.published == 5.5
    assert row.remark.startswith("107 times as fast; proven within 1e-09")
    assert rows["Gavel, 128 jobs"].published is None
    assert found.charts[0].log_y


def test_without_the_release_s_file_rates_in_pairs_are_modelled(tmp_path: Path) -> None:
    table, words = rates(MadeUpContext(run_here, folder=tmp_path))
    assert table.colocated_rate is not None
    assert "modelled" in words[0]


# --- the estimator -------------------------------------------------------------------------------


def made_up_jct(point: Point) -> PointResult:
    given = point.input.estimator
    factor = 1.0 if given is None else 1.5 if given.endswith("defect") else 1.05
    return complete(point, avg_jct_s=36000.0 * factor * (1 + 0.1 * point.input.seed))


def test_estimated_over_known() -> None:
    found = gavel_estimator.run(MadeUpContext(made_up_jct, "paper"))
    rows = rows_of(found, "Average JCT, means over the seeds")
    assert rows["Packing, rates of pairs known at 0.6 jobs/h"].ours == pytest.approx(11.0)
    assert rows["Packing, rates of pairs known at 0.6 jobs/h"].published == 20.0
    ratios = rows_of(found, "Estimated over known")
    mended = ratios["Packing, estimated over known at 0.6 jobs/h"]
    assert mended.ours == pytest.approx(1.05)
    assert mended.published is None
    assert mended.remark == "by seed 1.050 / 1.050 / 1.050"
    released = ratios["Packing, estimated with the release's defect over known at 0.6 jobs/h"]
    assert released.ours == pytest.approx(1.5)
    assert released.published == pytest.approx(1.1)


def test_points_of_the_estimator_can_be_run() -> None:
    context = MadeUpContext(made_up_jct, "paper")
    gavel_estimator.run(context)
    assert {p.input.estimator for p in context.asked} == {
        None,
        "gavel:references=16,profiling=0.2",
        "gavel:references=16,profiling=0.2,defect",
    }
    assert {p.input.cluster for p in context.asked} == {"v100=4,p100=4,k80=4"}
    for point in context.asked[::7]:
        point.input.prepare(point.policy, point.profile)


def test_a_tiny_run_with_estimates() -> None:
    loads = Loads((0.3,), (0,), "3:8", cluster="v100=2,p100=2,k80=2")
    line = gavel_estimator.Estimated(
        CurveLine("estimated", "las_packed"), gavel_estimator.ESTIMATOR
    )
    (outcome,) = map(run_here, line.points(loads))
    assert outcome.metrics["avg_jct_s"] > 0


# --- POP -----------------------------------------------------------------------------------------


def test_parts_lose_little_and_never_gain() -> None:
    table = read_throughputs(RATES)
    found = pop_quality.solves(pop_quality.cases(table, (64,), 64))
    assert [(one.name, one.parts) for one in found[:4]] == [
        (pop_quality.PACKED, parts) for parts in pop_quality.PARTS
    ]
    for one in found:
        assert one.objective <= 1 + 1e-6
        assert one.objective > (0.999999 if one.parts == 1 else 0.3)
    packed = [one.throughput for one in found if one.name == pop_quality.PACKED]
    assert packed == pytest.approx([1.0] * 4, abs=0.05)


def test_the_objective_of_parts_is_that_of_their_jobs_together() -> None:
    case = pop_quality.PartitionCase("las", Las(), problem(read_throughputs(RATES), 40))
    whole = case.policy.allocate(case.snapshot)
    halves = pop_quality.solved(case, whole, 2)
    assert 0.5 < halves.objective < 1


def test_simulations_in_parts() -> None:
    paper = pop_quality.simulations(paper=True)
    policies = [point.policy for point in paper[pop_quality.MAKESPAN]]
    assert policies == ["makespan_aware", *(f"partition:{k}:makespan_aware" for k in (2, 4, 8))]
    for point in (one for line in paper.values() for one in line):
        point.input.prepare(point.policy, point.profile)


def test_pop_findings_from_made_up_numbers() -> None:
    one = pop_quality.PartitionSolve(pop_quality.PACKED, 1024, 1, 2.0, 1.0, 1.0)
    eight = replace(one, parts=8, cpu_s=0.5, throughput=0.99, objective=0.97)
    hours = {pop_quality.MAKESPAN: [250.0, 251.0, nan, 260.0]}
    found = pop_quality.findings([one, eight], hours)
    times = rows_of(found, "Time of one solve")
    assert times["LAS with packing, 1,024 jobs, 8 parts"].published == 4.5
    quality = rows_of(found, "Quality of one solve, over the whole")
    assert quality["LAS with packing, 1,024 jobs, 8 parts: mean throughput"].ratio == (
        pytest.approx(0.99 / 0.997)
    )
    makespans = rows_of(found, pop_quality.MAKESPAN)
    assert makespans["4 parts"].ours is None
    assert makespans["8 parts"].remark == "1.040 of the whole; published 1.061"
