"""Perturbed copies: other jobs at about the same times."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.job import Arrival, Job, JobId
from fairlead.simulator.traces.perturb import perturbed
from fairlead.simulator.traces.trace import Trace


def trace(gaps: list[float]) -> Trace:
    times = np.cumsum(gaps).tolist()
    arrivals = [Arrival(t, Job(JobId(n + 5), f"net {n}", 1, 10.0 + n)) for n, t in enumerate(times)]
    return Trace("x", "y", arrivals, lines=tuple(range(len(gaps))), devices=tuple(range(len(gaps))))


@given(st.lists(st.floats(0, 1e4), max_size=30), st.integers(0, 5))
def test_a_copy_has_jobs_of_the_trace_at_about_its_times(gaps: list[float], seed: int) -> None:
    before, after = trace(gaps), perturbed(trace(gaps), seed)
    assert [a.job.id for a in after.arrivals] == list(range(len(gaps)))
    known = {
        replace(a.job, id=JobId(0)): d for a, d in zip(before.arrivals, before.devices, strict=True)
    }
    for arrival, devices in zip(after.arrivals, after.devices, strict=True):
        assert known[replace(arrival.job, id=JobId(0))] == devices
    moved = np.diff([a.time_s for a in after.arrivals], prepend=0.0)
    assert (moved >= 0.5 * np.array(gaps) - 1e-6).all()
    assert (moved <= 1.5 * np.array(gaps) + 1e-6).all()


def test_seeds_differ_and_repeat() -> None:
    whole = trace([10.0] * 40)
    one, again, other = (perturbed(whole, seed) for seed in (0, 0, 1))
    assert one == again
    assert one.arrivals != other.arrivals
    assert len({a.job.family for a in one.arrivals}) < 40  # some twice, some not at all
