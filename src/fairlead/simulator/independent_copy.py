"""Copies of whole simulations."""

import io
import pickle
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def independent_copy(thing: T) -> T:
    """A copy that shares nothing with the original. Unlike those of ``copy.deepcopy``, arrays in it that
    are views of others stay views of the copies of these."""
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(thing)
    stream.seek(0)
    made: T = pickle.load(stream)
    return made


class _Pickler(pickle.Pickler):
    """Pickles views as views; in this process alone."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make an array again: from the array that owns its memory, where it does not
        itself."""
        if type(obj) is not np.ndarray or type(obj.base) is not np.ndarray:
            return NotImplemented
        owner = obj.base
        if type(owner.base) is np.ndarray or not owner.flags.c_contiguous:
            return NotImplemented
        offset = obj.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return _view, (owner, obj.shape, obj.dtype, offset, obj.strides, obj.flags.writeable)


def _view(
    owner: Any, shape: Any, dtype: Any, offset: int, strides: Any, writeable: bool
) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = np.ndarray(shape, dtype, owner, offset, strides)
    made.flags.writeable = writeable
    return made
