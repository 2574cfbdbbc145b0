"""A queue that grows for ever is seen; one that is only long, or only grows for a while, is none."""

from collections.abc import Iterable

import numpy as np
import pytest
from tests.analysis.experiments.small_points import (
    GROWING,
    endless,
    point,
)
from tests.small import job

from fairlead.analysis.experiments import divergence
from fairlead.analysis.experiments.divergence import CROWDED, DivergenceDetector
from fairlead.analysis.experiments.point import Status
from fairlead.analysis.experiments.worker import answer_for
from fairlead.model.commands import EndJobs
from fairlead.model.events import JobsSubmitted

HOUR = 3600.0


def fed(queue: Iterable[int], devices: int = 10, measured: int = 0) -> DivergenceDetector:
    """The jobs in the system, hour by hour; one arrives in each hour, the rest comes and goes with it."""
    seen = DivergenceDetector(devices, measured)
    for hour, wanted in enumerate(queue):
        more = max(wanted - seen.active, 1)
        jobs = tuple(job(n, 0.0, 1.0).job for n in range(more))
        seen.event(JobsSubmitted(hour * HOUR, jobs))
        gone = np.arange(max(seen.active - wanted, 0))
        seen.command(EndJobs(hour * HOUR, gone, gone, np.zeros(len(gone))))
        assert seen.active == wanted
        if seen():
            break
    return seen


def test_a_queue_that_grows_and_grows_is_without_bound() -> None:
    seen = fed(1 + hour // 10 for hour in range(3000))
    assert seen()
    assert "grows without bound" in seen.reason
    assert "10 devices" in seen.reason
    assert seen.active > CROWDED * 10


def test_a_long_queue_that_stays_is_none() -> None:
    rng = np.random.default_rng(0)
    assert not fed((150 + rng.integers(-30, 30, 3000)).tolist())()


def test_a_burst_is_none() -> None:
    assert not fed([20] * 1000 + [400] * 90 + [200] * 100 + [20] * 1000)()


def test_a_queue_that_grows_to_its_length_is_none() -> None:
    assert not fed(round(95 * (1 - np.exp(-hour / 500))) + 1 for hour in range(3000))()


def test_jobs_that_starve_end_a_run_whose_queue_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "MIN_SUBMISSIONS", 1000)
    short = [20] * 1500
    assert not fed(short)()
    seen = fed(short, measured=200)
    assert seen.reason == (
        "jobs starve: of the first 200 some have not ended after 1,023 hours, when 1,043 have come"
    )
    assert not fed(short, measured=400)()  # 1,600 would have to come


def test_a_run_whose_queue_grows_is_ended_early() -> None:
    answer = answer_for(GROWING, lambda _done, _note: None)
    assert answer.status is Status.DIVERGED
    assert "3 devices" in answer.reason
    assert answer.metrics == {}


def test_one_that_keeps_up_is_not() -> None:
    answer = answer_for(endless(0.1), lambda _done, _note: None)
    assert answer.status is Status.COMPLETE
    assert answer.metrics["n_measured"] == 10


def test_jobs_that_are_counted_never_diverge() -> None:
    """A full queue at the start is what such a run is about."""
    full = point(generate="gavel,jobs=200,interarrival=0,duration=600")
    assert answer_for(full, lambda _done, _note: None).status is Status.COMPLETE
