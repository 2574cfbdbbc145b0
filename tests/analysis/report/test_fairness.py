"""The machine form of finish-time fairness."""

import polars as pl
import pytest

from fairlead.analysis.report.fairness import metrics_for_json, rho_of_jobs

STATIC = {
    "mean": 0.9,
    "p50": 0.8,
    "max": 1.7,
    "unfair_1": 0.3,
    "unfair_1_05": 0.2,
    "unfair_1_1": 0.1,
}
ISOLATED = STATIC | {"max": 9.0}


def test_what_shockwave_reports_stands_at_the_top() -> None:
    form = metrics_for_json({"cost": 1.0, "rho": {"isolated": ISOLATED, "static": STATIC}})
    assert {key: form[key] for key in ("worst_rho", "unfair_1", "unfair_105", "unfair_11")} == {
        "worst_rho": 1.7, "unfair_1": 0.3, "unfair_105": 0.2, "unfair_11": 0.1,
    }  # fmt: skip
    assert form["fairness"] == {"isolated": ISOLATED, "static": STATIC}
    assert form["cost"] == 1.0
    assert "rho" not in form


def test_a_window_has_no_static_rho() -> None:
    metrics = {"rho": {"isolated": ISOLATED}}
    assert metrics_for_json(metrics) == {"fairness": {"isolated": ISOLATED}}
    assert rho_of_jobs(metrics, pl.DataFrame({"job": [0], "rho_static": [1.0]})) == {}


def test_every_job_has_a_rho_or_null() -> None:
    jobs = pl.DataFrame({"job": [7, 8], "rho_static": [1.25, None]})
    assert rho_of_jobs({"rho": {"static": STATIC}}, jobs) == {"7": 1.25, "8": None}


@pytest.mark.parametrize("rho", [{}, {"static": {}}])
def test_missing_numbers_stay_missing(rho: dict[str, object]) -> None:
    assert "worst_rho" not in metrics_for_json({"rho": rho})
