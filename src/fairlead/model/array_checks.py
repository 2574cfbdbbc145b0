"""Check arrays in answers of policies and planners from outside; the error names the array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import AllocationError
from fairlead.model.argument_checks import brief_repr
from fairlead.model.arrays import Ints

_DIMENSIONS = {1: "one dimension", 2: "two dimensions"}


def as_numbers(name: str, given: object, kinds: str = "fiu") -> NDArray[Any]:
    """Return the array. kinds: codes of ``dtype.kind`` that it may have; an empty array may have any. Raises
    AllocationError for any other."""
    try:
        array = np.asarray(given)
    except ValueError as problem:  # rows of different lengths
        raise AllocationError(f"{name} must be an array of numbers: {problem}") from None
    if array.dtype.kind not in kinds and array.size:
        raise AllocationError(f"{name} must be numbers, got {array.dtype}")
    return array


def as_whole_numbers(name: str, given: object, dimensions: int = 1) -> Ints:
    """Return a copy as 64-bit integers, which kernels take. Raises AllocationError for anything else."""
    array = as_numbers(name, given, "fiubOUS")
    if array.ndim != dimensions or (array.dtype.kind not in "iu" and array.size):
        raise AllocationError(
            f"{name} must be whole numbers in {_DIMENSIONS[dimensions]}, got {brief_repr(given)}"
        )
    return np.array(array, np.int64, order="C")
