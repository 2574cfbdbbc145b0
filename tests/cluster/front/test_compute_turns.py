"""However many threads compute answers, the event loop has its turn soon."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlead.cluster.front.compute_turns import AT_ONCE, MAX_REST_S, ComputeTurns, caller


class Clock:
    """Time passes when a thread sleeps or computes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def compute(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> ComputeTurns:
    return ComputeTurns(clock.read, clock.sleep, clock.read)


def test_so_many_threads_compute_at_once_and_no_more() -> None:
    turns = ComputeTurns()
    inside: set[int] = set()
    most: list[int] = []
    both = threading.Barrier(AT_ONCE)

    def compute(number: int) -> None:
        with turns.turn():
            inside.add(number)
            most.append(len(inside))
            both.wait(60)  # so that all turns are taken
            inside.discard(number)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(compute, range(20 * AT_ONCE)))
    assert max(most) == AT_ONCE


def test_a_turn_rests_as_long_as_was_computed(clock: Clock, turns: ComputeTurns) -> None:
    for _ in range(AT_ONCE):
        with turns.turn():
            clock.compute(0.04)
    assert clock.slept == []
    with turns.turn():  # the first one has rested during the second
        pass
    with turns.turn():
        assert clock.slept == [pytest.approx(0.04)]


def test_a_rest_is_bounded(clock: Clock, turns: ComputeTurns) -> None:
    with turns.turn():
        clock.compute(60.0)
    for _ in range(AT_ONCE):
        with turns.turn():
            pass
    assert clock.slept == [pytest.approx(MAX_REST_S)]


def test_who_waits_lets_others_compute_and_what_fails_gives_its_turn_back(
    turns: ComputeTurns,
) -> None:
    def fail() -> None:
        with turns.turn(), turns.turn(), turns.waiting():
            raise KeyError

    for _ in range(3 * AT_ONCE):
        with pytest.raises(KeyError):
            fail()

    def compute() -> bool:
        with turns.turn():
            return True

    with turns.turn(), turns.waiting(), ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(compute) for _ in range(AT_ONCE)]
        assert all(one.result(60) for one in asked)
    with turns.waiting():  # without a turn there is none to give back
        pass
    assert len(turns._free) == AT_ONCE


def test_who_asks_once_does_not_wait_for_all_that_another_asks_for(turns: ComputeTurns) -> None:
    """Dozens of large lists for one user made another one wait for seconds."""
    order: list[str] = []

    def ask(user: str) -> None:
        caller.set(user)  # of this thread
        with turns.turn():
            order.append(user)

    let_go = threading.Event()
    taken = threading.Barrier(AT_ONCE + 1)

    def hold() -> None:
        with turns.turn():
            taken.wait(60)
            let_go.wait(60)

    asking = ["ann"] * 20 + ["ben"] * 2 + ["cho"]
    with ThreadPoolExecutor(AT_ONCE + len(asking)) as pool:
        for _ in range(AT_ONCE):
            pool.submit(hold)
        taken.wait(60)
        for position, user in enumerate(asking):
            pool.submit(ask, user)
            while turns.waiting_threads <= position:
                time.sleep(0.001)
        let_go.set()
    assert sorted(order) == asking
    assert max(place for place, user in enumerate(order) if user != "ann") < 5 + 2 * AT_ONCE
