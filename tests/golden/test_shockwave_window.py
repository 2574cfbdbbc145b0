"""The window solver against recorded optima, and against HiGHS on the literal programs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.window_programs import ranking_milp, window_milp

from fairlead.policies.solve.planning_horizon import (
    PlanningProblem,
    objective_of,
    solve_counts,
)
from fairlead.policies.solve.round_ordering import mean_round, order_rounds
from fairlead.policies.solve.round_packing import pack_rounds
from fairlead.simulator.traces.planning_problems import read_windows

pytestmark = pytest.mark.shared
SETS = ("n32", "n64")
Case = tuple[dict[str, Any], PlanningProblem]


def cases(shared: Path, name: str) -> list[Case]:
    path = shared / "golden" / "shockwave" / "window" / f"{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    problems = [instance.problem for instance in read_windows(path)]
    return list(zip(lines, problems, strict=True))


def near(a: float, b: float) -> float:
    return abs(a - b) / max(1.0, abs(b))


@pytest.mark.parametrize("name", SETS)
def test_the_objective_is_the_recorded_optimum(shared: Path, name: str) -> None:
    for line, problem in cases(shared, name):
        answer = solve_counts(problem)
        assert answer.proven
        assert near(answer.objective, line["opt_obj"]) <= 1e-9
        assert answer.objective <= answer.bound
        assert answer.bound <= line["lp_upper_bound"] + 1e-9 * max(1, abs(line["opt_obj"]))


@pytest.mark.parametrize("name", SETS)
def test_counts_find_rounds(shared: Path, name: str) -> None:
    for line, problem in cases(shared, name):
        assert line["packable"]
        counts = solve_counts(problem).counts
        schedule, left = pack_rounds(counts, problem.scale, problem.devices, problem.rounds)
        assert not left.any()
        assert ((schedule == 0).sum(axis=1) == counts[:, 0]).all()
        assert (problem.scale @ (schedule == 0)).max(initial=0) <= problem.devices[0]


@pytest.mark.parametrize("name", SETS)
def test_weights_are_those_that_were_recorded(shared: Path, name: str, tmp_path: Path) -> None:
    recorded = [line for line, _ in cases(shared, name)]
    bare = tmp_path / "bare.jsonl"
    bare.write_text("".join(json.dumps({"inst": line["inst"]}) + "\n" for line in recorded))
    for line, instance in zip(recorded, read_windows(bare), strict=True):
        np.testing.assert_allclose(instance.weight, line["priorities"], rtol=1e-12)


@pytest.mark.parametrize(("name", "lines"), [("n32", (1, 3, 9, 15, 19)), ("n64", (2, 9, 12))])
def test_never_below_the_literal_program(shared: Path, name: str, lines: tuple[int, ...]) -> None:
    """HiGHS takes 1e-6 of a round for none, which weights of 1e18 turn into a gain: where there are such,
    its whole rounds count and not what it says they are worth."""
    chosen = cases(shared, name)
    for k in lines:
        line, problem = chosen[k]
        weight = np.array(line["priorities"])
        found, counts = window_milp(line["inst"], weight)
        answer = solve_counts(problem)
        assert answer.objective >= objective_of(problem, counts.astype(np.float64)) - 1e-12
        if weight.max() < 1e3:
            assert near(answer.objective, found) <= 1e-6


@pytest.mark.parametrize("name", SETS)
def test_ranking_is_within_half_a_percent_of_the_optimum(shared: Path, name: str) -> None:
    for line, problem in cases(shared, name):
        weight = np.minimum(line["priorities"], 1e9)
        counts = np.array(line["opt_counts"])
        packed, _ = pack_rounds(counts[:, None], problem.scale, problem.devices, problem.rounds)
        ranked = order_rounds(packed, problem.scale, problem.devices, weight)
        assert ((ranked == 0).sum(axis=1) == counts).all()
        assert (problem.scale @ (ranked == 0)).max(initial=0) <= problem.devices[0]
        best = ranking_milp(counts, problem.scale, int(problem.devices[0]), problem.rounds, weight)
        assert mean_round(ranked, weight) <= 1.005 * best + 1e-9
