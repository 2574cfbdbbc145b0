"""Questions that the front answers by itself take a part of its time, however many ask."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlead.cluster.front.time_share import MAX_WAIT_S, PART, TimeShare


class Clock:
    """Time passes when somebody sleeps or computes."""

    def __init__(self) -> None:
        self.now = 100.0

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def part(clock: Clock) -> TimeShare:
    return TimeShare(lambda: clock.now, clock.pass_)


def test_whoever_asks_without_a_pause_gets_a_part_of_the_time(
    clock: Clock, part: TimeShare
) -> None:
    for _ in range(100):
        with part.turn():
            clock.pass_(0.003)
    assert clock.now - 100.0 == pytest.approx(0.3 / PART, rel=0.02)


def test_after_a_pause_nobody_waits(clock: Clock, part: TimeShare) -> None:
    with part.turn():
        clock.pass_(0.003)
    clock.pass_(0.1)
    before = clock.now
    with part.turn():
        assert clock.now == before


def test_a_long_answer_holds_up_the_next_for_a_bounded_time(clock: Clock, part: TimeShare) -> None:
    with part.turn():
        clock.pass_(3.0)
    before = clock.now
    with part.turn():
        assert clock.now == pytest.approx(before + MAX_WAIT_S)


def test_what_fails_counts_and_gives_the_turn_back(clock: Clock, part: TimeShare) -> None:
    def fail() -> None:
        with part.turn():
            clock.pass_(0.01)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    before = clock.now
    with part.turn():
        assert clock.now == pytest.approx(before + 0.01 * (1 / PART - 1))


def test_one_thread_at_a_time(clock: Clock, part: TimeShare) -> None:
    inside: list[int] = []

    def ask(number: int) -> int:
        with part.turn():
            inside.append(number)
            found = len(inside)
            clock.pass_(0.001)
            inside.remove(number)
            return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(40))) == [1] * 40
