"""The stream of Python's random.Random, by position."""

import random

import pytest

from fairlead.policies.python_random_stream import PythonRandomStream


@pytest.mark.parametrize("seed", [0, 1, 7, -3, 2**32 - 1, 2**32, 2**70 + 5])
def test_words_and_samples_are_those_of_the_standard_library(seed: int) -> None:
    known, mine = random.Random(seed), PythonRandomStream(seed)
    assert [mine.word(i) for i in range(3000)] == [known.getrandbits(32) for _ in range(3000)]
    known, position = random.Random(seed), 0
    for number in range(2000):
        count = 2 + number % 50  # both ways in which random.sample goes about it
        a, b, position = mine.two_of(count, position)
        assert [a, b] == known.sample(range(count), 2)


def test_a_position_says_all_there_is_to_know() -> None:
    mine, other = PythonRandomStream(5), PythonRandomStream(5)
    ahead = [mine.word(i) for i in range(5000)]
    assert other.word(4321) == ahead[4321]
    assert mine.word(3) == ahead[3]
