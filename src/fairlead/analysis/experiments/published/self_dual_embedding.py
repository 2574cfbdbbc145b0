"""A linear program solved as the solver of Gavel's release solves it, so that it ends where that one ends.

    min c x   s.t.   G x <= h

The homogeneous self-dual embedding with Mehrotra's predictor and corrector, after three rounds of scaling
rows and columns, as published of ECOS (Domahidi, Chu, Boyd: ECC'13). Where a program has many optimal
answers, all of this decides at which of them it ends, and published averages depend on that. For small
programs only: the matrices are dense. Where only the optimum counts, ``fairlead.policies.solve`` is
the place.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from fairlead.model.arrays import Floats

TOLERANCE = 1e-8
LOOSE_TOLERANCE = 1e-4  # of an answer that rounding keeps from coming nearer to the optimum
STEPS = 100
ROUNDS = 3  # of scaling
_STEP = 0.99  # part of the way to the boundary
_MIN_PRODUCT = 1e-4  # of the products, what a step keeps at least
_REGULAR = 1e-12  # keeps the system from being singular,
_MIN_RATIO = 1e-14  # and so does this, the least ratio of a slack to its price
_MIN_TAU = 1e-9  # where tau is as small there is no answer on the path


def minimise(g: Floats, h: Floats, c: Floats) -> Floats | None:
    """(columns,) the answer; None where none was found. g: (rows, columns)."""
    g, row, column = _scaled(g)
    found = _Embedding(g, h / row, c / column).solve()
    return None if found is None else found / column


def _scaled(g: Floats) -> tuple[Floats, Floats, Floats]:
    """The matrix with its largest entries near 1, and what its rows and columns were divided by."""
    row, column = np.ones(len(g)), np.ones(g.shape[1])
    for _ in range(ROUNDS):
        size = np.abs(g)
        by_row, by_column = np.sqrt(size.max(axis=1)), np.sqrt(size.max(axis=0))
        by_row[by_row == 0], by_column[by_column == 0] = 1.0, 1.0
        g = g / by_row[:, None] / by_column
        row, column = row * by_row, column * by_column
    return g, row, column


@dataclass(slots=True)
class _Point:
    """A point of the embedding, or a direction in it."""

    x: Floats
    s: Floats  # slacks of the rows
    z: Floats  # their prices
    tau: float
    kappa: float

    def moved(self, way: "_Point", far: float) -> "_Point":
        return _Point(
            self.x + far * way.x,
            self.s + far * way.s,
            self.z + far * way.z,
            self.tau + far * way.tau,
            self.kappa + far * way.kappa,
        )

    def max_step(self, way: "_Point") -> float:
        """Return the largest step before something vanishes, at most 1."""
        here = np.concatenate([self.s, self.z, [self.tau, self.kappa]])
        step = np.concatenate([way.s, way.z, [way.tau, way.kappa]])
        falls = step < 0
        return float(min(1.0, (-here[falls] / step[falls]).min(initial=np.inf)))


class _Embedding:
    """The path from a start to an answer."""

    def __init__(self, g: Floats, h: Floats, c: Floats) -> None:
        self.g, self.h, self.c = g, h, c
        self.rows, self.columns = g.shape

    def solve(self) -> Floats | None:
        """The answer, or the nearest to one that was passed."""
        at, best, nearest = self._start(), None, LOOSE_TOLERANCE
        for _ in range(STEPS):
            off = self._violation(at)
            if off < nearest:
                best, nearest = at.x / at.tau, off
            if off < TOLERANCE:
                break
            following = self._step(at)
            if following is None:
                break
            at = following
        return best

    def _start(self) -> _Point:
        """The least slacks and prices in squares, lifted above 0."""
        self._factor(np.ones(self.rows))
        x, _ = self._solve(np.zeros(self.columns), self.h)
        _, z = self._solve(-self.c, np.zeros(self.rows))
        return _Point(x, _lifted(self.h - self.g @ x), _lifted(z), 1.0, 1.0)

    def _violation(self, at: _Point) -> float:
        """The largest of the gap and what is missing to feasibility, relative."""
        value = abs(float(self.c @ at.x)) / at.tau
        gap = float(at.s @ at.z) / at.tau**2 / max(1.0, value)
        primal = float(np.abs(self.g @ at.x + at.s - self.h * at.tau).max()) / at.tau
        dual = float(np.abs(self.g.T @ at.z + self.c * at.tau).max()) / at.tau
        largest_h, largest_c = float(np.abs(self.h).max()), float(np.abs(self.c).max())
        return max(gap, primal / (1 + largest_h), dual / (1 + largest_c))

    def _step(self, at: _Point) -> _Point | None:
        """The next point; None where rounding has eaten up the direction."""
        ratio = np.maximum(at.s / at.z, _MIN_RATIO)
        if not np.isfinite(ratio).all():
            return None
        self._factor(ratio)
        self._ahead = self._solve(-self.c, self.h)
        mean = (at.s @ at.z + at.tau * at.kappa) / (self.rows + 1)
        way = self._direction(at, 1.0, at.s * at.z, at.tau * at.kappa)
        damping = min(1.0, max((1 - at.max_step(way)) ** 3, _MIN_PRODUCT))
        way = self._direction(
            at,
            1 - damping,
            at.s * at.z + way.s * way.z - damping * mean,
            at.tau * at.kappa + way.tau * way.kappa - damping * mean,
        )
        after = at.moved(way, _STEP * at.max_step(way))
        fine = np.isfinite(after.x).all() and after.tau > _MIN_TAU
        return after if fine else None

    def _direction(self, at: _Point, part: float, products: Floats, last: float) -> _Point:
        """Return the direction along which residuals fall to 1 - ``part`` of theirs and the products s z
        change by ``products``."""
        missing_x = -(self.g.T @ at.z) - self.c * at.tau
        missing_z = at.s + self.g @ at.x - self.h * at.tau
        missing = at.kappa + self.c @ at.x + self.h @ at.z
        x, z = self._solve(part * missing_x, products / at.z - part * missing_z)
        along_x, along_z = self._ahead
        tau = (part * missing - last / at.tau + self.c @ x + self.h @ z) / (
            at.kappa / at.tau - self.c @ along_x - self.h @ along_z
        )
        x, z = x + tau * along_x, z + tau * along_z
        s = -(products + at.s * z) / at.z
        return _Point(x, s, z, float(tau), float(-(last + at.kappa * tau) / at.tau))

    def _factor(self, ratio: Floats) -> None:
        corner = _REGULAR * np.eye(self.columns)
        self._lu = lu_factor(np.block([[corner, self.g.T], [self.g, -np.diag(ratio)]]))

    def _solve(self, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        both = lu_solve(self._lu, np.concatenate([x, z]))
        return both[: self.columns], both[self.columns :]


def _lifted(values: Floats) -> Floats:
    least = float(values.min())
    return values if least > 0 else values - least + 1.0
