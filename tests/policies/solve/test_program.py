"""Programs over classes and pairs: the optimum of the literal program over jobs, and what it becomes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.policies.pairs import paired

from fairlead.model.allocation import SolveReport
from fairlead.model.allocation_checks import check_allocation, effective_throughput
from fairlead.model.snapshot import Snapshot
from fairlead.policies.common import allocation
from fairlead.policies.solve.configurations import LinearObjective
from fairlead.policies.solve.expand import pair_shares
from fairlead.policies.solve.program import Program
from fairlead.policies.solve.share_problem import ShareProblem
from fairlead.policies.solve.space_sharing import max_min


def literal_total(snapshot: Snapshot, value: float) -> float:
    """max value sum of all throughputs, over every job and every pair of equal scale factor."""
    n, slots = snapshot.solo_rate.shape
    assert snapshot.colocated_rate is not None
    gain, time, devices = [], [], []
    for i in range(n):
        for j in range(i, n):
            if snapshot.scale[i] != snapshot.scale[j]:
                continue
            for t in range(slots):
                a, b = snapshot.job_type[i], snapshot.job_type[j]
                both = snapshot.colocated_rate[a, b, t] + snapshot.colocated_rate[b, a, t]
                gain.append(snapshot.solo_rate[i, t] if i == j else both)
                time.append([float(k in (i, j)) for k in range(n)])
                used = np.zeros(len(snapshot.capacity))
                used[snapshot.accelerator_of_slot[t]] = snapshot.scale[i]
                devices.append(used)
    rows = np.concatenate([np.array(time), np.array(devices)], axis=1).T
    right = np.concatenate([np.ones(n), snapshot.capacity])
    found = linprog(-value * np.array(gain), A_ub=rows, b_ub=right, method="highs")
    assert found.fun is not None
    return -float(found.fun)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_column_generation_finds_the_optimum_over_all_pairs(seed: int) -> None:
    snapshot = paired(seed)
    problem = ShareProblem.of(snapshot, space_sharing=True)
    same = LinearObjective(
        np.full(len(problem.scale), 2.0), np.zeros(len(problem.accelerator_of_slot))
    )
    answer = Program(problem=problem).load().maximise(same)
    assert answer.objective == pytest.approx(literal_total(snapshot, 2.0), rel=1e-8, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_expansion_gives_every_job_of_a_class_the_same(seed: int) -> None:
    """Nobody is paired with itself, no job has more than its time, and the total is what it was."""
    snapshot = paired(seed, jobs=17)
    problem = ShareProblem.of(snapshot, space_sharing=True)
    worth = 1 / problem.best
    found = max_min(problem, worth, worth, 0.0)
    pairs, share = pair_shares(problem, found.solution, snapshot)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    alone = found.solution.per_job(problem)[problem.classes.of]
    made = check_allocation(
        allocation(snapshot, alone, SolveReport("optimal"), pairs, share), snapshot
    )
    rate = effective_throughput(made, snapshot) / problem.best[problem.classes.of]
    for c in range(len(problem.scale)):
        of_class = rate[problem.classes.of == c]
        assert of_class == pytest.approx(of_class[0], rel=1e-9)
    assert rate.min() == pytest.approx(found.level, rel=1e-6)


def test_running_pairs_stay_together() -> None:
    """A second solve of the same problem keeps the pairs that run, whatever order they came to be in."""
    snapshot = paired(3, jobs=16, kinds=1)
    problem = ShareProblem.of(snapshot, space_sharing=True)
    worth = 1 / problem.best
    answer = max_min(problem, worth, worth, 0.0).solution
    pairs, _ = pair_shares(problem, answer, snapshot)
    assert len(pairs)
    crossed = np.sort(np.array([[0, 15], [3, 9], [4, 8], [1, 14]]), axis=1)
    member = np.concatenate([snapshot.group_members, np.full((len(snapshot.jobs), 1), -1)], axis=1)
    running = np.concatenate([np.full(len(member), -1), np.zeros(len(crossed), np.int64)])
    now = replace(snapshot, group_members=np.concatenate([member, crossed]), running_on=running)
    kept, _ = pair_shares(problem, answer, now)
    assert {tuple(pair) for pair in crossed.tolist()} <= {tuple(pair) for pair in kept.tolist()}


def test_a_warm_start_ends_at_the_same_objective() -> None:
    before, after = paired(5, jobs=20), paired(5, jobs=21)
    old, new = (
        ShareProblem.of(before, space_sharing=True),
        ShareProblem.of(after, space_sharing=True),
    )
    first = max_min(old, 1 / old.best, 1 / old.best, 0.0)
    cold = max_min(new, 1 / new.best, 1 / new.best, 0.0)
    warm = max_min(new, 1 / new.best, 1 / new.best, 0.0, first.basis)
    assert warm.solution.warm
    assert warm.level == pytest.approx(cold.level, rel=1e-9)
    assert warm.bound == pytest.approx(cold.level, rel=1e-7)
