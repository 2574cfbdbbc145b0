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


def test_as_many_are_expected_as_came_and_fewer_beyond_what_was_watched() -> None:
    history = recent([10.0 * i for i in range(51)]).history()
    counts = {500.0: 0, 1000.0: 0, 5000.0: 0}
    for seed in range(20):
        for one in itertools.takewhile(
            lambda one: one.time_s < 5500.0, history.expected(500.0, seed, 900)
        ):
            for ahead_s in counts:
                counts[ahead_s] += one.time_s - 500.0 < ahead_s
    assert counts[500.0] / 20 == pytest.approx(50, rel=0.1)
    assert counts[1000.0] / 20 == pytest.approx(50 * (1 + np.log(2)), rel=0.1)
    assert counts[5000.0] / 20 == pytest.approx(50 * (1 + np.log(10)), rel=0.1)


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
