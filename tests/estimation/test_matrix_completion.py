"""Matrices of low rank are found again from part of their cells."""

import numpy as np
import pytest

from fairlead.errors import ConfigError
from fairlead.estimation.matrix_completion import complete


def low_rank(rows: int, columns: int, rank: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((rows, rank)) @ rng.random((rank, columns)) / rank


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_matrix_of_low_rank_is_found_again(seed: int) -> None:
    values = low_rank(30, 40, 3, seed)
    known = np.random.default_rng(seed + 10).random(values.shape) < 0.6
    found = complete(values, known, 3, 1e-3, np.random.default_rng(0))
    assert np.abs(found - values)[~known].max() < 0.05 < np.ptp(values[~known])


def test_a_new_row_is_told_from_a_few_of_its_cells() -> None:
    """As a new job is: others are known whole, of it one in four cells."""
    values = low_rank(17, 48, 3, 5)
    known = np.ones(values.shape, np.bool_)
    known[-1] = np.random.default_rng(1).random(48) < 0.25
    found = complete(values, known, 10, 1e-2, np.random.default_rng(0))
    guess = np.where(known[-1], values[-1], values[:-1].mean())
    assert np.abs(found - values)[-1].mean() < np.abs(guess - values[-1]).mean() / 3


def test_what_stands_in_unknown_cells_does_not_matter() -> None:
    values = low_rank(8, 9, 2, 3)
    known = np.random.default_rng(4).random(values.shape) < 0.7
    other = np.where(known, values, np.nan)
    same = [complete(v, known, 2, 1e-2, np.random.default_rng(7)) for v in (values, other)]
    assert np.array_equal(same[0], same[1])


def test_a_row_of_which_nothing_is_known_is_0() -> None:
    known = np.ones((5, 6), np.bool_)
    known[2] = False
    found = complete(low_rank(5, 6, 2, 0), known, 2, 1e-2, np.random.default_rng(0))
    assert np.allclose(found[2], 0.0)


def test_senseless_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="rank >= 1"):
        complete(np.ones((2, 2)), np.ones((2, 2), np.bool_), 0, 1e-2, np.random.default_rng(0))
