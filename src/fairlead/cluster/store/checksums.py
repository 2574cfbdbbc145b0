"""Checksums of what the store writes: of a row, of all rows together, and of a chain of commits.

They find damage, not forgery: whoever may write the files can also compute the sums.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

import msgspec

SIZE = 16  # bytes of a checksum
EMPTY_SUM = bytes(SIZE)  # of nothing: where a chain begins, and the total of no rows
_MODULUS = 1 << (8 * SIZE)

Value: TypeAlias = int | float | str | bytes | None  # of a column

_encode = msgspec.msgpack.Encoder().encode


def row_sum(table: str, values: Iterable[Value]) -> bytes:
    """The checksum of a row of this table."""
    return blake2b(_encode((table, *values)), digest_size=SIZE).digest()


def link(parts: Iterable[Value]) -> bytes:
    """The checksum of a sequence of values, that of the link before among them."""
    return blake2b(_encode(tuple(parts)), digest_size=SIZE).digest()


class Total:
    """The sum of the checksums of a set of rows, whatever their order: a row that is missing, comes twice or
    is an older version of itself changes it."""

    def __init__(self, value: bytes = EMPTY_SUM) -> None:
        self._value = int.from_bytes(value)

    def add(self, checksum: bytes) -> None:
        """A row comes into the set."""
        self._value += int.from_bytes(checksum)

    def remove(self, checksum: bytes) -> None:
        """A row leaves it."""
        self._value -= int.from_bytes(checksum)

    def value(self) -> bytes:
        """SIZE bytes."""
        return (self._value % _MODULUS).to_bytes(SIZE)
