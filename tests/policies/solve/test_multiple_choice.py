"""The multiple-choice knapsack against HiGHS's branch and bound, and its bounds at sizes that are not
proven."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from fairlead.errors import SolveError
from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.multiple_choice import (
    NONE,
    MultipleChoice,
    solve_multiple_choice,
)


def optimum(problem: MultipleChoice) -> float | None:
    """The most worth, stated as a mixed-integer program; None = no answer keeps to the capacities."""
    items = len(problem.none)
    worth = np.column_stack([problem.none, problem.worth])
    item, column = np.nonzero(np.isfinite(worth))
    if len(np.unique(item)) < items:
        return None
    rows = np.zeros((items + len(problem.capacity), len(item)))
    rows[item, np.arange(len(item))] = 1
    for k, c in enumerate(column):
        if c:
            rows[items + problem.resource[c - 1], k] = problem.demand[c - 1]
    least = np.concatenate([np.ones(items), np.full(len(problem.capacity), -np.inf)])
    most = np.concatenate([np.ones(items), problem.capacity])
    found = milp(
        -worth[item, column],
        constraints=LinearConstraint(rows, least, most),
        integrality=np.ones(len(item), np.int64),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    return -found.fun if found.success else None


def use_of(problem: MultipleChoice, option: Ints) -> Ints:
    taken = option[option != NONE]
    return np.bincount(
        problem.resource[taken], problem.demand[taken], len(problem.capacity)
    ).astype(np.int64)


def worth_of(problem: MultipleChoice, option: Ints) -> float:
    return float(
        sum(problem.none[i] if c == NONE else problem.worth[i, c] for i, c in enumerate(option))
    )


@st.composite
def problems(draw: st.DrawFn) -> MultipleChoice:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    items, options = draw(st.integers(1, 10)), draw(st.integers(1, 7))
    resources = draw(st.integers(1, 3))
    digits = draw(st.sampled_from([0, 1, 8]))  # few: many answers are worth the same
    worth = rng.normal(0, 1, (items, options)).round(digits)
    return MultipleChoice(
        worth=np.where(rng.random((items, options)) < 0.8, worth, -np.inf),
        none=np.where(rng.random(items) < draw(st.sampled_from([0.8, 1.0])), 0.0, -np.inf),
        resource=rng.integers(0, resources, options),
        demand=rng.integers(1, 6, options),
        capacity=rng.integers(0, 14, resources),
    )


@given(problems())
def test_small_problems_have_the_best_answer(problem: MultipleChoice) -> None:
    best = optimum(problem)
    if best is None:
        with pytest.raises(SolveError, match=r"no choice of options|has no option"):
            solve_multiple_choice(problem)
        return
    found = solve_multiple_choice(problem)
    assert (use_of(problem, found.option) <= problem.capacity).all()
    assert found.value == pytest.approx(worth_of(problem, found.option), abs=1e-9)
    assert found.value == pytest.approx(best, abs=1e-7)
    assert found.bound == pytest.approx(found.value, abs=1e-7)
    assert (found.price >= 0).all()


def rows(jobs: int, devices: int, seed: int) -> MultipleChoice:
    """Sia's program for jobs of random speeds on three accelerator types."""
    rng = np.random.default_rng(seed)
    demand = np.tile([1, 2, 4, 8, 16, 24, 32, 48, 64], 3)
    resource = np.repeat(np.arange(3), 9)
    power = rng.uniform(0.5, 0.97, (jobs, 1))
    speed = np.array([1.0, 1.6, 3.5])[resource] * rng.lognormal(0, 0.25, (jobs, 3))[:, resource]
    goodput: Floats = speed * demand**power
    goodput /= goodput.min(axis=1, keepdims=True)
    fits = demand <= rng.integers(1, 65, (jobs, 1))
    return MultipleChoice(
        worth=np.where(fits, -(goodput**-0.5), -np.inf),
        none=np.full(jobs, -1.1),
        resource=resource,
        demand=demand,
        capacity=np.full(3, devices),
    )


@pytest.mark.parametrize("jobs", [300, 4_000])
def test_large_problems_have_a_bound_that_is_near(jobs: int) -> None:
    problem = rows(jobs, devices=600, seed=jobs)
    found = solve_multiple_choice(problem)
    assert (use_of(problem, found.option) <= problem.capacity).all()
    assert found.value == pytest.approx(worth_of(problem, found.option), rel=1e-12)
    assert found.gap <= 1e-3
    # Nobody can do better at the prices: the bound is one whatever method found them.
    net = problem.worth - (found.price[problem.resource] * problem.demand)
    at_prices = np.maximum(net.max(axis=1), problem.none).sum()
    assert found.bound <= at_prices + found.price @ problem.capacity + 1e-9
    assert found.bound >= found.value


def test_nothing_to_choose() -> None:
    nothing = MultipleChoice(
        worth=np.zeros((0, 1)),
        none=np.zeros(0),
        resource=np.zeros(1, np.int64),
        demand=np.ones(1, np.int64),
        capacity=np.ones(1, np.int64),
    )
    assert solve_multiple_choice(nothing).value == 0
