"""Objectives of elastic jobs, stated literally as mixed-integer programs and solved by HiGHS."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from fairlead.model.arrays import Floats
from fairlead.policies.elastic.elastic_round import ElasticRound
from fairlead.policies.elastic.objectives import (
    OBJECTIVES,
    ElasticSrpt,
    Pollux,
    Sia,
    TotalGoodput,
)
from fairlead.policies.solve.multiple_choice import solve_multiple_choice


@st.composite
def rounds(draw: st.DrawFn) -> ElasticRound:
    """Jobs on two accelerator types, which may not have all configurations but have one at least."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    jobs = draw(st.integers(1, 6))
    devices = np.array([1, 2, 4, 1, 2])
    accelerator = np.array([0, 0, 0, 1, 1])
    goodput = rng.uniform(0.5, 3, (jobs, 1)) * devices ** rng.uniform(0.3, 1.0, (jobs, 1))
    goodput = np.where(rng.random(goodput.shape) < 0.8, goodput, 0.0)
    goodput[:, 0] = np.maximum(goodput[:, 0], 0.5)
    present = np.array([rng.choice([-1, *np.flatnonzero(row > 0)]) for row in goodput])
    starts = np.where(present >= 0, rng.integers(1, 4, jobs), rng.integers(0, 3, jobs))
    return ElasticRound(
        goodput=goodput,
        devices=devices,
        accelerator=accelerator,
        capacity=rng.integers(0, 7, 2),
        present=present,
        starts=starts,
        age_s=rng.uniform(0, 3000, jobs),
        remaining_s=np.where(starts > 0, rng.uniform(1, 3000, jobs), np.nan),
        restart_s=np.full(jobs, 30.0),
    )


def restart_factor(jobs: ElasticRound, i: int, c: int) -> float:
    """As Pollux and Sia write it."""
    if c == jobs.present[i] or jobs.starts[i] == 0:
        return 1.0
    restarts, age = max(int(jobs.starts[i]) - 1, 0), float(jobs.age_s[i])
    restart_s = float(jobs.restart_s[i])
    return max(age - restarts * restart_s, 0.0) / (age + restart_s)


def least_cost(jobs: ElasticRound, cost: dict[tuple[int, int], float], idle: Floats) -> float:
    """The least sum of the costs of one configuration per job, or of none."""
    keys = [*cost, *((i, -1) for i in range(len(idle)))]
    rows = np.zeros((len(idle) + 2, len(keys)))
    for k, (i, c) in enumerate(keys):
        rows[i, k] = 1
        if c >= 0:
            rows[len(idle) + jobs.accelerator[c], k] = jobs.devices[c]
    least = np.concatenate([np.ones(len(idle)), np.zeros(2)])
    most = np.concatenate([np.ones(len(idle)), jobs.capacity])
    found = milp(
        [*cost.values(), *idle],
        constraints=LinearConstraint(rows, least, most),
        integrality=np.ones(len(keys), np.int64),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    assert found.success
    return float(found.fun)


def allowed(jobs: ElasticRound) -> list[tuple[int, int]]:
    return [(i, c) for i, c in product(*map(range, jobs.goodput.shape)) if jobs.goodput[i, c] > 0]


@given(rounds(), st.sampled_from([-0.5, -1.0, -0.25]))
def test_sia_is_the_program_of_the_paper(jobs: ElasticRound, power: float) -> None:
    cost = {}
    for i, c in allowed(jobs):
        smallest = min(g for g in jobs.goodput[i] if g > 0)
        value = max(jobs.goodput[i, c] / smallest * restart_factor(jobs, i, c), 1e-9)
        cost[i, c] = value**power
    best = least_cost(jobs, cost, np.full(len(jobs.goodput), 1.1))
    found = solve_multiple_choice(Sia(power=power).program(jobs))
    assert -found.value == pytest.approx(best, rel=1e-6, abs=1e-9)
    assert -found.bound == pytest.approx(best, rel=1e-6, abs=1e-9)


@given(rounds())
def test_pollux_is_the_harmonic_mean_of_speedups_over_fair_shares(jobs: ElasticRound) -> None:
    share = max(jobs.capacity.sum() / len(jobs.goodput), 1)
    cost = {}
    for i, c in allowed(jobs):
        best_by_count: dict[int, float] = {}
        for d, g in zip(jobs.devices, jobs.goodput[i], strict=True):
            if g > 0:
                best_by_count[int(d)] = max(best_by_count.get(int(d), 0), g)
        fair = np.interp(
            share, sorted(best_by_count), [g for _, g in sorted(best_by_count.items())]
        )
        cost[i, c] = 1 / max(jobs.goodput[i, c] / fair * restart_factor(jobs, i, c), 1e-9)
    best = least_cost(jobs, cost, np.full(len(jobs.goodput), 1e3))
    found = solve_multiple_choice(Pollux().program(jobs))
    assert -found.value == pytest.approx(best, rel=1e-6)


def some_round(*, goodput: list[list[float]], capacity: int, **more: Any) -> ElasticRound:
    """On one accelerator type with 1, 2 and 4 devices; none of the jobs has run."""
    jobs = len(goodput)
    return replace(
        ElasticRound(
            goodput=np.array(goodput),
            devices=np.array([1, 2, 4]),
            accelerator=np.zeros(3, np.int64),
            capacity=np.array([capacity]),
            present=np.full(jobs, -1),
            starts=np.zeros(jobs, np.int64),
            age_s=np.full(jobs, 100.0),
            remaining_s=np.full(jobs, 1000.0),
            restart_s=np.full(jobs, 30.0),
        ),
        **more,
    )


def devices_of(jobs: ElasticRound, objective: str) -> list[int]:
    choice = solve_multiple_choice(OBJECTIVES[objective]().program(jobs))
    return [0 if c < 0 else int(jobs.devices[c]) for c in choice.option]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_devices_go_where_they_help(objective: str) -> None:
    jobs = some_round(goodput=[[1.0, 1.9, 3.6], [1.0, 1.05, 1.08]], capacity=5)
    assert devices_of(jobs, objective) == [4, 1]


@pytest.mark.parametrize("objective", ["pollux", "elastic_srpt"])
def test_all_run_before_one_grows(objective: str) -> None:
    jobs = some_round(goodput=[[1.0, 1.9, 3.6]] * 4, capacity=4)
    assert devices_of(jobs, objective) == [1] * 4


def test_total_goodput_lets_jobs_wait() -> None:
    jobs = some_round(goodput=[[1.0, 2.2, 4.5], [1.0, 1.9, 3.6]], capacity=4)
    assert sorted(devices_of(jobs, "goodput")) == [0, 4]
    assert TotalGoodput().program(jobs).none.tolist() == [0, 0]


def test_short_jobs_count_more() -> None:
    goodput = [[1.0, 1.8, 3.2]] * 2
    short = some_round(goodput=goodput, capacity=5, remaining_s=np.array([100.0, 4000.0]))
    assert devices_of(short, "elastic_srpt") == [4, 1]
    long = some_round(goodput=goodput, capacity=5, remaining_s=np.array([4000.0, 100.0]))
    assert devices_of(long, "elastic_srpt") == [1, 4]


def test_nobody_is_moved_shortly_before_the_end() -> None:
    """A move takes 30 s; the job would end in 40 s where it is."""
    running = {"present": np.array([0]), "starts": np.array([1]), "age_s": np.array([5000.0])}
    goodput = [[1.0, 1.9, 3.6]]
    ending = some_round(goodput=goodput, capacity=4, remaining_s=np.array([40.0]), **running)
    assert devices_of(ending, "elastic_srpt") == [1]
    assert devices_of(ending, "sia") == [4], "which does not know"
    lasting = some_round(goodput=goodput, capacity=4, remaining_s=np.array([4000.0]), **running)
    assert devices_of(lasting, "elastic_srpt") == [4]


def test_what_is_left_of_a_job_that_was_not_measured_is_taken_to_be_usual() -> None:
    jobs = some_round(
        goodput=[[1.0, 1.8, 3.2], [1.0, 0.0, 0.0], [1.0, 1.8, 3.2]],
        capacity=6,
        remaining_s=np.array([500.0, np.nan, 500.0]),
    )
    assert np.isfinite(ElasticSrpt().program(jobs).none).all()
    found = devices_of(jobs, "elastic_srpt")
    assert found[1] == 1
    assert sum(found) <= 6


def test_the_example_of_the_documentation() -> None:
    jobs = some_round(goodput=[[1.0, 1.9, 3.6], [1.0, 1.05, 1.08]], capacity=5)
    found = solve_multiple_choice(Sia().program(jobs))
    assert -found.value == pytest.approx(3.6**-0.5 + 1)
    assert found.bound == pytest.approx(found.value)
    assert devices_of(replace(jobs, capacity=np.array([4])), "sia") == [4, 0]
    price = (1.9**-0.5 - 3.6**-0.5) / 2
    assert price == pytest.approx(0.0993, abs=1e-4)
    cheapest = [min(cost, key=lambda c: c[0]) for cost in _costs_at(jobs, price)]
    assert [devices for _, devices in cheapest] == [4, 1]
    assert sum(cost for cost, _ in cheapest) - 5 * price == pytest.approx(-found.value)


def _costs_at(jobs: ElasticRound, price: float) -> list[list[tuple[float, int]]]:
    """What each configuration of each job costs in Sia's objective, its devices paid for; most devices
    first."""
    return [
        [
            *[(g ** (-0.5) + price * d, int(d)) for g, d in zip(row, jobs.devices, strict=True)][
                ::-1
            ],
            (1.1, 0),
        ]
        for row in jobs.goodput
    ]
