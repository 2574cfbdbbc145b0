"""Small dense systems inside compiled kernels, and how far a step may go."""

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.jit import kernel


@kernel("void(f8[:,:,::1], i8)", inline="always")
def factor_spd(matrix: Floats, c: int) -> None:
    """The lower factor of a symmetric positive definite matrix, matrix[c], in place (Cholesky)."""
    n = matrix.shape[1]
    for j in range(n):
        pivot = matrix[c, j, j]
        least = 1e-14 * pivot  # near the end rounding can make a pivot vanish
        for k in range(j):
            pivot -= matrix[c, j, k] * matrix[c, j, k]
        pivot = np.sqrt(max(pivot, least))
        matrix[c, j, j] = pivot
        for i in range(j + 1, n):
            value = matrix[c, i, j]  # a sum in memory would be written and read at each step
            for k in range(j):
                value -= matrix[c, i, k] * matrix[c, j, k]
            matrix[c, i, j] = value / pivot


@kernel("void(f8[:,:,::1], i8, f8[:,:,::1])", inline="always")
def solve_factored(factor: Floats, c: int, right: Floats) -> None:
    """Solve matrix @ x = right[c] in place, for a factor[c] of ``factor_spd``."""
    n, columns = right.shape[1:]
    for i in range(n):
        pivot = factor[c, i, i]
        for q in range(columns):  # within, so that no division waits for the one before
            value = right[c, i, q]
            for k in range(i):
                value -= factor[c, i, k] * right[c, k, q]
            right[c, i, q] = value / pivot
    for i in range(n - 1, -1, -1):
        pivot = factor[c, i, i]
        for q in range(columns):
            value = right[c, i, q]
            for k in range(i + 1, n):
                value -= factor[c, k, i] * right[c, k, q]
            right[c, i, q] = value / pivot


@kernel("void(f8[:,::1], f8[:,::1])", allocates=False)
def solve_general(matrix: Floats, right: Floats) -> None:
    """Solve matrix @ x = right in place (Gauss, partial pivoting). A library's kernel would depend on the
    processor in its last bits, and so would the journal."""
    n, columns = right.shape
    for j in range(n):
        best = j
        for i in range(j + 1, n):
            if abs(matrix[i, j]) > abs(matrix[best, j]):
                best = i
        if best != j:
            for k in range(j, n):
                matrix[j, k], matrix[best, k] = matrix[best, k], matrix[j, k]
            for k in range(columns):
                right[j, k], right[best, k] = right[best, k], right[j, k]
        pivot = matrix[j, j] if matrix[j, j] != 0 else 1e-300
        for i in range(j + 1, n):
            factor = matrix[i, j] / pivot
            if factor == 0:
                continue
            for k in range(j + 1, n):
                matrix[i, k] -= factor * matrix[j, k]
            for k in range(columns):
                right[i, k] -= factor * right[j, k]
        matrix[j, j] = pivot
    for i in range(n - 1, -1, -1):
        for c in range(columns):
            for k in range(i + 1, n):
                right[i, c] -= matrix[i, k] * right[k, c]
            right[i, c] /= matrix[i, i]


@kernel("void(f8[:,::1])", allocates=False)
def cholesky(matrix: Floats) -> None:
    """The lower factor of a symmetric positive definite matrix, in place; zeros above. One order of sums, on
    one core: a library's factor depends in its last bits on the processor and its number of threads."""
    n = len(matrix)
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            if i == j:
                matrix[i, i] = np.sqrt(max(total, 1e-14 * matrix[i, i]))
            else:
                matrix[i, j] = total / matrix[j, j]
        for j in range(i + 1, n):
            matrix[i, j] = 0.0


@kernel("void(f8[:,::1], f8[:,::1])", allocates=False)
def solve_lower(factor: Floats, right: Floats) -> None:
    """Solve factor @ x = right in place, for a lower triangular factor."""
    n, columns = right.shape
    for i in range(n):
        for k in range(i):
            part = factor[i, k]
            if part != 0:
                for c in range(columns):
                    right[i, c] -= part * right[k, c]
        for c in range(columns):
            right[i, c] /= factor[i, i]


@kernel("f8(f8[::1], f8[::1])", allocates=False)
def max_step(value: Floats, step: Floats) -> float:
    """The largest part of a step, at most 1, that leaves every value positive."""
    part = 1.0
    for i in range(len(value)):
        if step[i] < 0:
            part = min(part, -value[i] / step[i])
    return part
