"""Kernels take records of arrays."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from fairlead.model import jit
from fairlead.model.arrays import Floats
from fairlead.model.jit import kernel
from fairlead.model.jit_records import (
    Floats1,
    Floats2,
    Ints1,
    resolve_signature,
    takes_records,
)


class Inner(NamedTuple):
    """Arrays and scalars."""

    sums: Floats1
    table: Floats2
    offset: int
    factor: float


class Outer(NamedTuple):
    """A record in a record."""

    inner: Inner
    rows: Ints1


@kernel("void(Inner, i8)")
def _add_row(inner: Inner, row: int) -> None:
    inner.sums[row] += inner.factor * inner.table[row].sum() + inner.offset


@kernel("void(Outer)")
def _add_rows(outer: Outer) -> None:
    more = Inner(
        sums=outer.inner.sums, table=outer.inner.table, offset=1, factor=outer.inner.factor
    )
    for row in outer.rows:
        _add_row(outer.inner, row)
        _add_row(more, row)


def test_a_kernel_changes_the_arrays_of_a_record_in_a_record() -> None:
    sums: Floats = np.zeros(3)
    inner = Inner(sums=sums, table=np.ones((3, 2)), offset=10, factor=0.5)
    _add_rows(Outer(inner=inner, rows=np.array([0, 2])))
    assert sums.tolist() == [13.0, 0.0, 13.0]


def test_a_signature_without_records_stays_the_text_that_numba_reads() -> None:
    assert resolve_signature("f8(i8[::1])", {"i8": 3}) == "f8(i8[::1])"


def test_two_modules_may_have_records_of_one_name() -> None:
    signature = resolve_signature("void(Inner)", {"Inner": Inner})
    assert signature.args[0].instance_class is Inner


def test_the_tests_compare_arrays_in_records_with_the_signature() -> None:
    wrong = Inner(sums=np.zeros(2, np.float32), table=np.ones((2, 3)), offset=0, factor=1.0)
    with pytest.raises(TypeError, match="No matching definition"):
        _add_row(wrong, 0)


def test_without_the_comparison_a_kernel_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.model.jit.CHECK_RECORDS", False)
    unchecked = kernel("void(Inner, i8)")(_add_row.function)  # type: ignore[attr-defined]
    inner = Inner(sums=np.zeros(2), table=np.ones((2, 3)), offset=1, factor=2.0)
    unchecked(inner, 1)
    assert inner.sums.tolist() == [0.0, 7.0]
    assert unchecked._entry is not unchecked._compiled


def test_without_records_arrays_are_always_compared() -> None:
    known = {"Inner": Inner, "Outer": Outer}
    assert takes_records("f8(Inner, Outer, i8)", known)
    assert takes_records("f8(f8[::1], Inner)", known)
    assert not takes_records("f8(f8[::1])", known)


def _makes_arrays(made: Any) -> bool:
    """Whether a kernel returns an array, alone or in a tuple."""
    return isinstance(made, numba.types.Array) or any(
        map(_makes_arrays, getattr(made, "types", ()))
    )


def _returned(one: jit._Kernel) -> Iterator[Any]:
    """numba's types of what a kernel returns."""
    normalize: Any = numba.core.sigutils.normalize_signature
    for signature in one._resolved_signatures():
        yield normalize(signature)[1]


def test_kernels_without_reference_counts_return_no_arrays_and_get_none() -> None:
    """An array that one of them returned would be freed too early; one that it got would never be."""
    for name in jit.modules_with_kernels():
        import_module(name)
    uncounted = [one for one in jit._kernels if not one.allocates]
    assert len(uncounted) > 50
    for one in uncounted:
        known = one.function.__globals__
        called = [known.get(name) for name in one.function.__code__.co_names]
        for each in [one, *(other for other in called if isinstance(other, jit._Kernel))]:
            assert not any(map(_makes_arrays, _returned(each))), (one, each)
