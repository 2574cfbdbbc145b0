"""Aligned arrays that grow and shrink together."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from fairlead.model.arrays import Floats, Ints


class GrowableTable:
    """Aligned arrays with one row count. The attributes are views of larger buffers, so that adding
    rows seldom copies; they are made anew whenever the number of rows changes.

    Columns of one 64-bit number per row are rows of one buffer: whatever happens to all of them is one
    operation of numpy, not one for each. Tables with a row each for the same things share that buffer: one
    of them leads, and the others follow it.
    """

    columns: ClassVar[dict[str, Any]] = {}  # name -> dtype, or (dtype, key of a trailing shape)

    def __init__(self, *followers: "GrowableTable", **shapes: tuple[int, ...]) -> None:
        """followers: empty tables, with columns of one 64-bit number only, that grow and shrink with this
        one from now on, and by nothing else."""
        self.n = 0
        self._followers = followers
        self._ints = self._columns_of(np.int64)
        self._floats = self._columns_of(np.float64)
        tables = self, *followers
        self._int_rows = sum(len(table._ints) for table in tables)
        rows = self._int_rows + sum(len(table._floats) for table in tables)
        self._block: Ints = np.zeros((rows, 16), np.int64)
        self._wide: dict[str, Any] = {}
        for name, column_type in self.columns.items():
            if name not in self._ints and name not in self._floats:
                dtype, shape = (
                    (column_type[0], shapes[column_type[1]])
                    if isinstance(column_type, tuple)
                    else (column_type, ())
                )
                self._wide[name] = np.zeros((16, *shape), dtype)
        self._set_views()

    def _columns_of(self, dtype: type) -> tuple[str, ...]:
        """The columns of one number of this type per row."""
        return tuple(name for name, one in self.columns.items() if one is dtype)

    def _set_views(self) -> None:
        n = self.n
        ints = iter(self._block[: self._int_rows, :n])
        floats = iter(self._block[self._int_rows :, :n].view(np.float64))
        self._take(n, ints, floats)
        for table in self._followers:
            table._take(n, ints, floats)
        attributes = self.__dict__
        for name, buffer in self._wide.items():
            attributes[name] = buffer[:n]

    def _take(self, n: int, ints: Iterator[Ints], floats: Iterator[Floats]) -> None:
        """Set the attributes for the columns of one number per row to the next of these views, of n rows."""
        self.n = n
        attributes = self.__dict__
        attributes.update(zip(self._ints, ints, strict=False))
        attributes.update(zip(self._floats, floats, strict=False))

    def grow(self, rows: int) -> slice:
        """Add rows of zeros at the end; return where they are."""
        start, self.n = self.n, self.n + rows
        if self.n > self._block.shape[1]:
            self._enlarge(max(self.n, 2 * self._block.shape[1]), start)
        else:
            self._block[:, start : self.n] = 0
            for buffer in self._wide.values():
                buffer[start : self.n] = 0
        self._set_views()
        return slice(start, self.n)

    def _enlarge(self, size: int, used: int) -> None:
        """Replace the buffers by larger ones, zero after the rows in use."""
        block = np.zeros((len(self._block), size), np.int64)
        block[:, :used] = self._block[:, :used]
        self._block = block
        for name, buffer in self._wide.items():
            larger = np.zeros((size, *buffer.shape[1:]), buffer.dtype)
            larger[:used] = buffer[:used]
            self._wide[name] = larger

    def keep(self, rows: Ints, since: int = 0) -> None:
        """Keep these rows, in this order; the first ``since`` of them stay where they are."""
        self.n = n = len(rows)
        if since < n:
            moved = rows[since:]
            self._block[:, since:n] = self._block.take(moved, axis=1)
            for buffer in self._wide.values():
                buffer[since:n] = buffer.take(moved, axis=0)
        self._set_views()
