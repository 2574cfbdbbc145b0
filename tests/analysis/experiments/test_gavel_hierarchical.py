"""Gavel's hierarchical figure: the published ratios, and the solver that they depend on."""

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.analysis.experiments.made_up import MadeUpContext, rows_of

from fairlead.analysis.experiments.findings import Findings
from fairlead.analysis.experiments.published import gavel_hierarchical as hierarchical
from fairlead.analysis.experiments.published.gavel_stored_filling import stored_filling
from fairlead.analysis.experiments.published.self_dual_embedding import minimise


@pytest.fixture(scope="module")
def found() -> Findings:
    return hierarchical.run(MadeUpContext(lambda point: pytest.fail(f"no simulation: {point}")))


def test_the_published_ratio(found: Findings) -> None:
    rows = rows_of(found, "Fairness inside entities")
    mean = rows["Aware over agnostic, mean, as stored"]
    assert mean.ours == pytest.approx(1.169, abs=0.005)
    assert mean.published == 1.169
    assert rows["Aware over agnostic, at the end, as stored"].ours == pytest.approx(1.162, abs=1e-3)
    assert rows["Aware over agnostic, at most, as stored"].ours == pytest.approx(1.72, abs=1e-3)


@pytest.mark.parametrize(
    ("setting", "mean", "within"),
    [
        ("FIFO inside entities", 1.239, 0.01),  # the last turns are at the mercy of rounding
        ("Fairness inside entities, random rates", 1.121, 0.002),
        ("FIFO inside entities, random rates", 1.119, 0.01),
    ],
)
def test_the_other_settings(found: Findings, setting: str, mean: float, within: float) -> None:
    row = rows_of(found, setting)["Aware over agnostic, mean, as stored"]
    assert row.ours == pytest.approx(mean, abs=within)


def test_exact_levels_agree_where_all_devices_are_used(found: Findings) -> None:
    rows = rows_of(found, "Fairness inside entities")
    end = rows["Aware over agnostic, at the end, as stored"].ours
    assert rows["Aware over agnostic, at the end, exact"].ours == pytest.approx(end, rel=1e-6)
    assert rows["Aware over agnostic, mean, exact"].ours == pytest.approx(1.233, abs=0.001)


def test_totals_are_drawn_over_all_timesteps(found: Findings) -> None:
    begins = found.charts[0].series[0].x
    assert begins[0] == 1
    assert begins[-1] == 69  # the 18th job comes 4 timesteps before the end
    assert len(begins) == 18


def test_two_agnostic_jobs_end_where_the_figure_has_them() -> None:
    got = _agnostic(2)
    assert got == pytest.approx([0.798, 1.0], abs=6e-4)


def test_seven_agnostic_jobs_end_where_the_figure_has_them() -> None:
    assert _agnostic(7) == pytest.approx([0.562, 0.661] * 3 + [1.0], abs=6e-4)


def _agnostic(jobs: int) -> list[float]:
    found: list[float] = stored_filling(
        np.ones((jobs, 3)),
        np.full(3, 3.0),
        np.arange(jobs) // 6,
        np.array([1.0, 2.0, 3.0]),
        np.where(np.arange(jobs) % 2 == 1, 2.0, 1.0),
        fifo=False,
    ).tolist()
    return found


@pytest.mark.parametrize("seed", range(8))
def test_programs_end_at_an_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = np.vstack([rng.uniform(0, 1, (6, 4)), -np.eye(4)])
    h = np.concatenate([rng.uniform(1, 2, 6), np.zeros(4)])
    c = -rng.uniform(0, 1, 4)
    best = linprog(c, g, h, bounds=(None, None))
    found = minimise(g, h, c)
    assert found is not None
    assert c @ found == pytest.approx(best.fun, rel=1e-6)
    assert (g @ found <= h + 1e-6).all()


def test_a_program_without_an_answer_has_none() -> None:
    assert minimise(np.array([[1.0], [-1.0]]), np.array([0.0, -1.0]), np.ones(1)) is None
