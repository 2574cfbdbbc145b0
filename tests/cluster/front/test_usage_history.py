"""How busy the devices of jobs were over time, as the front keeps it."""

import pytest

from fairlead.cluster.front.usage_history import POINTS, WIDTH_S, UsageHistory
from fairlead.cluster.protocol.messages import AttemptStatus, DeviceUsage

GIB = 1 << 30


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def status(
    job: int, busy: float, used: int = 2, *, attempt: int = 1, devices: int = 1
) -> AttemptStatus:
    usage = tuple(
        DeviceUsage(
            rank=i, device=i, busy=busy, memory_bytes=used * GIB, memory_total_bytes=16 * GIB
        )
        for i in range(devices)
    )
    return AttemptStatus(job=job, attempt=attempt, state="running", usage=usage)


def test_points_are_means_of_utilisation_and_the_most_memory() -> None:
    clock = Clock()
    history = UsageHistory(clock)
    history.note("a", [status(7, 0.5, 2), status(8, 1.0)])
    clock.now += WIDTH_S / 2
    history.note("a", [status(7, 1.0, 3), AttemptStatus(job=9, attempt=1, state="running")])
    clock.now += 2 * WIDTH_S
    history.note("a", [status(7, -1.0, 1)])
    (view,) = history.of(7, now_s=500.0)
    assert (view.attempt, view.rank, view.node, view.device) == (1, 0, "a", 0)
    assert view.busy == (0.75, None, None)
    assert view.memory_bytes == (3 * GIB, None, 1 * GIB)
    assert view.memory_total_bytes == 16 * GIB
    assert view.start_s == pytest.approx(500.0 - 2.5 * WIDTH_S)
    assert history.of(9, 500.0) == []


def test_a_long_job_has_no_more_points_than_a_short_one_and_the_same_mean() -> None:
    clock = Clock()
    history = UsageHistory(clock)
    for i in range(10 * POINTS + 1):
        history.note("a", [status(1, i % 2 * 0.5, i % 8)])
        clock.now += WIDTH_S
    (view,) = history.of(1, 0.0)
    assert len(view.busy) <= POINTS
    assert view.width_s == 16 * WIDTH_S
    assert set(view.busy[:-1]) == {0.25}
    assert set(view.memory_bytes[:-1]) == {7 * GIB}


def test_jobs_of_which_nobody_has_told_for_longest_are_forgotten() -> None:
    history = UsageHistory(Clock(), max_series=8)
    for job in range(5):
        history.note("a", [status(job, 0.5, devices=2)])
        history.note("a", [status(0, 0.5, devices=2)])
    assert [job for job in range(5) if history.of(job, 0.0)] == [0, 2, 3, 4]
    history.note("b", [status(0, 0.5, attempt=2, devices=9)])
    assert len(history.of(0, 0.0)) == 11  # of one job all is kept
