"""Water filling against a literal loop of linear programs over jobs, flat and by entities."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairlead.model.allocation_checks import effective_throughput
from fairlead.model.arrays import Bools, Floats
from fairlead.model.cluster import Cluster, SlotType
from fairlead.model.job_type import JobType
from fairlead.model.rates import proportional_rate
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.policies.entities import Entities, Entity
from fairlead.policies.gavel_reference.water_filling import (
    ReleasedAgnosticWaterFilling,
    ReleasedWaterFilling,
)
from fairlead.policies.solve import fill_by_breakpoints
from fairlead.policies.water_filling import (
    AgnosticWaterFilling,
    SpaceSharingWaterFilling,
    WaterFilling,
)
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.job_types import job_types
from tests.policies.problems import rich_snapshots

SLACK = 1e-8  # part of a height that it may lose to the solver's tolerance
TENANTS = ("org/a", "org", "solo")


@st.composite
def trees(draw: st.DrawFn) -> Entities:
    """org with a team and jobs of its own, and solo; every weight and policy is drawn."""
    policy = st.sampled_from(["fairness", "fifo"])
    weight = st.sampled_from([1.0, 0.3, 4.0])
    org, team, solo = (draw(st.tuples(weight, policy)) for _ in range(3))
    return Entities(
        (
            Entity("", 0),
            Entity("org", 0, *org),
            Entity("org/a", 1, *team),
            Entity("solo", 0, *solo),
        ),
        "drawn.toml",
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[Snapshot, Entities]:
    """Flat, or with entities."""
    snapshot = replace(draw(rich_snapshots(max_jobs=6)), tenants=TENANTS)
    return snapshot, draw(st.one_of(st.just(Entities()), trees()))


# --- the literal loop -----------------------------------------------------------------------------


class Literal:
    """Heights s_i t_i / p_i of jobs as rows over every job group and slot type, and what is shared."""

    def __init__(
        self, snapshot: Snapshot, heterogeneity_aware: bool = True, packed: bool = False
    ) -> None:
        n, slots = snapshot.solo_rate.shape
        scale = snapshot.job_scale
        groups: list[tuple[int, ...]] = [(i,) for i in range(n)]
        if packed:
            groups += [(a, b) for a, b in combinations(range(n), 2) if scale[a] == scale[b]]
        solo = snapshot.solo_rate if heterogeneity_aware else np.ones_like(snapshot.solo_rate)
        p = proportional_rate(snapshot) if heterogeneity_aware else np.ones(n)
        self.can: Bools = p > 0
        gain = np.zeros((n, len(groups), slots))
        time = np.zeros((n, len(groups), slots))
        devices = np.zeros((len(snapshot.capacity), len(groups), slots))
        for u, group in enumerate(groups):
            for i in group:
                colocated_rate = snapshot.colocated_rate
                other = sum(group) - i if len(group) == 2 else None
                if other is None:
                    gain[i, u] = solo[i]
                else:
                    assert colocated_rate is not None
                    gain[i, u] = colocated_rate[snapshot.job_type[i], snapshot.job_type[other]]
                gain[i, u] *= scale[i] / p[i] if p[i] > 0 else 0.0
                time[i, u] = 1.0
            for j in range(slots):
                devices[snapshot.accelerator_of_slot[j], u, j] = scale[group[0]]
        self.gain = gain.reshape(n, -1)
        self.limits = np.vstack([time.reshape(n, -1), devices.reshape(len(devices), -1)])
        self.right = np.concatenate([np.ones(n), snapshot.capacity])

    def most(self, floor: Floats, pace: Floats, target: Floats) -> float:
        """max z + target * heights, with heights >= floor + pace z. Without pace, z is 0."""
        cost = np.append(-(target @ self.gain), -1.0 if pace.any() else 0.0)
        rows = np.vstack(
            [
                np.column_stack([-self.gain, pace]),
                np.column_stack([self.limits, np.zeros(len(self.limits))]),
            ]
        )
        bounds = [(0, None)] * self.gain.shape[1] + [(0, None if pace.any() else 0)]
        right = np.concatenate([-floor, self.right])
        found = linprog(
            cost,
            rows,
            right,
            bounds=bounds,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.status != 0 or found.fun is None:
            reject()  # its tolerance is smaller than what the floors, themselves solved for, allow
        return -float(found.fun)


def paces(snapshot: Snapshot, entities: Entities, open_: Bools) -> Floats:
    """(jobs,) how fast each job's height rises: the weights, handed down the tree."""
    of = entities.of(snapshot)
    pace = np.zeros(len(of))

    def below(entity: int) -> list[int]:
        inside = np.flatnonzero(of == entity).tolist()
        for child, e in enumerate(entities.tree):
            if child and e.parent == entity:
                inside += below(child)
        return inside

    def give(entity: int, weight: float) -> None:
        mine = np.flatnonzero((of == entity) & open_).tolist()
        children = [(i, float(snapshot.weight[i]), -1, i) for i in mine]  # oldest job, ..., job
        for child, e in enumerate(entities.tree):
            if child and e.parent == entity and open_[below(child)].any():
                children.append((min(below(child)), e.weight, child, -1))
        children.sort()
        if entities.tree[entity].policy == "fifo":
            children = children[:1]
        total = sum(c[1] for c in children) if entity else weight
        for _, own, child, job in children:
            if child < 0:
                pace[job] = weight * own / total
            else:
                give(child, weight * own / total)

    give(0, 1.0)
    return pace


def literal(snapshot: Snapshot, entities: Entities, problem: Literal) -> Floats:
    """(jobs,) heights."""
    n = len(snapshot.jobs)
    height, open_ = np.zeros(n), problem.can.copy()
    none = np.zeros(n)
    rounds = 0
    while open_.any():
        if rounds > 3 * n:  # what one job loses to the solver's tolerance is worth much to another
            reject()
        rounds += 1
        pace = paces(snapshot, entities, open_)
        height = height + pace * problem.most(height * (1 - SLACK), pace, none)
        for i in np.flatnonzero(open_).tolist():
            alone = problem.most(height * (1 - SLACK), none, np.eye(n)[i])
            open_[i] = alone > height[i] * (1 + 1e-5) + 1e-5
    return height


# --- properties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("central", [False, True])
@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_aware_levels_are_the_literal_ones(
    central: bool, problem: tuple[Snapshot, Entities]
) -> None:
    snapshot, entities = problem
    made = ReleasedWaterFilling if central else WaterFilling
    allocation = made(entities=entities).allocate(snapshot)
    expected = literal(snapshot, entities, Literal(snapshot))
    p = proportional_rate(snapshot)
    mine = effective_throughput(allocation, snapshot) * snapshot.job_scale / np.where(p > 0, p, 1.0)
    assert mine[p > 0] == pytest.approx(expected[p > 0], rel=1e-5, abs=1e-5)
    report = allocation.report
    assert report.gap is not None
    assert report.gap <= 1e-6
    assert report.violation <= 1e-9
    assert not allocation.share[snapshot.solo_rate == 0].any()


@pytest.mark.parametrize("central", [False, True])
@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_agnostic_levels_are_the_literal_ones(
    central: bool, problem: tuple[Snapshot, Entities]
) -> None:
    snapshot, entities = problem
    made = ReleasedAgnosticWaterFilling if central else AgnosticWaterFilling
    allocation = made(entities=entities).allocate(snapshot)
    expected = literal(snapshot, entities, Literal(snapshot, heterogeneity_aware=False))
    mine = allocation.share.sum(axis=1) * snapshot.job_scale
    assert mine == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert allocation.report.gap is not None
    assert allocation.report.gap <= 1e-6


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_packed_levels_are_the_literal_ones(problem: tuple[Snapshot, Entities]) -> None:
    snapshot, entities = problem
    allocation = SpaceSharingWaterFilling(entities=entities).allocate(snapshot)
    expected = literal(snapshot, entities, Literal(snapshot, packed=True))
    p = proportional_rate(snapshot)
    mine = effective_throughput(allocation, snapshot) * snapshot.job_scale / np.where(p > 0, p, 1.0)
    assert mine[p > 0] == pytest.approx(expected[p > 0], rel=1e-5, abs=1e-5)
    assert allocation.report.gap is not None
    assert allocation.report.gap <= 1e-6


def test_a_job_that_is_faster_beside_another_than_alone_rises_above_its_best_alone() -> None:
    pair = np.array([[[0.0], [1.2]], [[1.0], [0.0]]])
    table = Throughputs((SlotType("a"),), job_types(("f", 1), ("g", 1)), np.ones((2, 1)), pair)
    snapshot = snapshot_of([InstanceJob(0, "f"), InstanceJob(1, "g")], Cluster.of({"a": 1}), table)
    height = effective_throughput(SpaceSharingWaterFilling().allocate(snapshot), snapshot)
    assert height == pytest.approx([1.2, 1.0])


def test_a_start_from_a_sample_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """700 jobs with rates of their own."""
    rng = np.random.default_rng(0)
    kinds = tuple((f"f{i}", int(s)) for i, s in enumerate(rng.choice([1, 2, 4], 700)))
    rate = rng.lognormal(0.0, 0.7, (700, 3))
    table = Throughputs(tuple(SlotType(a) for a in "abc"), job_types(*kinds), rate)
    jobs = [InstanceJob(i, *kind, weight=float(rng.choice([1, 5]))) for i, kind in enumerate(kinds)]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 150, "b": 150, "c": 150}), table)
    sampled = WaterFilling().allocate(snapshot)
    monkeypatch.setattr(fill_by_breakpoints, "SIMPLEX_LIMIT", 10_000)
    plain = WaterFilling().allocate(snapshot)
    assert effective_throughput(sampled, snapshot) == pytest.approx(
        effective_throughput(plain, snapshot), rel=1e-8
    )
    assert sampled.report.iterations < plain.report.iterations
    assert sampled.report.gap is not None
    assert sampled.report.gap <= 1e-9


def test_an_earlier_answer_makes_it_quicker_and_no_different() -> None:
    rng = np.random.default_rng(1)
    table = Throughputs(
        tuple(SlotType(a) for a in "ab"),
        tuple(JobType.parse(f"f{i}", 1) for i in range(20)),
        rng.lognormal(0.0, 0.7, (20, 2)),
    )
    jobs = [InstanceJob(i, f"f{i % 20}", weight=1.0 + i % 3) for i in range(90)]
    snapshot = snapshot_of(jobs, Cluster.of({"a": 15, "b": 15}), table)
    for policy in (WaterFilling(), ReleasedWaterFilling()):
        first = policy.allocate(snapshot)
        again = policy.allocate(replace(snapshot, previous=first))
        assert again.report.warm
        assert again.report.iterations < first.report.iterations
        assert effective_throughput(again, snapshot) == pytest.approx(
            effective_throughput(first, snapshot), rel=1e-7
        )
