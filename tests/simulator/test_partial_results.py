"""Averages of fewer jobs than a trace has are said to be so."""

import warnings

import pytest
from tests.small import job, run

from fairlead.errors import PartialResultWarning

JOBS = [job(number, 0.0, 1e5) for number in range(4)]  # 1e4 s each
WIDE = job(9, 0.0, 100.0, devices=4)


def test_jobs_that_have_not_ended_are_warned_of() -> None:
    said = "3 of 4 jobs have not ended: averages are of the 1 that were completed"
    with pytest.warns(PartialResultWarning, match=said) as caught:
        result = run(JOBS, policy="fifo", stop_at_s=15_000.0)
    assert caught[0].filename.endswith("small.py"), "the line that has called simulate"
    assert result.partial == (said,)
    assert result.complete
    assert repr(result) == (
        f"Result(fifo on arrivals; 1 of 4 jobs completed; average JCT 10,000 s; {said})"
    )


def test_jobs_that_fit_nowhere_are_warned_of() -> None:
    with pytest.warns(PartialResultWarning, match="1 job skipped: .* needs more devices") as caught:
        result = run([*JOBS, WIDE])
    assert len(caught) == len(result.partial) == 1
    assert set(result.partial) <= set(result.skipped)


def test_measured_jobs_that_have_not_ended_are_warned_of() -> None:
    with pytest.warns(PartialResultWarning, match="1 of 2 measured jobs have not ended"):
        run(JOBS, policy="fifo", measured_jobs=(0, 2), stop_at_s=15_000.0)


def test_nobody_is_warned_of_averages_of_all_jobs_or_of_all_that_are_measured() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(JOBS).partial == ()
        assert run(JOBS, policy="fifo", measured_jobs=(0, 2)).partial == ()
        cut = run(JOBS, stop=lambda: True)
    assert not cut.complete
    assert "interrupted" in repr(cut)
