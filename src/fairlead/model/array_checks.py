"""Arrays in answers from outside have the types that are asked for; an error names one that has not."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import AllocationError
from fairlead.model.argument_checks import brief_repr
from fairlead.model.arrays import Ints

_DIMENSIONS = {1: "one dimension", 2: "two dimensions"}


def as_numbers(name: str, given: object, kinds: str = "fiu") -> NDArray[Any]:
    """The array. kinds: those of NumPy's types that it may have; one without elements may have any."""
    try:
        array = np.asarray(given)
    except ValueError as problem:  # rows of different lengths
        raise AllocationError(f"{name} must be an array of numbers: {problem}") from None
    if array.dtype.kind not in kinds and array.size:
        raise AllocationError(f"{name} must be numbers, got {array.dtype}")
    return array


def as_whole_numbers(name: str, given: object, dimensions: int = 1) -> Ints:
    """A copy in 64 bits, which kernels take."""
    array = as_numbers(name, given, "fiubOUS")
    if array.ndim != dimensions or (array.dtype.kind not in "iu" and array.size):
        raise AllocationError(
            f"{name} must be whole numbers in {_DIMENSIONS[dimensions]}, got {brief_repr(given)}"
        )
    return np.array(array, np.int64, order="C")
