"""What forecasts say of deadlines."""

import msgspec
import numpy as np
from tests.cli.test_job_history import JOB

from fairlead.cluster.forecasting.calibration import Calibrated
from fairlead.cluster.forecasting.forecast import ForecastRun
from fairlead.cluster.forecasting.forecaster import JobForecast
from fairlead.cluster.server.deadline_forecasts import (
    deadline_notes,
    forecast_sentence,
    with_deadline,
)
from fairlead.cluster.server.tally import CountedJob, Tally

DUE = msgspec.structs.replace(JOB, slo_s=600.0, deadline="open", deadline_left_s=100.0)


def forecast(*ends: float) -> JobForecast:
    given = Calibrated(ends[0], ends[1], ends[2], 0.1) if ends else None
    return JobForecast("exact", 1.0, None, 3, given)


def test_a_forecast_says_how_a_job_stands_to_its_deadline() -> None:
    assert with_deadline(DUE, None) == DUE
    assert with_deadline(DUE, forecast(50.0, 40.0, 60.0)).deadline == "forecast met"
    assert with_deadline(DUE, forecast(50.0, 40.0, 160.0)).deadline == "at risk"
    assert with_deadline(DUE, forecast(150.0, 140.0, 160.0)).deadline == "forecast late"
    assert with_deadline(DUE, forecast()).deadline == "forecast late"
    assert with_deadline(JOB, forecast(1e9, 1e9, 1e9)) == JOB
    past = msgspec.structs.replace(DUE, deadline="past", deadline_left_s=-5.0)
    assert with_deadline(past, forecast(50.0, 40.0, 60.0)) == past
    assert "expected to end in 50 s" in forecast_sentence(past, forecast(50.0, 40.0, 60.0))
    assert forecast_sentence(JOB, None) == ""


def test_a_question_names_the_jobs_that_it_moves_over_their_deadlines() -> None:
    now = ForecastRun({1: 50.0, 2: 150.0, 3: 50.0, 4: 50.0}, 0.0, 0.0, (), np.inf)
    then = ForecastRun({1: 220.0, 2: 90.0, 3: 60.0, 5: 40.0, 6: 400.0}, 0.0, 0.0, (4,), np.inf)
    left = {1: 100.0, 2: 100.0, 3: 100.0, 4: 100.0, 5: 100.0, 6: 100.0, 9: 100.0}
    assert deadline_notes(now, then, left) == (
        "job 1 would miss its deadline by 2 min then, which it meets as it is",
        "job 2 would meet its deadline by 10 s then (at risk), which it misses as it is",
        "job 4 would miss its deadline then, which it meets as it is",
        "job 5 would meet its deadline by 1 min then",
        "job 6 would miss its deadline by 5 min then",
    )
    assert deadline_notes(now, now, left) == ()
    many = dict.fromkeys(range(20), 150.0)
    assert (
        deadline_notes(
            ForecastRun(dict.fromkeys(many, 100.0), 0.0, 0.0, (), np.inf),
            ForecastRun(dict.fromkeys(many, 200.0), 0.0, 0.0, (), np.inf),
            many,
        )[-1]
        == "and so on for 10 more jobs with deadlines"
    )


def test_open_jobs_past_their_deadlines_are_counted_as_time_goes_by() -> None:
    tally = Tally()
    job = CountedJob("t", "running", "running", 1.0, 1, deadline_s=100.0)
    tally.note_job(1, job)
    tally.note_job(2, job._replace(deadline_s=None))
    assert [tally.past_deadline(now_s) for now_s in (99.0, 101.0)] == [0, 1]
    tally.note_job(1, job._replace(deadline_s=None))
    assert tally.past_deadline(101.0) == 0
