"""Random numbers without a stream: a pure function of a seed and a number."""

import numpy as np
from numpy.typing import NDArray

from fairlead.model.arrays import Ints

_MASK = (1 << 64) - 1


def hash_choice(seed: int, number: int, choices: int) -> int:
    """One of range(choices), evenly; the same for the same seed and number, in any order of calls.

    Two rounds of the SplitMix64 finaliser (Steele, Lea, Flood 2014) over seed and number.
    """
    mixed = _mix(_mix(seed & _MASK) ^ (number & _MASK))
    return mixed * choices >> 64


def hash_choices(seed: int, numbers: Ints) -> NDArray[np.uint64]:
    """``hash_choice`` for many numbers, out of range(2^64)."""
    return _mix_all(np.uint64(_mix(seed & _MASK)) ^ numbers.astype(np.uint64))


def _mix_all(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)  # arrays of unsigned integers wrap around
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)
