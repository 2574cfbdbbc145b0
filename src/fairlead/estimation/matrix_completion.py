"""Matrix completion: fill in a matrix of low rank of which some cells are known."""

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.arrays import Bools, Floats

MAX_ITERATIONS = 200
CONVERGENCE = 1e-4  # relative change of the matrix in an iteration at which the iteration ends


def complete(
    values: Floats, known: Bools, rank: int, regulariser: float, rng: np.random.Generator
) -> Floats:
    """The matrix U V' of a rank that is nearest to the known values.

    min  sum over known (i, j) of (values[i, j] - U[i] V[j])^2  +  regulariser (|U|^2 + |V|^2)
    which is the most likely one where values have normal errors and factors are normal a priori
    (probabilistic matrix factorisation, Salakhutdinov and Mnih 2007), by alternating least squares: given V,
    each row of U is a small linear system, and the other way round.

    values, known: (rows, columns); what stands where nothing is known does not matter. Rows and columns of
    which nothing is known come out as 0. rng: draws the factors to begin with.
    """
    if rank < 1 or not regulariser > 0:
        raise ConfigError(
            f"completion: needs a rank >= 1 and a regulariser > 0, got {rank}, {regulariser}"
        )
    weight = known.astype(np.float64)
    target = np.where(known, values, 0.0)
    u = rng.standard_normal((len(values), rank))
    v = rng.standard_normal((values.shape[1], rank))
    found = u @ v.T
    for _ in range(MAX_ITERATIONS):
        u = _factors(v, weight, target, regulariser)
        v = _factors(u, weight.T, target.T, regulariser)
        before, found = found, u @ v.T
        if np.linalg.norm(found - before) <= CONVERGENCE * np.linalg.norm(found):
            break
    return found


def _factors(other: Floats, weight: Floats, target: Floats, regulariser: float) -> Floats:
    """(rows, rank) optimal factors of the rows, given ``other``, those of the columns: (columns, rank)."""
    rank = other.shape[1]
    squares = (other[:, :, None] * other[:, None, :]).reshape(len(other), rank * rank)
    left = (weight @ squares).reshape(-1, rank, rank) + regulariser * np.eye(rank)
    right = target @ other
    return np.asarray(np.linalg.solve(left, right[:, :, None])[:, :, 0])
