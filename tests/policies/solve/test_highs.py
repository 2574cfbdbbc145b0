"""The boundary to HiGHS."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import highspy
import numpy as np
import pytest

from fairlead.errors import SolveError
from fairlead.model.arrays import Floats
from fairlead.policies.solve.highs import (
    BASIC,
    INFINITY,
    LOWER,
    Basis,
    HighsModel,
    LinearProgram,
)


def program(row_lower: float = -INFINITY, col_upper: float = INFINITY) -> LinearProgram:
    """Maximise x + 2 y with x + y <= 4 and y <= 3."""
    return LinearProgram(
        cost=np.array([1.0, 2.0]),
        col_lower=np.zeros(2),
        col_upper=np.array([col_upper, 3.0]),
        row_lower=np.array([row_lower]),
        row_upper=np.array([4.0]),
        start=np.array([0, 1, 2], np.int32),
        index=np.zeros(2, np.int32),
        value=np.ones(2),
    )


def test_an_optimum_has_values_and_the_price_of_its_row() -> None:
    model = HighsModel(program())
    assert not model.load()
    best = model.maximise()
    assert best.objective == pytest.approx(7.0)
    assert best.value == pytest.approx([1.0, 3.0])
    assert best.dual == pytest.approx([1.0])


def test_a_second_phase_starts_where_the_first_ended() -> None:
    model = HighsModel(program())
    model.load()
    model.maximise()
    model.bound(1, 0.0, 1.0)
    assert model.maximise(np.array([5.0, 1.0])).value == pytest.approx([4.0, 0.0])


def test_an_optimal_basis_needs_no_step() -> None:
    first = HighsModel(program())
    first.load()
    first.maximise()
    second = HighsModel(program())
    assert second.load(first.basis())
    assert second.maximise().iterations == 0


@pytest.mark.parametrize("codes", [[LOWER, LOWER], [BASIC, BASIC], [np.uint8(200), np.uint8(7)]])
def test_a_wrong_basis_still_ends_at_the_optimum(codes: list[np.uint8]) -> None:
    model = HighsModel(program())
    model.load(Basis(np.array(codes, np.uint8), np.array([BASIC])))
    assert model.maximise().objective == pytest.approx(7.0)


def test_an_infeasible_program_raises() -> None:
    model = HighsModel(program(row_lower=5.0))
    model.load()
    with pytest.raises(SolveError, match=r"[Ii]nfeasible"):
        model.maximise()


def test_an_unbounded_program_raises() -> None:
    unbounded = LinearProgram(
        cost=np.ones(1),
        col_lower=np.zeros(1),
        col_upper=np.full(1, INFINITY),
        row_lower=np.full(1, -INFINITY),
        row_upper=np.full(1, INFINITY),
        start=np.array([0, 1], np.int32),
        index=np.zeros(1, np.int32),
        value=np.ones(1),
    )
    model = HighsModel(unbounded)
    model.load()
    with pytest.raises(SolveError, match="ended as"):
        model.maximise()


@pytest.mark.parametrize("lower", [0.0, 1.0])
def test_a_program_without_columns_is_solved_by_nothing_if_its_rows_allow(lower: float) -> None:
    none, start = np.zeros(0), np.zeros(1, np.int32)
    empty = LinearProgram(
        cost=none,
        col_lower=none,
        col_upper=none,
        row_lower=np.array([lower]),
        row_upper=np.array([2.0]),
        start=start,
        index=np.zeros(0, np.int32),
        value=none,
    )
    model = HighsModel(empty)
    model.load()
    if lower > 0:
        with pytest.raises(SolveError, match="ended as"):
            model.maximise()
    else:
        found = model.maximise()
        assert (found.objective, found.value.size, found.dual.tolist()) == (0.0, 0, [0.0])


@pytest.mark.parametrize("threads", [0, 2])
def test_other_code_may_have_used_highs_with_another_number_of_threads(threads: int) -> None:
    """Each thread has a scheduler of HiGHS, which keeps the number that it began with."""
    models = [HighsModel(program()), HighsModel(program())]

    def solve_after_others() -> Floats:
        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", threads)
        highs.addVar(0.0, 1.0)
        assert highs.run() == highspy.HighsStatus.kOk
        models[1].load()
        return models[1].maximise().value

    models[0].load()
    with ThreadPoolExecutor(1) as fresh:
        assert (
            fresh.submit(solve_after_others).result().tolist()
            == models[0].maximise().value.tolist()
        )
