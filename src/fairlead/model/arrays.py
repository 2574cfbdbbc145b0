"""Array aliases: the dtype is in the name, the shape stands in a comment at each declaration."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array read-only, in place; return it."""
    array.setflags(write=False)
    return array
