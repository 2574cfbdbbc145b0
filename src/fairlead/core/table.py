"""Aligned arrays that grow and shrink together."""

from typing import Any, ClassVar

import numpy as np

from fairlead.model.arrays import Ints


class Table:
    """Aligned arrays with one row count. The attributes are views of larger buffers, so that adding
    rows seldom copies; they are made anew whenever the number of rows changes."""

    columns: ClassVar[dict[str, Any]] = {}  # name -> dtype, or (dtype, key of a trailing shape)

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.n = 0
        self._buffers: dict[str, Any] = {}
        for name, kind in self.columns.items():
            dtype, shape = (kind[0], shapes[kind[1]]) if isinstance(kind, tuple) else (kind, ())
            self._buffers[name] = np.zeros((16, *shape), dtype)
        self._view()

    def _view(self) -> None:
        for name, buffer in self._buffers.items():
            setattr(self, name, buffer[: self.n])

    def grow(self, rows: int) -> slice:
        """Room for more rows, zeroed; returns where they are."""
        start, self.n = self.n, self.n + rows
        for name, buffer in self._buffers.items():
            if self.n > len(buffer):
                larger = np.zeros((max(self.n, 2 * len(buffer)), *buffer.shape[1:]), buffer.dtype)
                larger[:start] = buffer[:start]
                self._buffers[name] = larger
            else:
                buffer[start : self.n] = 0
        self._view()
        return slice(start, self.n)

    def keep(self, rows: Ints) -> None:
        """Keep these rows, in this order."""
        self.n = len(rows)
        moved = np.flatnonzero(rows != np.arange(self.n))
        if len(moved):  # those before the first that moves stay where they are
            first = int(moved[0])
            for buffer in self._buffers.values():
                buffer[first : self.n] = buffer.take(rows[first:], axis=0)
        self._view()
