"""Searches on the simulated cluster."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.job_types import job_types

from fairlead.errors import ConfigError, InputError
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job import Arrival, Job, JobId
from fairlead.model.throughputs import Throughputs
from fairlead.policies.search.decide import SearchPlan
from fairlead.policies.search.learning_curve import SearchMetric
from fairlead.policies.search.stopping import CurveFit, StoppingRule
from fairlead.simulator.search.recorded_curves import RecordedCurves, read_curves
from fairlead.simulator.search.search_backend import FIRST_ID, SearchStudy
from fairlead.simulator.search.simulate_search import SearchResult, simulate_search

RATES = Throughputs((SlotType("x"),), job_types(("trial", 1), ("net", 1)), np.ones((2, 1)))
CLUSTER = Cluster.of({"x": 4}, 4)
PROGRESS: Floats = 0.03 * np.arange(1.0, 34)
TRIAL_S = 6000.0


def curves(good_at: int, count: int = 40) -> RecordedCurves:
    """Flat ones but for one, counted from 0, which is at 0.9 after a third."""
    value: Floats = np.full((count, len(PROGRESS)), 0.1)
    value[good_at] = 0.1 + 0.8 * np.minimum(PROGRESS * 3, 1.0)
    return RecordedCurves(PROGRESS, value)


def study(
    good_at: int,
    rule: StoppingRule | None,
    *,
    trials: int = 40,
    submitted_s: float = 0.0,
    weight: float | None = None,
) -> SearchStudy:
    plan = SearchPlan(
        metric=SearchMetric(0.85, 0.1),
        parallel=8 if rule else 4,
        favoured=2 if rule else 0,
        rule=rule,
    )
    return SearchStudy(
        curves=curves(good_at),
        plan=plan,
        family="trial",
        steps=TRIAL_S,
        trials=trials,
        submitted_s=submitted_s,
        weight=weight,
    )


def run(
    one: SearchStudy, policy: str = "gandiva", background: tuple[Arrival, ...] = ()
) -> SearchResult:
    return simulate_search(one, CLUSTER, policy, background, throughputs=RATES, round_s=60.0)


def test_early_feedback_finds_the_good_one_sooner() -> None:
    base, ours = run(study(33, None), "fifo"), run(study(33, CurveFit()))
    assert base.progress.reached_by == ours.progress.reached_by == 33
    assert base.reached_s is not None
    assert ours.reached_s is not None
    assert base.reached_s == pytest.approx(8 * TRIAL_S + 0.33 * TRIAL_S, abs=120)
    assert base.reached_s / ours.reached_s > 4
    assert ours.progress.stopped >= 30


def test_trials_without_promise_are_cancelled_as_jobs() -> None:
    made = run(study(33, CurveFit()))
    ends = made.result.jobs.filter(made.result.jobs["job"] >= FIRST_ID)
    assert (ends["end"] == "cancelled").all()
    assert made.progress.completed == 0


def test_a_favoured_trial_runs_all_the_time() -> None:
    """Its first points show it; from then on it does not take turns."""
    made = run(study(0, CurveFit()))
    assert made.reached_s is not None
    assert made.reached_s < 0.33 * TRIAL_S + 2 * 4 * 0.03 * TRIAL_S + 120


def test_without_a_good_one_all_trials_have_a_second_chance_and_the_search_ends() -> None:
    made = run(study(39, CurveFit(), trials=20))
    assert made.reached_s is None
    assert made.progress.stopped == 20
    assert made.explored == 40
    assert made.progress.submitted == 40


def test_a_good_one_that_was_stopped_is_found_by_its_second_chance() -> None:
    """It rises late."""
    late = curves(7, 20)
    late.value[7] = np.where(PROGRESS > 0.6, 0.9, 0.1)
    late.value[7, :3] = 0.12  # of the most promise, but not enough
    made = run(replace(study(7, CurveFit(), trials=20), curves=late))
    assert made.reached_s is not None
    assert made.progress.reached_by == 20
    assert made.progress.second[0] == 7


def test_other_jobs_run_on_after_the_search() -> None:
    others = tuple(Arrival(100.0 * i, Job(JobId(i), "net", 1, 20_000.0)) for i in range(3))
    made = run(study(0, CurveFit(), submitted_s=500.0), "las", others)
    assert made.reached_s is not None
    jobs = made.result.jobs.filter(made.result.jobs["job"] < FIRST_ID)
    assert (jobs["end"] == "completed").all()


def test_a_search_with_a_weight_counts_as_one_job() -> None:
    """Three jobs and a search of eight trials share four devices: a job of weight 1 and a search of weight 1
    get as much."""
    others = tuple(Arrival(0.0, Job(JobId(i), "net", 1, 30_000.0)) for i in range(7))

    def jct_h(weight: float | None) -> float:
        one = study(39, CurveFit(min_points=34), weight=weight)
        jobs = run(one, "las", others).result.jobs
        return float(jobs.filter(jobs["job"] < FIRST_ID)["jct_s"].to_numpy().mean()) / 3600

    alone_h = 7 * 30_000 / 4 / 3600
    assert jct_h(0.01) < 1.02 * alone_h
    assert jct_h(None) > 1.5 * alone_h


def test_equal_searches_are_equal() -> None:
    one, other = (run(study(20, CurveFit())) for _ in range(2))
    assert one.reached_s == other.reached_s
    assert one.progress.weights == other.progress.weights
    assert one.result.jobs.equals(other.result.jobs)


def test_background_jobs_keep_out_of_the_ids_of_trials() -> None:
    with pytest.raises(ConfigError, match="ids must be below"):
        run(study(0, None), "las", (Arrival(0.0, Job(JobId(FIRST_ID), "net", 1, 1.0)),))


def test_the_table_that_comes_along() -> None:
    table = read_curves()
    assert len(table) >= 374
    assert table.progress[0] == pytest.approx(0.03)
    assert 10 <= table.reach(0.84).sum() <= len(table) - 364
    assert ((table.value >= 0) & (table.value <= 1)).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("configuration,rate\n1,2\n", ":1: no column of a point"),
        ("c,3%,2%\n1,0.1,0.1\n", ":1: points must ascend"),
        ("c,3%\n1,high\n", ":2: column '3%': expected a number, got 'high'"),
        ("c,3%\n1\n", ":2: expected 2 columns, got 1"),
        ("c,3%\n", "has no configurations"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_curves(path)
    assert says in str(caught.value)
