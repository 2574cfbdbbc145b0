"""The middle of the best answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairlead.model.arrays import Floats
from fairlead.policies.solve.analytic_centre import (
    Multiplicity,
    SparseColumns,
    analytic_centre,
)


def columns(matrix: Floats) -> SparseColumns:
    start = np.concatenate([[0], np.cumsum((matrix != 0).sum(axis=0))])
    column, row = np.nonzero(matrix.T)
    return SparseColumns(start, np.ascontiguousarray(row), matrix.T[column, row])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_it_is_optimal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, variables = rng.integers(2, 12), rng.integers(2, 25)
    matrix = rng.random((rows, variables)) * (rng.random((rows, variables)) < 0.5)
    matrix[0] += 0.1  # bounded
    b, c = rng.random(rows) + 0.1, rng.normal(size=variables)
    found = analytic_centre(columns(matrix), b, c)
    assert found is not None
    x = found.x
    assert (matrix @ x <= b + 1e-6).all()
    best = linprog(-c, A_ub=matrix, b_ub=b, method="highs")
    assert best.fun is not None
    assert c @ x == pytest.approx(-best.fun, rel=1e-6, abs=1e-6)
    assert b @ found.price == pytest.approx(-best.fun, rel=1e-6, abs=1e-6)
    assert (matrix.T @ found.price >= c - 1e-6).all()


def test_it_is_in_the_middle() -> None:
    """x + y <= 1 with nothing to gain from either: the point farthest from all bounds."""
    found = analytic_centre(columns(np.array([[1.0, 1.0]])), np.ones(1), np.zeros(2))
    assert found is not None
    assert found.x == pytest.approx([1 / 3, 1 / 3], abs=1e-4)


def test_like_columns_get_the_same() -> None:
    matrix = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 0.0]])
    found = analytic_centre(columns(matrix), np.array([1.0, 1.0]), np.ones(3))
    assert found is not None
    assert found.x[0] == pytest.approx(found.x[1], abs=1e-9)
    assert found.x.sum() == pytest.approx(1.0, abs=1e-6)


def test_columns_and_rows_that_are_alike_may_be_one_that_counts_as_often() -> None:
    """Three jobs of one kind and two of another on two types, one by one and by kind."""
    rate, kinds = np.array([[2.0, 1.0], [1.0, 1.5]]), np.array([0, 0, 0, 1, 1])
    capacity = np.array([2.0, 1.0])
    count = np.bincount(kinds).astype(np.float64)
    alone = _shares(rate[kinds], np.ones(5), capacity)
    together = _shares(rate, count, capacity)
    assert together[kinds] == pytest.approx(alone, abs=1e-7)
    assert count @ together == pytest.approx(capacity, abs=1e-6)


def _shares(rate: Floats, count: Floats, capacity: Floats) -> Floats:
    """max z with the rate of each job at least z, its time, and devices; count: jobs of each row."""
    n, slots = rate.shape
    job, slot = np.divmod(np.arange(n * slots), slots)
    row = np.column_stack([job, n + job, 2 * n + slot])
    value = np.column_stack([-rate.reshape(-1), np.ones(n * slots), 1 / capacity[slot]])
    start = np.append(np.arange(0, 3 * n * slots + 1, 3), 3 * n * slots + n)
    entries = SparseColumns(start, np.append(row, np.arange(n)), np.append(value, count))
    b, c = np.append(np.zeros(n), np.ones(n + slots)), np.append(np.zeros(n * slots), 1.0)
    multiplicity = Multiplicity(
        np.append(np.repeat(count, slots), 1.0), np.concatenate([count, count, np.ones(slots)])
    )
    found = analytic_centre(entries, b, c, multiplicity=multiplicity)
    assert found is not None
    return found.x[:-1].reshape(n, slots)
