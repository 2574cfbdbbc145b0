"""Questions are passed on at a bounded rate."""

import pytest

from fairlead.cluster.front.rate_limiter import BURST, MAX_WAIT_S, PER_S, RateLimiter


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_whoever_asks_without_a_pause_gets_so_many_answers_a_second() -> None:
    clock = Clock()
    pace = RateLimiter(lambda: clock.now, clock.sleep)
    for _ in range(500):
        pace.wait()
    assert clock.now - 100.0 == pytest.approx((499 - BURST) / PER_S)


def test_after_a_pause_some_are_not_held_up() -> None:
    clock = Clock()
    pace = RateLimiter(lambda: clock.now, clock.sleep)
    for _ in range(100):
        pace.wait()
    clock.now += 10.0
    clock.slept.clear()
    for _ in range(BURST + 1):
        pace.wait()
    assert clock.slept == []
    pace.wait()
    assert clock.slept == [pytest.approx(1 / PER_S)]


def test_nobody_waits_longer_than_a_bound_however_many_ask_at_once() -> None:
    asked: list[float] = []
    pace = RateLimiter(lambda: 100.0, asked.append)
    for _ in range(1_000):
        pace.wait()
    assert max(asked) == pytest.approx(MAX_WAIT_S)
