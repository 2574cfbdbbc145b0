"""What is told of an end is no sooner than the job can come to it."""

from tests.cluster.server.test_explain import view

from fairlead.cluster.forecasting.calibration import Calibrated
from fairlead.cluster.server.forecasting import _bounded

STALE = Calibrated(0.0, 0.0, 1.0, 0.2)


def test_an_old_forecast_is_bounded_by_the_steps_that_are_left() -> None:
    job = view(total_steps=60.0, steps=10.0, measured_rate=2.0, rates={"v100": 1.0})
    told = _bounded(STALE, job)
    assert (told.left_s, told.low_s, told.high_s) == (25.0, 25.0, 25.0)
    faster = view(total_steps=60.0, steps=10.0, measured_rate=2.0, rates={"v100": 1.0, "h": 2.0})
    assert _bounded(STALE, faster).left_s == 12.5, "it may go on where it is faster"


def test_who_has_not_run_yet_ends_no_sooner_than_at_the_rates_believed() -> None:
    job = view(
        state="waiting", total_steps=6_000.0, rates={"v100": 100.0, "k80": 20.0}, measured_rate=None
    )
    assert _bounded(STALE, job).left_s == 60.0


def test_what_nobody_has_measured_bounds_nothing() -> None:
    assert _bounded(STALE, view(measured_rate=None)) is STALE
    later = Calibrated(500.0, 400.0, 600.0, 0.2)
    assert _bounded(later, view(total_steps=60.0, steps=10.0, measured_rate=2.0)) == later
