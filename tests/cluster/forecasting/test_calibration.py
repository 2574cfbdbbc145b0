"""Intervals of forecasts: they cover what they should, whatever forecasts are worth."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fairlead.cluster.forecasting.calibration import (
    Calibrated,
    ForecastOutcome,
    IntervalCalibration,
    Pending,
    RawForecast,
)
from fairlead.cluster.forecasting.forecast_outcomes import APPLICATION, VERSION, Outcomes
from fairlead.cluster.store.database import DatabaseLayout, connect

ROUND_S = 360.0


def forecast(
    calibration: IntervalCalibration, left_s: float, made_s: float = 0.0, running: bool = True
) -> RawForecast:
    return RawForecast(
        made_s=made_s,
        kind="exact",
        running=running,
        left_s=left_s,
        interval=calibration.of("exact", left_s, running),
    )


def outcome(
    calibration: IntervalCalibration, left_s: float, actual_s: float, running: bool = True
) -> ForecastOutcome:
    return forecast(calibration, left_s, 0.0, running).outcome(1, actual_s)


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
    given = calibration.of("exact", 5_000.0, True)
    assert given.low_s < given.left_s < given.high_s
    assert given.left_s == pytest.approx(5_000.0 * np.exp(middle), rel=0.1)
    assert given.error == pytest.approx(0.6745 * spread, rel=0.5)


def test_near_and_far_coarse_and_exact_running_and_waiting_are_judged_apart() -> None:
    calibration = IntervalCalibration(ROUND_S)

    def others() -> list[Calibrated]:
        return [
            calibration.of("coarse", 5_000.0, True),
            calibration.of("exact", 50_000.0, True),
            calibration.of("exact", 5_000.0, False),
        ]

    before = others()
    for _ in range(100):
        calibration.learn(outcome(calibration, 5_000.0, 7_000.0))
    assert others() == before
    assert calibration.of("exact", 5_000.0, True).left_s > 6_500.0


def test_what_waiting_jobs_may_take_does_not_widen_the_interval_of_one_that_runs() -> None:
    """Of a job of a minute that ran, the upper bound was half an hour where others had to wait."""
    rng = np.random.default_rng(2)
    calibration = IntervalCalibration(ROUND_S)
    for _ in range(60):
        left_s = float(rng.uniform(20.0, 90.0))
        waited_s = left_s * float(np.exp(rng.normal(1.0, 1.5)))
        calibration.learn(outcome(calibration, left_s, waited_s, running=False))
        ran_s = left_s * float(np.exp(rng.normal(0.0, 0.05)))
        calibration.learn(outcome(calibration, left_s, ran_s))
    running = calibration.of("exact", 60.0, True)
    assert 45.0 < running.low_s < 60.0 < running.high_s < 75.0
    assert calibration.of("exact", 60.0, False).high_s > 600.0


def test_seconds_that_the_shortest_are_late_are_not_taken_for_a_factor() -> None:
    """A job that was to end in a second, and took ten, says nothing of jobs of ten minutes."""
    rng = np.random.default_rng(3)
    calibration = IntervalCalibration(ROUND_S)
    for _ in range(60):
        for left_s in (1.0, 5.0, 60.0, 600.0):
            late_s = float(rng.uniform(0.0, 10.0))
            calibration.learn(outcome(calibration, left_s, left_s + late_s))
    for left_s in (1.0, 60.0):
        given = calibration.of("exact", left_s, True)
        assert given.low_s <= left_s + 5.0 <= given.high_s
        assert given.high_s - given.low_s < 10.0 + left_s / 2
    assert calibration.of("exact", 600.0, True).high_s < 1_200.0


def test_nothing_is_told_that_is_sooner_than_the_job_can_be() -> None:
    """But for what is not known of its steps: the lower bound was one that half of all jobs were before."""
    stale = Calibrated(left_s=0.0, low_s=0.0, high_s=1.0, error=0.2)
    told = stale.no_sooner_than(25.0)
    assert (told.left_s, told.high_s) == (25.0, 25.0)
    assert 15.0 < told.low_s < 22.0
    assert stale.no_sooner_than(0.0) == stale
    later = Calibrated(left_s=500.0, low_s=400.0, high_s=600.0, error=0.2)
    assert later.no_sooner_than(25.0) == later


def test_a_forecast_about_a_job_that_had_ended_is_no_miss() -> None:
    """Its end becomes known seconds later; forecasts made meanwhile widened all intervals."""
    calibration, pending = IntervalCalibration(ROUND_S), Pending()
    pending.add(7, forecast(calibration, 60.0, made_s=40.0))
    pending.add(7, forecast(calibration, 0.0, made_s=102.0))
    assert [one.made_s for one in pending.ended(7, 100.0)] == [40.0]


def test_how_many_outcomes_an_interval_rests_on_is_told() -> None:
    calibration = IntervalCalibration(ROUND_S)
    fresh = calibration.of("exact", 60.0, True)
    assert fresh.outcomes == 0
    assert fresh.high_s - fresh.low_s < 90.0, "of a minute, before anything is known"
    for _ in range(3):
        calibration.learn(outcome(calibration, 60.0, 61.0))
    assert calibration.of("exact", 60.0, True).outcomes == 3
    assert calibration.of("exact", 60.0, False).outcomes == 0


def test_of_one_job_only_forecasts_of_different_horizons_count() -> None:
    calibration, pending = IntervalCalibration(ROUND_S), Pending()
    for made_s in range(0, 1000, 10):
        pending.add(7, forecast(calibration, 1000.0 - made_s, made_s))
    pending.add(8, forecast(calibration, 5.0))
    pending.forget(8)
    found = pending.ended(7, 1100.0)
    assert 5 <= len(found) <= 8
    assert found[0].actual_s == 1100.0
    assert pending.ended(7, 1100.0) == pending.ended(8, 10.0) == []


def test_what_was_forecast_while_it_waited_counts_beside_what_was_while_it_ran() -> None:
    calibration, pending = IntervalCalibration(ROUND_S), Pending()
    for made_s, running in ((0.0, False), (10.0, False), (20.0, True), (30.0, False), (40.0, True)):
        pending.add(7, forecast(calibration, 100.0 - made_s, made_s, running))
    found = pending.ended(7, 110.0)
    assert [(one.made_s, one.running) for one in found] == [(0.0, False), (20.0, True)]


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


def test_a_damaged_file_of_outcomes_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "forecasts.db"
    path.write_bytes(b"no database" * 1000)
    file = Outcomes(path)
    file.open()
    assert file.all() == []
    file.close()
    assert "learned anew; the file is kept as forecasts.db.unused" in caplog.text
    with (
        closing(sqlite3.connect(tmp_path / "forecasts.db.unused")) as kept,
        pytest.raises(sqlite3.DatabaseError),
    ):
        kept.execute("SELECT 1 FROM sqlite_master")


def test_outcomes_of_another_version_are_set_aside_whole_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not say whether the job ran or waited."""
    path = tmp_path / "forecasts.db"

    def created(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO meta VALUES ('schema', '1')")

    schema = "CREATE TABLE meta (key TEXT, value TEXT); CREATE TABLE outcomes (outcome BLOB)"
    layout = DatabaseLayout(application=APPLICATION, version=1, schema=schema, created=created)
    with closing(connect(path, layout, durable=False)) as old:
        old.execute("INSERT INTO outcomes VALUES (x'80')")
    file = Outcomes(path)
    file.open()
    made = [outcome(IntervalCalibration(ROUND_S), 60.0, 61.0, running=False)]
    file.add(made)
    assert file.all() == made
    file.close()
    assert f"another version of Fairlead (schema 1, known is {VERSION})" in caplog.text
    assert "forecasts.db.unused" in caplog.text
    with closing(sqlite3.connect(tmp_path / "forecasts.db.unused")) as kept:
        assert kept.execute("SELECT count(*) FROM outcomes").fetchone() == (1,)
