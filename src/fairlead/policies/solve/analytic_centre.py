"""The analytic centre of the optima of a linear program, for small programs of any form.

    max c x   s.t.   A x <= b,   x >= 0

Mehrotra's predictor and corrector (SIAM J. Optim. 2(4), 1992) from an infeasible start, with centring
steps near the end; the normal equations are dense in the rows, so this is for hundreds of rows, not for
thousands. From a start that is equal for equal columns and rows all iterates are: equal columns, and equal
rows, are therefore one that counts as often as there are of them. ``fairlead.policies.solve.interior_point``
does the same for max-min shares without pairs at any size.

Gavel's release solves with an interior-point solver, and which of many optima it ends at shapes its
published averages: the gavel profile wants this answer, not a corner.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Ints1
from fairlead.policies.solve.dense_linear_algebra import max_step

STEPS = 200
CENTRING = 5
ANALYTIC_CENTRE_GAP = 1e-4
_STEP = 0.99


@dataclass(frozen=True, slots=True)
class SparseColumns:
    """A by columns: column k has rows index[start[k]:start[k + 1]], ascending."""

    start: Ints
    index: Ints
    value: Floats  # in a row that stands for several: the sum of what the column has in them


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """The numbers of columns and rows of the program that each column and row stands for."""

    columns: Floats
    rows: Floats


@dataclass(frozen=True, slots=True)
class AnalyticCentre:
    """The analytic centre of the optima, and prices that prove it, for one of the columns and rows that each
    stands for."""

    x: Floats  # (columns,)
    price: Floats  # (rows,) > 0


def analytic_centre(
    a: SparseColumns,
    b: Floats,
    c: Floats,
    tolerance: float = 1e-8,
    multiplicity: Multiplicity | None = None,
) -> AnalyticCentre | None:
    """The analytic centre of the optima; None where rounding kept it from being found. b: (rows,) and
    c: (columns,), for one of the rows and columns that each stands for."""
    multiplicity = multiplicity or Multiplicity(np.ones(len(c)), np.ones(len(b)))
    program = _BarrierProgram(
        start=a.start,
        row=a.index,
        value=a.value,
        b=b,
        c=c,
        copies=multiplicity.columns,
        count_of_row=multiplicity.rows,
    )
    x, price, gap, residual = _path_to_centre(program, tolerance)
    found = gap < 100 * tolerance and residual < 100 * tolerance
    return AnalyticCentre(x, price) if found else None


@kernel("f8(f8[::1], f8[::1], f8[::1])", allocates=False)
def _dot(a: Floats, b: Floats, count: Floats) -> float:
    """The sum of count * a * b, one after the other: a linear algebra library takes several threads for
    long vectors, which cost more than they save here, and its last bits depend on how many there are."""
    total = 0.0
    for i in range(len(a)):
        total += count[i] * (a[i] * b[i])
    return total


@kernel("void(f8[:,::1])", allocates=False)
def _factor(matrix: Floats) -> None:
    """The Cholesky factor in place, upper triangle, row by row; pivots that rounding makes vanish are set
    large."""
    n = len(matrix)
    for j in range(n):
        row = matrix[j]
        least = 1e-13 * row[j]
        k = 0
        while k + 4 <= j:  # four rows at a time: the row in hand is read and written less often
            p, q, r, s = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
            of_p, of_q, of_r, of_s = p[j], q[j], r[j], s[j]
            for i in range(j, n):
                row[i] = (((row[i] - of_p * p[i]) - of_q * q[i]) - of_r * r[i]) - of_s * s[i]
            k += 4
        while k < j:
            p = matrix[k]
            of_p = p[j]
            for i in range(j, n):
                row[i] -= of_p * p[i]
            k += 1
        row[j] = np.sqrt(row[j]) if row[j] > least else 1e64
        for i in range(j + 1, n):
            row[i] /= row[j]


@kernel("void(f8[:,::1], f8[::1])", allocates=False)
def _back(factor: Floats, right: Floats) -> None:
    """Solve with a factor, in place."""
    n = len(right)
    for k in range(n):
        row = factor[k]
        right[k] /= row[k]
        known = right[k]
        for i in range(k + 1, n):
            right[i] -= row[i] * known
    for i in range(n - 1, -1, -1):
        row = factor[i]
        total = right[i]
        for k in range(i + 1, n):
            total -= row[k] * right[k]
        right[i] = total / row[i]


class _BarrierProgram(NamedTuple):
    """The program, by columns, and how often each column and row counts."""

    start: Ints1  # (columns + 1,)
    row: Ints1  # (entries,)
    value: Floats1  # (entries,)
    b: Floats1  # (rows,)
    c: Floats1  # (columns,)
    copies: Floats1  # (columns,)
    count_of_row: Floats1  # (rows,)


class _BarrierPoint(NamedTuple):
    """A point, or a step from it. w is the dual of x >= 0, and y, the price of a row, that of its slack s."""

    x: Floats1  # (columns,)
    w: Floats1  # (columns,)
    s: Floats1  # (rows,)
    y: Floats1  # (rows,)


class _Residuals(NamedTuple):
    """Residuals of a point in the linear conditions."""

    primal: Floats1  # (rows,) of A x + s = b
    dual: Floats1  # (columns,) of A' y - w = c


@kernel("void(_BarrierProgram, _BarrierPoint, _Residuals)")
def _measure(program: _BarrierProgram, point: _BarrierPoint, residuals: _Residuals) -> None:
    """The residuals at a point, into ``lacks``."""
    start, index, value, b, c, copies, count = program
    x, w, s, y = point
    primal, dual = residuals
    primal[:] = b - s
    for k in range(len(c)):
        total = -c[k] - w[k]
        for e in range(start[k], start[k + 1]):
            primal[index[e]] -= copies[k] / count[index[e]] * (value[e] * x[k])
            total += value[e] * y[index[e]]
        dual[k] = -total


@kernel("void(_BarrierProgram, _BarrierPoint, f8[:,::1])", allocates=False)
def _factor_at(program: _BarrierProgram, point: _BarrierPoint, matrix: Floats) -> None:
    """The factor of the normal equations in the step of y, into ``matrix``, (rows, rows)."""
    start, index, value, _, c, copies, count = program
    x, w, s, y = point
    matrix[:] = 0.0
    for k in range(len(c)):
        d = copies[k] * (x[k] / w[k])
        for e in range(start[k], start[k + 1]):
            row = matrix[index[e]]
            for f in range(e, start[k + 1]):
                row[index[f]] += d * value[f] * value[e]
    for i in range(len(s)):
        matrix[i, i] += count[i] * (s[i] / y[i])
    _factor(matrix)


@kernel("void(_BarrierProgram, _BarrierPoint, _Residuals, _Residuals, f8[:,::1], _BarrierPoint)")
def _solve_step(
    program: _BarrierProgram,
    point: _BarrierPoint,
    residuals: _Residuals,
    target: _Residuals,
    factor: Floats,
    step: _BarrierPoint,
) -> None:
    """The step, into ``step``, that removes the residuals and changes the products by ``target``: its dual
    part is of x w, its primal part of s y."""
    start, index, value, _, _, copies, count = program
    x, w, s, y = point
    dx, dw, ds, dy = step
    # dw = A'dy - r_dual;  x dw + w dx = target;  s dy + y ds = target;  A dx + ds = r_primal
    dy[:] = count * (target.primal / y - residuals.primal)
    of_columns, r_dual = target.dual, residuals.dual
    for k in range(len(x)):
        along = copies[k] * ((of_columns[k] + x[k] * r_dual[k]) / w[k])
        for e in range(start[k], start[k + 1]):
            dy[index[e]] += value[e] * along
    _back(factor, dy)
    for k in range(len(x)):
        total = -r_dual[k]
        for e in range(start[k], start[k + 1]):
            total += value[e] * dy[index[e]]
        dw[k] = total
        dx[k] = (of_columns[k] - x[k] * total) / w[k]
    ds[:] = (target.primal - s * dy) / y


@kernel("Tuple((f8, f8))(_BarrierPoint, _BarrierPoint)", allocates=False)
def _max_steps(point: _BarrierPoint, step: _BarrierPoint) -> tuple[float, float]:
    """The largest parts of a step, of x and s and of w and y, that stay above 0."""
    forward = min(max_step(point.x, step.x), max_step(point.s, step.s))
    backward = min(max_step(point.w, step.w), max_step(point.y, step.y))
    return forward, backward


@kernel("f8(_BarrierProgram, _BarrierPoint)", allocates=False)
def _products(program: _BarrierProgram, point: _BarrierPoint) -> float:
    """The sum of all complementarity products."""
    by_column = _dot(point.x, point.w, program.copies)
    return by_column + _dot(point.s, point.y, program.count_of_row)


@kernel("_Residuals(_BarrierProgram, _BarrierPoint, _BarrierPoint, f8, f8)")
def _corrected(
    program: _BarrierProgram,
    point: _BarrierPoint,
    step: _BarrierPoint,
    mu: float,
    all_products: float,
) -> _Residuals:
    """Mehrotra's corrector: what the products are to change by after a step that would make them 0. mu:
    their mean; all_products: how many they are."""
    x, w, s, y = point
    dx, dw, ds, dy = step
    forward, backward = _max_steps(point, step)
    after = _products(
        program,
        _BarrierPoint(x + forward * dx, w + backward * dw, s + forward * ds, y + backward * dy),
    )
    goal = mu * (after / all_products / mu) ** 3
    return _Residuals(goal - s * y - ds * dy, goal - x * w - dx * dw)


@kernel("_BarrierPoint(_BarrierPoint, _BarrierPoint)")
def _moved(point: _BarrierPoint, step: _BarrierPoint) -> _BarrierPoint:
    """The point after most of a step."""
    forward, backward = _max_steps(point, step)
    forward, backward = min(1.0, _STEP * forward), min(1.0, _STEP * backward)
    return _BarrierPoint(
        np.maximum(point.x + forward * step.x, 1e-300),
        np.maximum(point.w + backward * step.w, 1e-300),
        np.maximum(point.s + forward * step.s, 1e-300),
        np.maximum(point.y + backward * step.y, 1e-300),
    )


@kernel("_BarrierPoint(i8, i8, f8)")
def _filled(columns: int, rows: int, value: float) -> _BarrierPoint:
    """Return a point with one value everywhere."""
    return _BarrierPoint(
        np.full(columns, value),
        np.full(columns, value),
        np.full(rows, value),
        np.full(rows, value),
    )


@kernel("Tuple((f8[::1], f8[::1], f8, f8))(_BarrierProgram, f8)")
def _path_to_centre(
    program: _BarrierProgram, tolerance: float
) -> tuple[Floats, Floats, float, float]:
    """x, prices of the rows, the gap of the products relative to the objective, and the largest residual
    relative to b, c."""
    b, c, copies = program.b, program.c, program.copies
    columns, rows = len(c), len(b)
    all_products = copies.sum() + program.count_of_row.sum()
    point, step = _filled(columns, rows, 1.0), _filled(columns, rows, 0.0)
    residuals = _Residuals(np.empty(rows), np.empty(columns))
    matrix = np.empty((rows, rows))
    largest_b, largest_c = 1.0 + np.abs(b).max(), 1.0 + np.abs(c).max()
    gap = residual = np.inf
    centred = 0
    for _ in range(STEPS):
        _measure(program, point, residuals)
        residual = max(
            np.abs(residuals.primal).max() / largest_b, np.abs(residuals.dual).max() / largest_c
        )
        products = _products(program, point)
        mu = products / all_products
        gap = products / (1.0 + abs(_dot(c, point.x, copies)))
        if gap < tolerance and residual < 100 * tolerance:  # rounding keeps it from falling further
            break
        _factor_at(program, point, matrix)
        x, w, s, y = point
        if gap < ANALYTIC_CENTRE_GAP and residual < 1e-6 and centred < CENTRING:
            centred += 1
            target = _Residuals(mu - s * y, mu - x * w)
        else:
            _solve_step(program, point, residuals, _Residuals(-s * y, -x * w), matrix, step)
            target = _corrected(program, point, step, mu, all_products)
        _solve_step(program, point, residuals, target, matrix, step)
        point = _moved(point, step)
    return point.x, point.y, gap, residual


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyticCentreShares:
    """Shares, and the prices that prove how good they are."""

    share: Floats  # (jobs, slots) of jobs alone
    pairs: Ints  # (pairs, 2) positions of jobs
    of_pairs: Floats  # (pairs, slots)
    value: Floats  # (jobs,) per step/s of a job; the sum of value / worth is 1
    time_price: Floats  # (jobs,) per unit of a job's time
    device_price: Floats  # (types,) per device


def analytic_centre_shares(
    *,
    rate: Floats,
    scale: Ints,
    accelerator_of_slot: Ints,
    capacity: Floats,
    job_type: Ints,
    colocated_rate: Floats | None,
    worth: Floats,
) -> AnalyticCentreShares | None:
    """The analytic centre of the best shares of jobs alone, and of pairs; None where it was not found.
    Every pair of jobs of equal scale factor is offered, whatever it is worth, as in Gavel's programs; equal
    jobs have the same shares.

    The largest z with worth_i t_i >= z, time and devices.
    rate: (jobs, slots); worth: (jobs,), 0 = no row; colocated_rate: (job types, job types, slots) or None =
    no pairs.
    """
    keys = np.column_stack([job_type, scale, worth, rate])
    _, first, of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    of = of.reshape(-1)
    program = _ClassProgram(
        rate=rate[first],
        scale=scale[first],
        job_type=job_type[first],
        worth=worth[first],
        count=np.bincount(of).astype(np.float64),
        colocated_rate=colocated_rate,
    )
    groups = program.groups()
    result = _solve_groups(program, groups, accelerator_of_slot, capacity)
    if result is None:
        return None
    found = result.x[:-1].reshape(len(groups.one), rate.shape[1])
    found[:, capacity[accelerator_of_slot] <= 0] = 0.0
    pairs = np.zeros((0, 2), np.int64) if colocated_rate is None else _equal_pairs(scale)
    classes = len(first)
    of_worth, of_time, of_type = np.split(result.price, [classes, 2 * classes])
    return AnalyticCentreShares(
        share=found[of],
        pairs=pairs,
        of_pairs=found[groups.of_pairs(of[pairs], classes)],
        value=(of_worth * program.scaled)[of],
        time_price=of_time[of],
        device_price=of_type / np.maximum(capacity, 1.0),
    )


def _equal_pairs(scale: Ints) -> Ints:
    """(pairs, 2) positions of all jobs of equal scale factor, the first below the second."""
    left, right = np.triu_indices(len(scale), 1)
    alike = scale[left] == scale[right]
    return np.column_stack([left[alike], right[alike]])


@dataclass(frozen=True, slots=True)
class _Groups:
    """A job of class ``one`` alone or, where ``pair``, with a job of class ``two``."""

    one: Ints  # (groups,)
    two: Ints  # (groups,)
    pair: Bools  # (groups,)

    def of_pairs(self, pairs: Ints, classes: int) -> Ints:
        """(pairs,) the groups of pairs of classes, (pairs, 2)."""
        one, two = self.one[self.pair], self.two[self.pair]
        at = np.zeros((classes, classes), np.int64)
        at[one, two] = at[two, one] = np.flatnonzero(self.pair)
        return np.asarray(at[pairs[:, 0], pairs[:, 1]])


@dataclass(frozen=True, kw_only=True, slots=True)
class _ClassProgram:
    """Classes of equal jobs, and what shares are worth to them."""

    rate: Floats  # (classes, slots)
    scale: Ints  # (classes,)
    job_type: Ints  # (classes,)
    worth: Floats  # (classes,)
    count: Floats  # (classes,) jobs
    colocated_rate: Floats | None  # (job types, job types, slots), None = no pairs

    def groups(self) -> "_Groups":
        """A job of each class alone, and pairs of jobs of equal scale factor."""
        solo = np.arange(len(self.rate))
        if self.colocated_rate is None:
            return _Groups(solo, solo, np.zeros(len(solo), np.bool_))
        i, j = np.triu_indices(len(solo))
        both = (self.scale[i] == self.scale[j]) & ((i != j) | (self.count[i] > 1))
        one, two = np.concatenate([solo, i[both]]), np.concatenate([solo, j[both]])
        return _Groups(one, two, np.arange(len(one)) >= len(solo))

    def rates(self, groups: "_Groups") -> tuple[Floats, Floats]:
        """(groups, slots) rates of the first job of each group, and of the second, 0 where there is none."""
        one, two, pair = groups.one, groups.two, groups.pair
        mine, yours = self.rate[one], np.zeros((len(one), self.rate.shape[1]))
        if self.colocated_rate is not None:
            first, second = self.job_type[one[pair]], self.job_type[two[pair]]
            mine[pair] = self.colocated_rate[first, second]
            yours[pair] = self.colocated_rate[second, first]
        return mine, yours

    @property
    def largest(self) -> Floats:
        """(classes,) worth of the fastest rate alone; 0 = no say."""
        return np.asarray(self.worth * self.rate.max(axis=1, initial=0.0))

    @property
    def scaled(self) -> Floats:
        """(classes,) worth of a step/s where the fastest rate is worth 1; rows are in this unit."""
        largest = self.largest
        return self.worth / np.where(largest > 0, largest, 1.0)


def _solve_groups(
    of: _ClassProgram, groups: _Groups, accelerator_of_slot: Ints, capacity: Floats
) -> AnalyticCentre | None:
    """The analytic centre of the best shares of one group of each class of groups on each slot type, with the
    level as the last column."""
    one, two, pair = groups.one, groups.two, groups.pair
    n, slots, columns, count = len(of.rate), len(accelerator_of_slot), len(one), of.count
    mine, yours = of.rates(groups)
    same = pair & (one == two)  # both jobs have their rows in one
    other = pair & ~same
    largest, worth = of.largest, of.scaled
    row = np.empty((columns, slots, 5), np.int64)
    value = np.zeros((columns, slots, 5))
    row[:, :, 0], value[:, :, 0] = one[:, None], -worth[one][:, None] * mine
    value[same, :, 0] -= worth[one[same]][:, None] * yours[same]
    row[:, :, 1], value[:, :, 1] = two[:, None], -worth[two][:, None] * yours * other[:, None]
    row[:, :, 2], value[:, :, 2] = n + one[:, None], 1.0 + same[:, None]
    row[:, :, 3], value[:, :, 3] = n + two[:, None], 1.0 * other[:, None]
    row[:, :, 4] = 2 * n + accelerator_of_slot
    value[:, :, 4] = of.scale[one][:, None] / np.maximum(capacity, 1.0)[accelerator_of_slot]
    copies = np.where(other, count[one] * count[two], count[one])
    copies[same] *= (count[one[same]] - 1) / 2
    there = value != 0
    says = np.flatnonzero(largest > 0)
    b = np.ones(2 * n + len(capacity))  # a row of a job without a say binds nothing
    b[says] = 0.0
    index, entries = (
        np.append(row[there], says),
        np.append(value[there], count[says] / largest[says]),
    )
    start = np.cumsum(np.concatenate([[0], there.sum(axis=2).ravel(), [len(says)]]))
    c = np.append(np.zeros(columns * slots), 1.0)
    multiplicity = Multiplicity(
        np.append(np.repeat(copies, slots), 1.0),
        np.concatenate([count, count, np.ones(len(capacity))]),
    )
    return analytic_centre(SparseColumns(start, index, entries), b, c, multiplicity=multiplicity)
