"""The window solver: counts against enumeration, packing and ranking against their rules."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.window_programs import ranking_milp

from fairlead.errors import SolveError
from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.planning_horizon import (
    PlanningProblem,
    RoundCounts,
    objective_of,
    solve_counts,
)
from fairlead.policies.solve.round_ordering import mean_round, order_rounds
from fairlead.policies.solve.round_packing import pack_rounds

CHAIN, OTHERS = (1, 2, 4, 8), (1, 2, 3, 5, 6)


def window(
    devices: list[int],
    scale: list[int],
    steps: list[list[float]],
    remaining: list[list[float]],
    penalty: float = 0.0,
    at_least: list[int] | None = None,
    speed: list[list[float]] | None = None,
) -> PlanningProblem:
    """steps: values of one round more, to be sorted."""
    rising = -np.sort(-np.array(steps, np.float64), axis=1)
    start = -rising.sum(axis=1, keepdims=True)
    return PlanningProblem(
        devices=np.array(devices),
        rounds=rising.shape[1],
        scale=np.array(scale),
        utility=np.hstack((start, start + np.cumsum(rising, axis=1))),
        remaining=-np.sort(-np.array(remaining, np.float64), axis=1),
        penalty=penalty,
        at_least=np.array(at_least or [0] * len(scale)),
        speed=None if speed is None else np.array(speed),
    )


@st.composite
def windows(draw: st.DrawFn, sizes: tuple[int, ...] = CHAIN + OTHERS) -> PlanningProblem:
    jobs, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    number = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 1e6]) | st.floats(0, 10)

    def table(columns: int) -> list[list[float]]:
        row = st.lists(number, min_size=columns, max_size=columns)
        return draw(st.lists(row, min_size=jobs, max_size=jobs))

    return window(
        [draw(st.integers(1, 12))],
        [draw(st.sampled_from(sizes)) for _ in range(jobs)],
        table(rounds),
        table(rounds + 1),
        draw(st.sampled_from([0.0, 1e-3, 0.3, 1.0, 100.0])),
        [draw(st.sampled_from([0, 0, 0, 1])) for _ in range(jobs)],
    )


def enumerated(problem: PlanningProblem) -> float:
    """The best objective of all counts, -inf if there are none."""
    best = -np.inf
    sides = [problem.rounds + 1] * len(problem.scale)
    able = np.where(problem.scale <= problem.devices[0], problem.rounds, 0)
    for counts in np.ndindex(*sides):
        some = np.array(counts)
        if (some < problem.at_least).any() or (some > able).any():
            continue
        if problem.scale @ some <= problem.rounds * problem.devices[0]:
            best = max(best, objective_of(problem, some.astype(np.float64)))
    return best


@settings(max_examples=150)
@given(windows())
def test_no_counts_are_better(problem: PlanningProblem) -> None:
    answer, best = solve_counts(problem), enumerated(problem)
    assert answer.feasible == np.isfinite(best)
    if answer.feasible:
        counts = answer.counts[:, 0]
        tolerance = 1e-9 * max(1.0, abs(best))
        assert answer.objective == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert answer.bound >= best - tolerance
        assert answer.objective == objective_of(problem, counts.astype(np.float64))
        assert (counts >= problem.at_least).all()
        assert problem.scale @ counts <= problem.rounds * problem.devices[0]


@pytest.mark.parametrize("sizes", [CHAIN, (1, 2, 3, 6), (2, 3, 7), (5, 8, 12)])
def test_many_jobs_against_a_dynamic_program(sizes: tuple[int, ...]) -> None:
    """Enough jobs that the capacity breaks among them; the penalty is off, so that one table over the
    capacity finds the best."""
    rng = np.random.default_rng(sum(sizes))
    for _ in range(20):
        jobs, rounds = 30, 6
        problem = window(
            [int(rng.integers(max(sizes), 20))],
            rng.choice(sizes, jobs).tolist(),
            rng.exponential(1.0, (jobs, rounds)).tolist(),
            np.zeros((jobs, rounds + 1)).tolist(),
        )
        capacity = int(problem.devices[0]) * rounds
        best = np.zeros(capacity + 1)
        for job in range(jobs):
            before, size = best, int(problem.scale[job])
            best = before + problem.utility[job, 0]
            for s in range(1, min(rounds, capacity // size) + 1):
                np.maximum(
                    best[s * size :],
                    before[: capacity + 1 - s * size] + problem.utility[job, s],
                    out=best[s * size :],
                )
        assert solve_counts(problem).objective == pytest.approx(best[-1], rel=1e-12)


def test_astronomic_weights_do_not_drown_the_others() -> None:
    steps = [[1e18, 0.0, 0.0], [3.0, 2.0, 1.0], [2.5, 2.4, 2.3]]
    problem = window([2], [1, 1, 1], steps, [[0.0] * 4] * 3)
    assert solve_counts(problem).counts[:, 0].tolist() == [1, 2, 3]


def test_what_remains_of_the_longest_job_outweighs_the_rest() -> None:
    """One device, three rounds: job 0 has 30 s left, 10 s less with each round."""
    remaining = [[30.0, 20.0, 10.0, 0.0], [15.0, 15.0, 15.0, 15.0]]
    problem = window([1], [1, 1], [[0.0] * 3, [1.0, 1.0, 1.0]], remaining)
    priced = replace(problem, penalty=10.0)
    assert solve_counts(problem).counts[:, 0].tolist() == [0, 3]
    assert solve_counts(priced).counts[:, 0].tolist() == [2, 1]  # less than 15 s is of no use


def test_lower_bounds_that_do_not_fit() -> None:
    problem = window([1], [1, 1], [[1.0, 1.0]] * 2, [[0.0] * 3] * 2, at_least=[2, 1])
    answer = solve_counts(problem)
    assert not answer.feasible
    assert answer.objective == -np.inf


def test_a_job_that_is_too_large_does_not_run() -> None:
    problem = window([2], [4, 1], [[9.0, 9.0], [1.0, 1.0]], [[50.0, 0.0, 0.0], [0.0] * 3], 1.0)
    assert solve_counts(problem).counts[:, 0].tolist() == [0, 2]


def test_sizes_for_which_nothing_is_proven() -> None:
    """Three jobs of 4,999 of 10,000 devices, and 200 small ones: the bound stays a bound."""
    scale = [4999] * 3 + [7] * 200
    problem = window([10000], scale, [[5000.0, 4999.5]] * 3 + [[6.9, 6.8]] * 200, [[0.0] * 3] * 203)
    answer = solve_counts(problem)
    assert not answer.proven
    assert problem.scale @ answer.counts[:, 0] <= 20000
    assert answer.bound - 5000 <= answer.objective <= answer.bound


def test_nobody_there() -> None:
    empty = PlanningProblem(
        devices=np.array([4]),
        rounds=2,
        scale=np.zeros(0, np.int64),
        utility=np.zeros((0, 3)),
        remaining=np.zeros((0, 3)),
        penalty=1.0,
        at_least=np.zeros(0, np.int64),
    )
    assert solve_counts(empty).counts.shape == (0, 1)
    assert solve_counts(replace(empty, devices=np.array([4, 2]))).counts.shape == (0, 2)


def test_a_value_that_is_not_finite() -> None:
    problem = window([1], [1, 1], [[1.0], [2.0]], [[0.0, 0.0]] * 2)
    with pytest.raises(SolveError, match="utility of job 1 is not finite"):
        solve_counts(replace(problem, utility=np.array([[0.0, 1.0], [0.0, np.inf]])))
    with pytest.raises(SolveError, match="remaining has the shape"):
        solve_counts(replace(problem, remaining=np.zeros((2, 5))))


# Several accelerator types


@st.composite
def mixed_windows(draw: st.DrawFn) -> PlanningProblem:
    problem = draw(windows(CHAIN))
    jobs = len(problem.scale)
    speed = [[1.0, draw(st.sampled_from([0.0, 0.25, 0.4, 1.0]))] for _ in range(jobs)]
    straight = np.linspace(0, 1, problem.rounds + 1)
    top = problem.remaining[:, :1]
    return replace(
        problem,
        devices=np.array([problem.devices[0], draw(st.integers(1, 6))]),
        at_least=np.zeros(jobs, np.int64),
        remaining=top - straight * top * draw(st.sampled_from([0.0, 0.5, 1.0])),
        speed=np.array(speed),
    )


@settings(max_examples=60)
@given(mixed_windows())
def test_types_keep_within_the_limits_and_below_the_bound(problem: PlanningProblem) -> None:
    answer = solve_counts(problem)
    counts = answer.counts
    assert problem.speed is not None
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) <= problem.rounds).all()
    assert (problem.scale @ counts <= problem.rounds * problem.devices).all()
    assert (counts[problem.speed == 0] == 0).all()
    progress = (counts * problem.speed).sum(axis=1)
    assert answer.objective == objective_of(problem, progress)
    nothing = objective_of(problem, np.zeros(len(progress)))
    assert nothing <= answer.objective <= answer.bound


@settings(max_examples=60)
@given(windows(CHAIN))
def test_two_types_are_no_worse_than_one_of_them(problem: PlanningProblem) -> None:
    """The bound at least: whatever can be done on one type is among the choices."""
    convex = np.linspace(1, 0, problem.rounds + 1) * problem.remaining[:, :1]
    one = replace(problem, remaining=convex, at_least=np.zeros(len(problem.scale), np.int64))
    speed = np.ones((len(problem.scale), 2))
    two = replace(one, devices=np.array([problem.devices[0], 1]), speed=speed)
    alone = solve_counts(one).objective
    assert solve_counts(two).bound >= alone - 1e-6 * max(1.0, abs(alone))


def test_each_job_where_it_is_fast() -> None:
    """Two types, two jobs that are each slow on the other's: nobody moves."""
    problem = window(
        [1, 1], [1, 1], [[1.0] * 4] * 2, [[40.0, 30.0, 20.0, 10.0, 0.0]] * 2, 0.1,
        speed=[[1.0, 0.1], [0.1, 1.0]],
    )  # fmt: skip
    answer = solve_counts(problem)
    assert answer.counts.tolist() == [[4, 0], [0, 4]]
    assert answer.objective == pytest.approx(answer.bound)


def test_types_end_near_the_bound() -> None:
    """Sixty jobs on three types that are short of devices; what is left of the longest matters most."""
    rng = np.random.default_rng(3)
    gaps = []
    for _ in range(10):
        jobs, rounds = 60, 12
        left_s = rng.exponential(3000.0, (jobs, 1)) + 600.0
        slower = rng.uniform(0.2, 0.9, (jobs, 2))
        problem = replace(
            window(
                [6, 8, 10],
                rng.choice(CHAIN[:3], jobs).tolist(),
                (rng.exponential(1.0, (jobs, rounds)) / jobs).tolist(),
                np.zeros((jobs, rounds + 1)).tolist(),
                1e-3,
            ),
            remaining=np.maximum(left_s - 120.0 * np.arange(rounds + 1), 0.0),
            speed=np.hstack((np.ones((jobs, 1)), slower)),
        )
        answer = solve_counts(problem)
        assert answer.objective <= answer.bound
        gaps.append((answer.bound - answer.objective) / abs(answer.bound))
    assert max(gaps) <= 0.01
    assert np.mean(gaps) <= 0.005


def test_jobs_stay_on_one_type_where_there_is_room() -> None:
    """Three jobs of two speeds and devices for all: nobody has a reason to move."""
    straight = [[1.0] * 4] * 3
    speed = [[1.0, 0.5], [0.5, 1.0], [1.0, 1.0]]
    problem = window([3, 3], [1, 1, 1], straight, [[0.0] * 5] * 3, speed=speed)
    counts = solve_counts(problem).counts
    assert ((counts > 0).sum(axis=1) == 1).all()
    assert counts.sum(axis=1).tolist() == [4, 4, 4]


def test_lower_bounds_on_several_types() -> None:
    problem = window(
        [1, 1], [1, 1], [[5.0, 5.0], [1.0, 1.0]], [[0.0] * 3] * 2, at_least=[0, 2],
        speed=[[1.0, 0.5], [1.0, 0.5]],
    )  # fmt: skip
    assert solve_counts(problem).counts.tolist() == [[0, 2], [2, 0]]
    greedy = replace(problem, at_least=np.array([2, 2]))
    assert not solve_counts(greedy).feasible


# Packing


def random_counts(rng: np.random.Generator, sizes: tuple[int, ...], types: int) -> PlanningProblem:
    jobs, rounds = int(rng.integers(1, 40)), int(rng.integers(2, 9))
    speed = rng.uniform(0.2, 1.0, (jobs, types))
    speed[np.arange(jobs), rng.integers(0, types, jobs)] = 1.0
    return window(
        rng.integers(max(sizes), 24, types).tolist(),
        rng.choice(sizes, jobs).tolist(),
        rng.exponential(1.0, (jobs, rounds)).tolist(),
        np.zeros((jobs, rounds + 1)).tolist(),
        speed=speed.tolist() if types > 1 else None,
    )


def check_schedule(schedule: Ints, problem: PlanningProblem) -> None:
    for kind, devices in enumerate(problem.devices.tolist()):
        assert (problem.scale @ (schedule == kind)).max(initial=0) <= devices


def held(schedule: Ints, types: int) -> Ints:
    return np.column_stack([(schedule == kind).sum(axis=1) for kind in range(types)])


@pytest.mark.parametrize("types", [1, 3])
def test_packing_and_ranking_keep_the_counts_and_the_devices(types: int) -> None:
    rng = np.random.default_rng(types)
    for _ in range(40):
        problem = random_counts(rng, CHAIN if rng.random() < 0.5 else OTHERS, types)
        answer: RoundCounts = solve_counts(problem)
        packed, left = pack_rounds(answer.counts, problem.scale, problem.devices, problem.rounds)
        check_schedule(packed, problem)
        assert (held(packed, types) + left == answer.counts).all()
        weight = rng.exponential(1.0, len(problem.scale)) ** 4
        ranked = order_rounds(packed, problem.scale, problem.devices, weight)
        check_schedule(ranked, problem)
        assert (held(ranked, types) == held(packed, types)).all()
        assert mean_round(ranked, weight) <= mean_round(packed, weight) * (1 + 1e-12)


def test_counts_that_fit_in_all_but_not_round_by_round() -> None:
    """8 devices, two rounds: a job of 8 once and a job of 4 twice, which would have to run beside it."""
    schedule, left = pack_rounds(np.array([[1], [2]]), np.array([8, 4]), np.array([8]), 2)
    assert left.tolist() == [[0], [1]]
    assert sorted(schedule[0].tolist()) == [-1, 0]


# Ranking


def ranked_and_best(
    rng: np.random.Generator, sizes: tuple[int, ...], weights: Floats | None = None
) -> tuple[float, float]:
    problem = random_counts(rng, sizes, 1)
    counts = solve_counts(problem).counts
    packed, _ = pack_rounds(counts, problem.scale, problem.devices, problem.rounds)
    placed = held(packed, 1)[:, 0]
    weight = rng.exponential(1.0, len(placed)) ** 3 if weights is None else weights[: len(placed)]
    ranked = order_rounds(packed, problem.scale, problem.devices, weight)
    best = ranking_milp(
        placed, problem.scale, int(problem.devices[0]), problem.rounds, weight, 1e-9
    )
    return mean_round(ranked, weight), best


def test_ranking_of_jobs_of_one_size_is_the_optimum() -> None:
    rng = np.random.default_rng(7)
    for size in (1, 1, 1, 1, 2, 4) * 4:
        got, best = ranked_and_best(rng, (size,))
        assert got == pytest.approx(best, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("sizes", [CHAIN, OTHERS])
def test_ranking_of_mixed_sizes_is_close(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(sizes))
    got, best = np.array([ranked_and_best(rng, sizes) for _ in range(25)]).T
    assert (got >= best - 1e-7 * np.maximum(best, 1)).all()
    assert got.sum() <= 1.005 * best.sum()


def test_urgent_jobs_come_first() -> None:
    """One device: the order is that of weight per round, whatever the rows' order."""
    packed, _ = pack_rounds(np.array([[1], [2], [1]]), np.ones(3, np.int64), np.array([1]), 4)
    ranked = order_rounds(packed, np.ones(3, np.int64), np.array([1]), np.array([1.0, 10.0, 7.0]))
    assert ranked.tolist() == [[-1, -1, -1, 0], [-1, 0, 0, -1], [0, -1, -1, -1]]
