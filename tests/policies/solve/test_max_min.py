"""Max-min fairness: exact, certified, a pure function of what goes in."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.allocation import SolveReport
from fairlead.model.arrays import Floats
from fairlead.policies.solve.max_min import MaxMin, analytic_centre_of, solve

PURITY = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.policies.solve.test_max_min import random_problem, bits
print(json.dumps([bits(random_problem(seed), central) for seed in range(6) for central in (0, 1)]))
"""


def random_problem(seed: int, jobs: int = 60, classes: int = 15, types: int = 3) -> MaxMin:
    """Jobs of several classes at about three times the demand."""
    rng = np.random.default_rng(seed)
    rate = rng.lognormal(0.0, 1.0, (classes, types)) * (rng.random((classes, types)) > 0.1)
    rate[:, 0] = np.maximum(rate[:, 0], 0.1)
    job_class = rng.integers(0, classes, jobs)
    scale = rng.choice([1.0, 2.0, 4.0], classes)[job_class]
    capacity = np.full(types, max(2.0, jobs // 6), np.float64)
    normal = 1 / (rate @ capacity / capacity.sum())[job_class]
    weight = rng.choice([1.0, 5.0], classes)[job_class]
    return MaxMin(
        job_class=job_class,
        rate=rate[job_class],
        worth=normal * scale / weight,
        gain=normal,
        scale=scale,
        accelerator_of_slot=np.arange(types),
        slot_devices=np.ones(types),
        capacity=capacity,
    )


def shares_of(
    problem: MaxMin, central: bool, basis: tuple[bytes, ...] = ()
) -> tuple[Floats, SolveReport]:
    """At the analytic centre, if it is wanted and found."""
    return (analytic_centre_of(problem) if central else None) or solve(problem, basis)


def bits(problem: MaxMin, central: bool, basis: tuple[bytes, ...] = ()) -> str:
    """A digest of everything that a solve gives back."""
    share, report = shares_of(problem, central, basis)
    digest = hashlib.sha256(share.tobytes() + b"".join(report.basis))
    digest.update(repr((report.objective, report.bound, report.iterations)).encode())
    return digest.hexdigest()


def feasible(problem: MaxMin, share: Floats) -> None:
    assert share.min() >= 0
    assert share.sum(axis=1).max() <= 1 + 1e-12
    assert (problem.scale @ share <= problem.capacity * (1 + 1e-12)).all()


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_certificate_holds_and_is_tight(seed: int, central: bool) -> None:
    problem = random_problem(seed, jobs=20 + seed % 200, classes=1 + seed % 30, types=1 + seed % 4)
    share, report = shares_of(problem, central)
    feasible(problem, share)
    assert report.objective is not None
    assert report.bound is not None
    assert report.bound >= report.objective * (1 - 1e-12)
    assert report.gap is not None
    assert report.gap <= 1e-6
    level = ((problem.rate * share).sum(axis=1) * problem.worth).min()
    assert report.objective == pytest.approx(level, rel=1e-12)


def test_jobs_of_a_class_get_the_same() -> None:
    problem = random_problem(3)
    share, _ = solve(problem)
    for one in np.unique(problem.job_class):
        rows = share[problem.job_class == one]
        assert (rows == rows[0]).all()


def test_the_second_phase_leaves_no_gain_behind() -> None:
    """One job capped by its own speed: the level is its own, and the rest goes to the other."""
    problem = MaxMin(
        job_class=np.array([0, 1]),
        rate=np.array([[1.0], [1.0]]),
        worth=np.array([1.0, 4.0]),
        gain=np.ones(2),
        scale=np.ones(2),
        accelerator_of_slot=np.array([0]),
        slot_devices=np.ones(1),
        capacity=np.array([2.0]),
    )
    share, report = solve(problem)
    assert report.objective == pytest.approx(1.0, rel=1e-8)
    assert share[:, 0] == pytest.approx([1.0, 1.0], rel=1e-8)


@pytest.mark.parametrize("central", [False, True])
def test_the_centre_treats_equal_types_equally(central: bool) -> None:
    rate = np.ones((4, 2))
    problem = MaxMin(
        job_class=np.zeros(4, np.int64),
        rate=rate,
        worth=np.ones(4),
        gain=np.ones(4),
        scale=np.ones(4),
        accelerator_of_slot=np.arange(2),
        slot_devices=np.ones(2),
        capacity=np.array([1.0, 1.0]),
    )
    share, report = shares_of(problem, central)
    assert report.objective == pytest.approx(0.5, rel=1e-6)
    if central:
        assert share == pytest.approx(np.full((4, 2), 0.25), rel=1e-4)


def test_a_job_that_can_run_nowhere_gets_nothing_and_holds_nobody_down() -> None:
    problem = random_problem(5)
    rate = problem.rate.copy()
    rate[problem.job_class == 2] = 0.0
    share, report = solve(replace(problem, rate=rate))
    assert not share[problem.job_class == 2].any()
    assert report.objective is not None
    assert report.objective > 0
    assert report.gap is not None
    assert report.gap <= 1e-6


@pytest.mark.parametrize("central", [False, True])
def test_with_no_devices_nobody_runs(central: bool) -> None:
    problem = replace(random_problem(6), capacity=np.zeros(3))
    share, report = shares_of(problem, central)
    assert not share.any()
    assert report.objective == 0.0


@pytest.mark.parametrize("central", [False, True])
def test_a_type_without_devices_is_not_used(central: bool) -> None:
    problem = replace(random_problem(6), capacity=np.array([3.0, 0.0, 5.0]))
    share, report = shares_of(problem, central)
    assert not share[:, 1].any()
    feasible(problem, share)
    assert report.gap is not None
    assert report.gap <= 1e-6


def test_two_slot_types_draw_on_the_same_devices() -> None:
    problem = replace(
        random_problem(7), accelerator_of_slot=np.array([0, 0, 1]), capacity=np.array([4.0, 3.0])
    )
    share, report = solve(problem)
    used = problem.scale @ share
    assert used[0] + used[1] <= 4 + 1e-9
    assert report.gap is not None
    assert report.gap <= 1e-6


def test_a_warm_start_survives_jobs_that_come_and_go() -> None:
    """The same optimum with far fewer steps, whatever classes have appeared or vanished."""
    cold = warm = 0
    basis: tuple[bytes, ...] = ()
    everyone = random_problem(8, jobs=400, classes=40)
    for event in range(40):
        here = np.random.default_rng(1).random(400) + event * 0.01 > 0.5
        here[event * 3 : event * 3 + 5] = False
        problem = replace(
            everyone,
            job_class=everyone.job_class[here],
            rate=everyone.rate[here],
            worth=everyone.worth[here],
            gain=everyone.gain[here],
            scale=everyone.scale[here],
        )
        _, fresh = solve(problem)
        _, report = solve(problem, basis)
        assert report.objective == pytest.approx(fresh.objective, rel=1e-8)
        assert report.warm == (event > 0)
        basis = report.basis
        cold, warm = cold + fresh.iterations, warm + report.iterations
    assert warm < cold / 2


@pytest.mark.parametrize("basis", [(b"",), (b"a", b"b", b"c"), (b"\0" * 8, b"\1" * 9, b"\1" * 4)])
def test_a_basis_of_another_problem_does_no_harm(basis: tuple[bytes, ...]) -> None:
    problem = random_problem(9)
    _, report = solve(problem, basis)
    assert report.objective == pytest.approx(solve(problem)[1].objective, rel=1e-9)


def test_the_same_problem_gives_the_same_bits_whatever_was_solved_before() -> None:
    problem = random_problem(10)
    basis = solve(random_problem(11))[1].basis
    before = [bits(problem, False), bits(problem, False, basis), bits(problem, True)]
    for seed in range(20):
        shares_of(random_problem(seed, jobs=30 + 7 * seed), seed % 2 == 0, basis)
    assert [bits(problem, False), bits(problem, False, basis), bits(problem, True)] == before


def test_the_same_problem_gives_the_same_bits_in_another_process() -> None:
    here = [bits(random_problem(seed), bool(central)) for seed in range(6) for central in (0, 1)]
    for hash_seed in ("1", "77"):
        out = subprocess.run(
            [sys.executable, "-c", PURITY, str(Path(__file__).parents[3])],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(out.stdout) == here


def test_a_million_jobs_are_as_exact_as_ten() -> None:
    problem = random_problem(12, jobs=1_000_000, classes=80, types=10)
    share, report = solve(problem)
    feasible(problem, share)
    assert report.gap is not None
    assert report.gap <= 1e-8
