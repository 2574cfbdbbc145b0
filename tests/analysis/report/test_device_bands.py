"""Bands of devices over time, in reports of runs with elastic jobs."""

import polars as pl
import pytest
from tests.analysis.report.test_run_report import Page

from fairlead.analysis.report.device_bands import MOST, bands_over_time, device_bands


def intervals(*rows: tuple[int, float, float, list[int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, ["job", "start_s", "end_s", "devices"], orient="row")


def test_jobs_whose_number_changed_have_a_band() -> None:
    found = device_bands(
        intervals(
            (7, 100.0, 200.0, [4, 5]),
            (7, 0.0, 100.0, [0]),
            (8, 0.0, 300.0, [1, 2]),
            (8, 350.0, 400.0, [4, 5]),
            (7, 200.0, 300.0, [6, 7]),
            (9, 0.0, 10.0, [8]),
        )
    )
    assert [(one.job, one.devices.tolist(), one.changes) for one in found] == [(7, [1, 2, 2], 1)]
    assert found[0].start_s.tolist() == [0.0, 100.0, 200.0]
    assert device_bands(intervals((1, 0.0, 1.0, [0]))) == []


@pytest.mark.parametrize("jobs", [1, MOST, MOST + 5])
def test_a_band_is_as_thick_as_its_job_has_devices(jobs: int) -> None:
    rows = [
        row
        for job in range(jobs)
        for row in ((job, 0.0, 50.0, [0, 1, 2, 3]), (job, 50.0, 100.0, [0]))
    ]
    text = bands_over_time(device_bands(intervals(*rows)), 100.0)
    shown = min(jobs, MOST)
    assert text.count("<rect") - text.count('<rect x="0"') == 2 * shown
    assert text.count('height="26.0"') == shown
    assert text.count('height="6.5"') == shown
    assert Page(text).text.count("on 4 devices") == shown
