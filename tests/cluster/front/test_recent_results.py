"""What takes long is computed seldom, however often it is asked for."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from fairlead.cluster.front.recent_results import MAX_AGE_S, MAX_RESULTS, PART, RecentResults


class Counting:
    """Counts, and takes its time by a clock of its own."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds, self.calls = 100.0, seconds, 0

    def __call__(self) -> int:
        self.now += self.seconds
        self.calls += 1
        return self.calls


def test_a_quick_result_is_of_the_present() -> None:
    count = Counting(0.0)
    results = RecentResults[int](lambda: count.now)
    assert [results.of("a", count) for _ in range(3)] == [1, 2, 3]


def test_computing_takes_its_part_of_the_time_at_most() -> None:
    count = Counting(0.02)
    results = RecentResults[int](lambda: count.now)
    while count.now < 110.0:
        results.of("a", count)
        count.now += 0.001
    assert 30 <= count.calls <= 10.0 * PART / 0.02 + 1


def test_no_result_is_old() -> None:
    count = Counting(5.0)
    results = RecentResults[int](lambda: count.now)
    assert results.of("a", count) == 1
    count.now += MAX_AGE_S * 0.9
    assert results.of("a", count) == 1
    count.now += MAX_AGE_S * 0.2
    assert results.of("a", count) == 2


def test_keys_have_results_of_their_own_and_few_are_kept() -> None:
    count = Counting(0.02)
    results = RecentResults[int](lambda: count.now)
    assert [results.of(i, count) for i in range(MAX_RESULTS + 1)] == list(range(1, MAX_RESULTS + 2))
    assert len(results._results) == MAX_RESULTS


def test_those_who_ask_at_once_share_a_result() -> None:
    count, barrier = Counting(0.05), Barrier(8)
    results = RecentResults[int](lambda: count.now)

    def ask(_: int) -> int:
        barrier.wait()
        return results.of("a", count)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [1] * 8
