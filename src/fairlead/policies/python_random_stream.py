"""The stream of Python's ``random.Random``, by position: what a policy needs to draw as Gavel's do.

A policy keeps no state, so it cannot hold a generator. It holds this instead, a pure function of a seed
and a position, and threads the position through its reports.
"""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1024  # words made at once
_POOL = 21  # random.sample(population, 2) picks from a shrinking pool up to this many


class PythonRandomStream:
    """The 32-bit words that ``random.Random(seed)`` makes: MT19937 (Matsumoto, Nishimura 1998).

    Words are made in blocks as they are asked for; only the last block is kept, and going back starts
    over. What is kept is never visible: equal seed and position give equal draws.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._source: np.random.RandomState | None = None
        self._words: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._start = 0  # position of the first word that is kept

    def word(self, position: int) -> int:
        """The word at a position, from 0 on."""
        if self._source is None or position < self._start:
            self._source = np.random.RandomState(_digits(self.seed))  # seeded as random.Random is
            self._words, self._start = self._words[:0], 0
        while position >= self._start + len(self._words):
            self._start += len(self._words)
            self._words = np.frombuffer(self._source.bytes(4 * _BLOCK), "<u4")
        return int(self._words[position - self._start])

    def below(self, limit: int, position: int) -> tuple[int, int]:
        """One of range(limit) and the position behind it: ``Random.randrange(limit)``, limit < 2**32."""
        shift = 32 - limit.bit_length()
        while True:
            drawn = self.word(position) >> shift
            position += 1
            if drawn < limit:
                return drawn, position

    def two_of(self, count: int, position: int) -> tuple[int, int, int]:
        """Two different ones of range(count) and the position behind: ``Random.sample(range(count), 2)``."""
        first, position = self.below(count, position)
        if count <= _POOL:  # the last one takes the place of the first choice
            second, position = self.below(count - 1, position)
            return first, count - 1 if second == first else second, position
        second = first
        while second == first:
            second, position = self.below(count, position)
        return first, second, position


def _digits(seed: int) -> list[int]:
    """The 32-bit digits of a seed, lowest first, without its sign."""
    remainder = abs(seed)
    digits = [remainder & 0xFFFFFFFF]
    while remainder := remainder >> 32:
        digits.append(remainder & 0xFFFFFFFF)
    return digits
