"""Small dense systems inside kernels."""

import numpy as np
import pytest

from fairlead.policies.solve.dense_linear_algebra import factor_spd, solve_factored, solve_general


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_factor_solves_for_several_right_hand_sides(n: int) -> None:
    rng = np.random.default_rng(n)
    half = rng.normal(size=(3, n, n))
    matrix = half @ half.transpose(0, 2, 1) + np.eye(n)
    right = rng.normal(size=(3, n, 4))
    factor, solved = matrix.copy(), right.copy()
    for c in range(3):
        factor_spd(factor, c)
        solve_factored(factor, c, solved)
    assert matrix @ solved == pytest.approx(right)


def test_a_general_matrix_is_solved_with_pivots() -> None:
    matrix = np.array([[0.0, 2.0], [1.0, 1.0]])
    right = np.array([[4.0], [3.0]])
    solve_general(matrix, right)
    assert right.tolist() == [[1.0], [2.0]]
