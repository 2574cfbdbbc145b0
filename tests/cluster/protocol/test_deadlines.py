"""What is said of deadlines."""

import msgspec
import pytest
from tests.cli.test_job_history import JOB

from fairlead.cluster.protocol.api_models import DeadlineState, JobState, JobView
from fairlead.cluster.protocol.deadlines import (
    deadline_cell,
    deadline_sentence,
    forecast_standing,
    standing,
)


def due(deadline: DeadlineState, left_s: float, **fields: object) -> JobView:
    return msgspec.structs.replace(
        JOB, slo_s=600.0, deadline=deadline, deadline_left_s=left_s, **fields
    )


@pytest.mark.parametrize(
    ("state", "left_s", "ended", "least_s", "expected"),
    [
        ("running", 60.0, False, 10.0, "open"),
        ("running", 60.0, False, 0.0, "open"),
        ("paused", 60.0, False, 61.0, "open"),
        ("paused", 60.0, False, 77.0, "out of reach"),
        ("waiting", -1.0, False, 61.0, "past"),
        ("completed", 0.0, True, 0.0, "met"),
        ("completed", -1.0, True, 0.0, "missed"),
        ("killed", 50.0, True, 0.0, "missed"),
        ("cancelled", 50.0, True, 0.0, "withdrawn"),
        ("cancelled", -1.0, True, 0.0, "missed"),
    ],
)
def test_how_a_job_stands_without_a_forecast(
    state: JobState, left_s: float, ended: bool, least_s: float, expected: DeadlineState
) -> None:
    assert standing(state, left_s, ended, least_s) == expected


def test_how_a_job_stands_by_its_forecast() -> None:
    assert forecast_standing(100.0, 50.0, 40.0, 99.0) == "forecast met"
    assert forecast_standing(100.0, 50.0, 40.0, 101.0) == "at risk"
    assert forecast_standing(100.0, 150.0, 90.0, 170.0) == "at risk"
    assert forecast_standing(100.0, 150.0, 110.0, 170.0) == "forecast late"
    assert forecast_standing(100.0, None, None, None) == "forecast late"


@pytest.mark.parametrize(
    ("job", "ends", "cell", "sentence"),
    [
        (
            due("forecast met", 3600.0), (600.0, 500.0, 700.0), "in 1 h",
            "The forecast meets its deadline, which is in 1 h, 50 min after its expected end.",
        ),
        (
            due("at risk", 600.0), (900.0, 500.0, 1200.0), "in 10 min: at risk",
            "It may miss its deadline, which is in 10 min, 5 min before its expected end: probably it ends "
            "between 8 min 20 s and 20 min.",
        ),
        (
            due("forecast late", 600.0), (1200.0, 900.0, 1500.0), "in 10 min: forecast late",
            "It is forecast to miss its deadline, which is in 10 min, 10 min before its expected end.",
        ),
        (
            due("forecast late", 600.0), (None, None, None), "in 10 min: forecast late",
            "Its deadline in 10 min is missed by the forecast: no end within its horizon.",
        ),
        (
            due("out of reach", 600.0), (None, None, None), "in 10 min: cannot be met",
            "Its deadline in 10 min can no longer be met: the steps that are left take far longer than that "
            "even at the best rate that is known.",
        ),
        (
            due("past", -300.0), (60.0, 50.0, 70.0), "late by 5 min",
            "Its deadline was 5 min ago: it is late, and it is expected to end in 1 min.",
        ),
        (
            due("open", 600.0), (None, None, None), "in 10 min",
            "Its deadline is in 10 min; there is no forecast of whether it is met.",
        ),
        (
            due("met", 120.0, state="completed", ended_s=490.0), (None, None, None), "met",
            "It met its deadline, 2 min before it.",
        ),
        (
            due("missed", -120.0, state="completed", ended_s=730.0), (None, None, None),
            "missed by 2 min", "It missed its deadline: 2 min late.",
        ),
        (
            due("missed", 120.0, state="killed", ended_s=490.0), (None, None, None), "missed",
            "It missed its deadline: it was killed 2 min before it and is not done.",
        ),
        (
            due("withdrawn", 120.0, state="cancelled", ended_s=490.0), (None, None, None), "-",
            "It was cancelled 2 min before its deadline.",
        ),
        (JOB, (None, None, None), "-", ""),
    ],
)  # fmt: skip
def test_what_is_said(
    job: JobView, ends: tuple[float | None, ...], cell: str, sentence: str
) -> None:
    finish_s, low_s, high_s = ends
    assert deadline_cell(job) == cell
    assert deadline_sentence(job, finish_s, low_s, high_s, "probably") == sentence
