"""One level for all requirements: two methods and the literal feasibility program agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairlead.errors import SolveError
from fairlead.policies.solve import level_by_breakpoints
from fairlead.policies.solve import parametric_level as levels
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.level_by_breakpoints import best_at_least_excess
from fairlead.policies.solve.level_problem import TOLERANCE, ParametricDemand
from fairlead.policies.solve.parametric_level import solve_level


def problem(
    seed: int, jobs: int, kinds: int = 5, types: int = 3, ages: bool = True
) -> ParametricDemand:
    """Jobs of a few kinds, each with steps, age and isolated time of its own."""
    rng = np.random.default_rng(seed)
    rate = rng.lognormal(0.0, 1.0, (kinds, types)) * (rng.random((kinds, types)) > 0.2)
    rate[:, 0] = np.maximum(rate[:, 0], 0.05)
    kind = rng.integers(0, kinds, jobs)
    steps = rng.lognormal(5.0, 1.5, jobs)
    age = rng.uniform(0, 500, jobs) if ages else np.zeros(jobs)
    isolated = age + steps * rng.uniform(1, 4, jobs) if ages else np.ones(jobs)
    scale = rng.choice([1, 2, 4], kinds)[kind]
    capacity = np.full(types, max(4.0, jobs / 4))
    return ParametricDemand(
        job_type=kind,
        rate=rate[kind],
        scale=scale,
        accelerator_of_slot=np.arange(types),
        slot_devices=np.ones(types),
        capacity=capacity,
        steps=steps,
        age=age,
        isolated=isolated,
    )


def feasible(p: ParametricDemand, level: float) -> bool:
    """Are there shares that meet every requirement at this level?"""
    n, slots = p.rate.shape
    need = p.steps / (level * p.isolated - p.age)
    rows = np.zeros((2 * n + slots, n * slots))
    for i in range(n):
        rows[i, i * slots : (i + 1) * slots] = -p.rate[i] / need[i]
        rows[n + i, i * slots : (i + 1) * slots] = 1.0
    for j in range(slots):
        rows[2 * n + j, j::slots] = p.scale
    right = np.concatenate([-np.ones(n), np.ones(n), p.capacity])
    return bool(linprog(np.zeros(n * slots), A_ub=rows, b_ub=right, method="highs").status == 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 14), st.booleans())
def test_the_level_is_the_least(seed: int, jobs: int, ages: bool) -> None:
    p = problem(seed, jobs, ages=ages)
    share, report = solve_level(p)
    assert report.objective is not None
    assert report.gap is not None
    assert report.gap <= 1e-7
    assert share.sum(axis=1).max() <= 1 + 1e-9
    assert (p.scale @ share <= p.capacity * (1 + 1e-9)).all()
    assert feasible(p, report.objective * (1 + 1e-6))
    assert not feasible(p, report.objective * (1 - 1e-5))


@pytest.mark.parametrize("ages", [True, False])
def test_hats_and_interior_point_agree(ages: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem(7, 400, ages=ages)
    by_hats = solve_level(p)[1]
    monkeypatch.setattr(levels, "MAX_SIMPLEX_RATES", 0)
    by_jobs = solve_level(p)[1]
    assert by_jobs.objective == pytest.approx(by_hats.objective, rel=1e-6)
    assert by_jobs.gap is not None
    assert by_jobs.gap <= 1e-6


def test_a_sample_only_helps_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem(11, 3000)
    plain = solve_level(p)[1]
    monkeypatch.setattr(level_by_breakpoints, "SAMPLE_SIZE", 100)
    assert solve_level(p)[1].objective == pytest.approx(plain.objective, rel=1e-9)


def test_the_second_phase_leaves_no_device_idle_that_would_help() -> None:
    """Three jobs, one of which holds the level; the others get what is left."""
    rate = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    p = ParametricDemand(
        job_type=np.arange(3),
        rate=rate,
        scale=np.ones(3, np.int64),
        accelerator_of_slot=np.arange(2),
        slot_devices=np.ones(2),
        capacity=np.array([1.0, 2.0]),
        steps=np.array([100.0, 1.0, 1.0]),
        age=np.zeros(3),
        isolated=np.ones(3),
    )
    share, report = solve_level(p, gain=np.ones(3))
    assert report.objective == pytest.approx(100.0)
    assert (share * rate).sum(axis=1) == pytest.approx([1.0, 1.0, 1.0])


class Rounded:
    """A program that rounding leaves nothing of where there is less room than this beside its optimum."""

    def __init__(self, needs: float) -> None:
        self.needs = needs
        self.room = 0.0

    def bound(self, column: int, low: float, high: float) -> None:
        assert (column, low) == (0, -1.0)
        self.room = high

    def maximise(self, measure: LinearObjective, columns: np.ndarray) -> str:
        if self.room < self.needs:
            raise SolveError("ended as 'Infeasible'")
        return "most"


class Least:
    columns = np.array([0.25])


@pytest.mark.parametrize(
    ("needs", "found"), [(0.25, "most"), (0.25 + TOLERANCE / 2, "most"), (0.26, Least)]
)
def test_rounding_may_leave_nothing_exactly_at_the_level(needs: float, found: object) -> None:
    measure = LinearObjective(np.zeros(1), np.zeros(1))
    assert best_at_least_excess(Rounded(needs), Least, measure) == found  # type: ignore[arg-type]
