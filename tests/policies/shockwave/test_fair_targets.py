"""Targets: the time-weighted mean of estimates, kept up with running sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policies.shockwave.fair_targets import Targets


def literal(series: list[tuple[float, float]], now: float, momentum: float) -> float:
    """As the release computes it from the whole series of (when, estimate)."""
    times = [when for when, _ in series] + [now]
    weights = np.diff(times)
    values = np.array([value for _, value in series])
    mean = values[-1] if weights.max() == 0 else float(weights @ values / weights.sum())
    return float(momentum * mean + (1 - momentum) * values[-1])


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(1, 1e5)), min_size=1, max_size=8),
    st.integers(0, 5),
    st.floats(0, 1),
)
def test_running_sums_are_the_series(
    steps: list[tuple[int, float]], later: int, momentum: float
) -> None:
    targets, now = Targets.none(), 0.0
    series: list[tuple[float, float]] = []
    job = np.array([7])
    for k, (wait, value) in enumerate(steps):
        now += wait + (k > 0)  # two estimates are never of one time
        targets = targets.renewed(job, np.array([value]), now)
        series.append((now, value))
    now += later
    assert targets.at(now, momentum)[0] == pytest.approx(literal(series, now, momentum))


def test_those_who_left_are_forgotten_and_newcomers_begin() -> None:
    first = Targets.none().renewed(np.array([1, 2]), np.array([10.0, 20.0]), 0.0)
    second = first.renewed(np.array([2, 5]), np.array([40.0, 50.0]), 10.0)
    assert second.jobs.tolist() == [2, 5]
    assert second.at(20.0, 1.0).tolist() == [30.0, 50.0]
    assert first.jobs.tolist() == [1, 2]  # replaced, not changed
