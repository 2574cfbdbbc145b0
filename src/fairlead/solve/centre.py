"""The middle of the best answers of a linear programme, for small programmes of any form.

    max c x   s.t.   A x <= b,   x >= 0

Mehrotra's predictor and corrector (SIAM J. Optim. 2(4), 1992) from an infeasible start, with centring
steps near the end; the normal equations are dense in the rows, so this is for hundreds of rows, not for
thousands. ``fairlead.solve.interior`` does the same for max-min shares without pairs at any size.

Gavel's release solves with an interior-point solver, and which of many optima it ends at shapes its
published averages: the gavel profile wants this answer, not a corner.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.jit import kernel
from fairlead.model.arrays import Floats, Ints
from fairlead.solve.dense import reach

STEPS = 200
CENTRING = 5
CENTRE_FROM = 1e-4
_STEP = 0.99


@dataclass(frozen=True, slots=True)
class Columns:
    """A by columns: column k has rows index[start[k]:start[k + 1]]."""

    start: Ints
    index: Ints
    value: Floats


def centre(a: Columns, b: Floats, c: Floats, tolerance: float = 1e-8) -> Floats | None:
    """(columns,) the middle of the best answers; None where rounding kept it from being found."""
    x, gap, residual = _centre(a.start, a.index, a.value, b, c, tolerance)
    return x if gap < 100 * tolerance and residual < 100 * tolerance else None


@kernel("void(f8[:,::1])")
def _factor(matrix: Floats) -> None:
    """Cholesky in place, lower triangle; pivots that rounding makes vanish are kept large."""
    n = len(matrix)
    for j in range(n):
        least = 1e-13 * matrix[j, j]
        for k in range(j):
            matrix[j, j] -= matrix[j, k] * matrix[j, k]
        matrix[j, j] = np.sqrt(matrix[j, j]) if matrix[j, j] > least else 1e64
        for i in range(j + 1, n):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / matrix[j, j]


@kernel("void(f8[:,::1], f8[::1])")
def _back(factor: Floats, right: Floats) -> None:
    """Solve with a factor, in place."""
    n = len(right)
    for i in range(n):
        for k in range(i):
            right[i] -= factor[i, k] * right[k]
        right[i] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            right[i] -= factor[k, i] * right[k]
        right[i] /= factor[i, i]


@kernel("Tuple((f8[::1], f8, f8))(i8[::1], i8[::1], f8[::1], f8[::1], f8[::1], f8)")
def _centre(
    start: Ints, index: Ints, value: Floats, b: Floats, c: Floats, tolerance: float
) -> tuple[Floats, float, float]:
    """x, the gap of the products relative to the objective, and the largest residual relative to b, c."""
    columns, rows = len(c), len(b)
    x, w = np.ones(columns), np.ones(columns)
    s, y = np.ones(rows), np.ones(rows)
    dx, dw, ds, dy = np.zeros(columns), np.zeros(columns), np.zeros(rows), np.zeros(rows)
    r_primal, r_dual = np.empty(rows), np.empty(columns)
    target_x, target_s = np.empty(columns), np.empty(rows)
    matrix = np.empty((rows, rows))
    largest_b = 1.0 + np.abs(b).max()
    largest_c = 1.0 + np.abs(c).max()
    gap = residual = np.inf
    centred = 0
    for _ in range(STEPS):
        r_primal[:] = b - s
        for k in range(columns):
            total = -c[k] - w[k]
            for e in range(start[k], start[k + 1]):
                r_primal[index[e]] -= value[e] * x[k]
                total += value[e] * y[index[e]]
            r_dual[k] = -total  # A'y - w = c
        residual = max(np.abs(r_primal).max() / largest_b, np.abs(r_dual).max() / largest_c)
        mu = (x @ w + s @ y) / (columns + rows)
        gap = float((x @ w + s @ y) / (1.0 + abs(c @ x)))
        if gap < tolerance and residual < 100 * tolerance:  # rounding keeps it from falling further
            break
        # dw = A'dy - r_dual;  x dw + w dx = target;  s dy + y ds = target;  A dx + ds = r_primal
        matrix[:] = 0.0
        for k in range(columns):
            d = x[k] / w[k]
            for e in range(start[k], start[k + 1]):
                for f in range(start[k], start[k + 1]):
                    if index[f] <= index[e]:
                        matrix[index[e], index[f]] += d * value[e] * value[f]
        for i in range(rows):
            matrix[i, i] += s[i] / y[i]
        _factor(matrix)
        near = gap < CENTRE_FROM and residual < 1e-6 and centred < CENTRING
        if near:
            centred += 1
        for phase in range(2):
            if phase == 0:
                if near:
                    continue
                target_x[:] = -x * w
                target_s[:] = -s * y
            elif near:
                target_x[:] = mu - x * w
                target_s[:] = mu - s * y
            else:
                forward = min(reach(x, dx), reach(s, ds))
                backward = min(reach(w, dw), reach(y, dy))
                after = ((x + forward * dx) @ (w + backward * dw)) + (
                    (s + forward * ds) @ (y + backward * dy)
                )
                goal = mu * (after / (columns + rows) / mu) ** 3
                target_x[:] = goal - x * w - dx * dw
                target_s[:] = goal - s * y - ds * dy
            dy[:] = target_s / y - r_primal
            for k in range(columns):
                along = (target_x[k] + x[k] * r_dual[k]) / w[k]
                for e in range(start[k], start[k + 1]):
                    dy[index[e]] += value[e] * along
            _back(matrix, dy)
            for k in range(columns):
                total = -r_dual[k]
                for e in range(start[k], start[k + 1]):
                    total += value[e] * dy[index[e]]
                dw[k] = total
                dx[k] = (target_x[k] - x[k] * total) / w[k]
            ds[:] = (target_s - s * dy) / y
        forward = min(1.0, _STEP * min(reach(x, dx), reach(s, ds)))
        backward = min(1.0, _STEP * min(reach(w, dw), reach(y, dy)))
        x = np.maximum(x + forward * dx, 1e-300)
        s = np.maximum(s + forward * ds, 1e-300)
        w = np.maximum(w + backward * dw, 1e-300)
        y = np.maximum(y + backward * dy, 1e-300)
    return x, gap, residual


def central_shares(
    rate: Floats,
    scale: Ints,
    slot_type: Ints,
    capacity: Floats,
    kind: Ints,
    beside: Floats | None,
    worth: Floats,
) -> tuple[Floats, Ints, Floats] | None:
    """The middle of the best shares of jobs alone (jobs, slots), and of pairs: (pairs, 2) positions and
    (pairs, slots); None where it was not found. Every job
    is on its own and every pair of equal scale factor is offered, whatever it
    is worth, as in Gavel's programmes.

    The largest z with worth_i t_i >= z, time and devices.
    rate: (jobs, slots); worth: (jobs,), 0 = no row; beside: (kinds, kinds, slots) or None = no pairs.
    """
    n, slots = rate.shape
    types = len(capacity)
    first, second = np.arange(n), np.full(n, -1)
    if beside is not None:
        i, j = np.triu_indices(n, 1)
        alike = scale[i] == scale[j]
        first, second = np.concatenate([first, i[alike]]), np.concatenate([second, j[alike]])
    pair = second >= 0
    mate = np.where(pair, second, first)
    mine, yours = rate[first], np.zeros((len(first), slots))
    if beside is not None:
        mine[pair] = beside[kind[first[pair]], kind[second[pair]]]
        yours[pair] = beside[kind[second[pair]], kind[first[pair]]]
    units = len(first)
    largest = worth * rate.max(axis=1, initial=0.0)
    worth = worth / np.where(largest > 0, largest, 1.0)
    row = np.full((units, slots, 5), -1, np.int64)
    value = np.zeros((units, slots, 5))
    row[:, :, 0], value[:, :, 0] = first[:, None], -worth[first][:, None] * mine
    row[:, :, 1], value[:, :, 1] = mate[:, None], -worth[mate][:, None] * yours
    row[:, :, 2], value[:, :, 2] = n + first[:, None], 1.0
    row[:, :, 3], value[:, :, 3] = n + mate[:, None], 1.0 * pair[:, None]
    row[:, :, 4] = 2 * n + slot_type
    value[:, :, 4] = scale[first][:, None] / np.maximum(capacity, 1.0)[slot_type]
    there = value != 0
    count = there.sum(axis=2).ravel()
    says = np.flatnonzero(largest > 0)
    b = np.ones(2 * n + types)  # a row of a job without a say binds nothing
    b[says] = 0.0
    index, entries = row[there], value[there]
    index, entries = np.append(index, says), np.append(entries, 1.0 / largest[says])
    count, c = np.append(count, len(says)), np.append(np.zeros(units * slots), 1.0)
    start = np.concatenate([[0], np.cumsum(count)])
    found = centre(Columns(start, index, entries), b, c)
    if found is None:
        return None
    x = found[: units * slots].reshape(units, slots)
    x[:, capacity[slot_type] <= 0] = 0.0
    return x[:n], np.column_stack([first[n:], second[n:]]), x[n:]
