"""Which jobs are expected, from those that came."""

import itertools

import numpy as np
import pytest

from fairlead.cluster.forecasting.arrivals import History, RecentSubmissions
from fairlead.model.job import Job, JobId


def recent(times: list[float], batch: int = 1) -> RecentSubmissions:
    found = RecentSubmissions()
    for i, time_s in enumerate(times):
        found.submitted(time_s, [Job(JobId(i * batch + k), "net", 1, 10.0) for k in range(batch)])
    return found


def mean_counts(found: RecentSubmissions, now_s: float, ahead_s: list[float]) -> list[float]:
    """How many batches are expected within each of these times from now on, on average."""
    times = [
        np.array([one.time_s - now_s for one in found.history().expected(now_s, seed, 900)])
        for seed in range(200)
    ]
    return [float(np.mean([np.sum(one < limit) for one in times])) for limit in ahead_s]


def test_as_many_are_expected_as_came_and_none_beyond_what_was_watched() -> None:
    found = recent([10.0 * i for i in range(51)])
    assert mean_counts(found, 500.0, [250.0, 500.0, 5000.0]) == pytest.approx(
        [25.0, 50.0, 50.0], rel=0.05
    )


def test_a_burst_that_has_ended_is_not_expected_to_go_on() -> None:
    """Ten submissions within half a minute: five minutes later the next five minutes are as quiet."""
    found = recent([3.0 * i for i in range(10)])
    during, whole = mean_counts(found, 27.0, [13.5, 3600.0])
    assert (during, whole) == pytest.approx((4.5, 9.0), rel=0.1)
    quiet, later = mean_counts(found, 327.0, [300.0, 3600.0])
    assert quiet < 1.1
    assert later == pytest.approx(10.0, rel=0.1)


def test_what_came_before_the_newest_batches_counts_at_its_rate() -> None:
    found = recent([100.0 * i for i in range(200)])
    assert mean_counts(found, 19_900.0, [5_000.0, 15_000.0, 90_000.0]) == pytest.approx(
        [50.0, 150.0, 199.0], rel=0.05
    )


def test_a_sweep_is_one_batch_and_comes_as_one() -> None:
    found = RecentSubmissions()
    for i in range(30):
        found.submitted(100.0 * (i // 5) + 0.1 * (i % 5), [Job(JobId(i), "net", 1, 10.0)])
    history = found.history()
    assert [len(jobs) for _, jobs in history.batches] == [5] * 6
    first = list(itertools.islice(history.expected(600.0, 0, 100), 10))
    assert len({one.time_s for one in first}) == 2
    assert [one.job.id for one in first] == list(range(100, 110))


def test_a_few_submissions_tell_nothing() -> None:
    assert list(recent([1.0, 10.0, 20.0]).history().expected(30.0, 0, 5)) == []
    assert list(History().expected(30.0, 0, 5)) == []
