"""Intervals of forecasts: they cover what they should, whatever forecasts are worth."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fairlead.cluster.forecasting.calibration import (
    ForecastOutcome,
    IntervalCalibration,
    Pending,
)
from fairlead.cluster.forecasting.forecast_outcomes import Outcomes

ROUND_S = 360.0


def outcome(calibration: IntervalCalibration, left_s: float, actual_s: float) -> ForecastOutcome:
    given = calibration.of("exact", left_s)
    return ForecastOutcome(
        job=1,
        made_s=0.0,
        kind="exact",
        left_s=left_s,
        low_s=given.low_s,
        high_s=given.high_s,
        actual_s=actual_s,
    )


@pytest.mark.parametrize(("middle", "spread"), [(0.0, 0.05), (0.0, 0.8), (0.4, 0.3), (-0.3, 0.2)])
def test_intervals_cover_four_of_five_however_wrong_forecasts_are(
    middle: float, spread: float
) -> None:
    rng = np.random.default_rng(1)
    calibration = IntervalCalibration(ROUND_S)
    inside = []
    for _ in range(800):
        left_s = float(rng.uniform(1_000.0, 9_000.0))
        one = outcome(calibration, left_s, left_s * float(np.exp(rng.normal(middle, spread))))
        inside.append(one.inside)
        calibration.learn(one)
    assert 0.75 <= np.mean(inside[200:]) <= 0.85
    given = calibration.of("exact", 5_000.0)
    assert given.low_s < given.left_s < given.high_s
    assert given.left_s == pytest.approx(5_000.0 * np.exp(middle), rel=0.1)
    assert given.error == pytest.approx(0.6745 * spread, rel=0.5)


def test_near_and_far_coarse_and_exact_are_judged_apart() -> None:
    calibration = IntervalCalibration(ROUND_S)
    before = calibration.of("coarse", 5_000.0), calibration.of("exact", 50_000.0)
    for _ in range(100):
        calibration.learn(outcome(calibration, 5_000.0, 7_000.0))
    assert (calibration.of("coarse", 5_000.0), calibration.of("exact", 50_000.0)) == before
    assert calibration.of("exact", 5_000.0).left_s > 6_500.0


def test_of_one_job_only_forecasts_of_different_horizons_count() -> None:
    calibration, pending = IntervalCalibration(ROUND_S), Pending()
    for made_s in range(0, 1000, 10):
        left_s = 1000.0 - made_s
        pending.add(7, made_s, "exact", left_s, calibration.of("exact", left_s))
    pending.add(8, 0.0, "exact", 5.0, calibration.of("exact", 5.0))
    pending.forget(8)
    found = pending.ended(7, 1100.0)
    assert 5 <= len(found) <= 8
    assert found[0].actual_s == 1100.0
    assert pending.ended(7, 1100.0) == pending.ended(8, 10.0) == []


def test_outcomes_outlive_the_server_and_do_not_grow_for_ever(tmp_path: Path) -> None:
    calibration = IntervalCalibration(ROUND_S)
    made = [outcome(calibration, 1_000.0 + i, 1_500.0) for i in range(30)]
    file = Outcomes(tmp_path / "forecasts.db", rows=20)
    file.open()
    file.add(made)
    file.close()
    file.open()
    assert file.all() == made[-20:]
    file.close()


def test_a_damaged_file_of_outcomes_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "forecasts.db"
    path.write_bytes(b"no database" * 1000)
    file = Outcomes(path)
    file.open()
    assert file.all() == []
    file.close()
    assert (tmp_path / "forecasts.db.damaged").exists()
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(tmp_path / "forecasts.db.damaged").execute("SELECT 1 FROM sqlite_master")
