"""Shares of elastic jobs against the programs as they are written, one variable per job, type and number."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.allocation import Allocation, SolveReport
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster
from fairlead.model.plan import optional_traits
from fairlead.model.rates import isolated_rate
from fairlead.model.snapshot import Elastic, Snapshot
from fairlead.policies import registry
from fairlead.policies.elastic.configuration_shares import ConfigurationProblem, NumberChoices
from fairlead.simulator.traces.instances import InstanceJob, snapshot_of
from tests.policies.problems import FAMILIES, KINDS, policy_of, table, with_spread

POLICIES = tuple(
    entry.name
    for entry in registry.BUILT_IN
    if (not entry.argument or entry.argument.startswith("["))
    and optional_traits(registry.make(entry.name, seed=0, profile="default")).elastic
)
NEAR = 1e-6
LEVEL = ("las_aware", "water_filling_aware")


@st.composite
def elastic_snapshots(draw: st.DrawFn) -> Snapshot:
    """Some jobs of which most may have several numbers of devices, at rates of their own on each."""
    one = st.floats(0.5, 50.0)
    rate = np.array(draw(st.lists(one, min_size=36, max_size=36))).reshape(12, 3)
    if draw(
        st.booleans()
    ):  # more devices are never slower, and never more than as many times as fast
        for row in range(0, 12, 3):
            rate[row + 1] = rate[row] * draw(st.floats(1.0, 2.0))
            rate[row + 2] = rate[row + 1] * draw(st.floats(1.0, 2.0))
    counts = draw(
        st.dictionaries(st.sampled_from(("a", "b", "c")), st.integers(1, 6), min_size=1, max_size=3)
    )
    sets = st.sampled_from([(1,), (2,), (1, 2), (1, 4), (2, 4), (1, 2, 4)])
    families = draw(st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=6))
    numbers = [draw(sets) for _ in families]
    jobs = [
        InstanceJob(
            5 + 2 * i, family, draw(st.sampled_from(own)), draw(st.sampled_from([1.0, 1.0, 3.0])),
            steps_left=draw(st.floats(10.0, 1e5)), age_s=draw(st.floats(0.0, 1e3)),
        )
        for i, (family, own) in enumerate(zip(families, numbers, strict=True))
    ]  # fmt: skip
    plain = snapshot_of(jobs, Cluster.of(counts), table(rate))
    if draw(st.booleans()):
        plain = with_spread(plain, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))
        by_type = np.zeros((len(KINDS), len(plain.slots)))
        by_type[:, : len(counts)] = plain.job_type_rate
        by_type[plain.job_type] = plain.solo_rate
        plain = replace(plain, job_type_rate=by_type)
    elastic = [(i, n) for i, own in enumerate(numbers) if len(own) > 1 for n in own]
    rows = [KINDS.index((families[i], n)) for i, n in elastic]
    return replace(
        plain,
        elastic=Elastic(
            job=np.array([i for i, _ in elastic], np.int64),
            devices=np.array([n for _, n in elastic], np.int64),
            job_type=np.array(rows, np.int64),
        ),
    )


@dataclass
class Program:
    """The feasible set as it is written: x[r, s] time of a job on one of its numbers (a row r) and a slot
    type, and what each job gets."""

    snapshot: Snapshot

    def __post_init__(self) -> None:
        choices = NumberChoices.of(self.snapshot)
        rate, jobs = choices.rate, len(self.snapshot.jobs)
        self.x = cp.Variable(rate.shape, nonneg=True)
        of_job = (choices.job == np.arange(jobs)[:, None]).astype(np.float64)
        on_type = np.eye(len(self.snapshot.capacity))[self.snapshot.accelerator_of_slot]
        self.gets = of_job @ cp.sum(cp.multiply(rate, self.x), axis=1)
        self.time = of_job @ cp.sum(self.x, axis=1)
        self.devices = (choices.devices.astype(np.float64) @ self.x) @ on_type
        self.can = np.asarray((of_job @ rate).any(axis=1))
        self.limits = [
            self.time <= 1,
            self.devices <= self.snapshot.capacity,
            self.x[rate <= 0] == 0,
        ]

    def most(self, objective: cp.Expression, *more: cp.Constraint) -> float:
        """The largest value of an objective."""
        problem = cp.Problem(cp.Maximize(objective), [*self.limits, *more])
        problem.solve(solver=cp.HIGHS)
        assert problem.status == cp.OPTIMAL
        return float(problem.value)

    def most_of_one(self, job: int, *more: cp.Constraint) -> float:
        return self.most(self.gets[job], *more)


def own_part(snapshot: Snapshot, part: Floats) -> Floats:
    """(jobs,) the best that each job makes of its part of every type, on one at a time."""
    found = []
    for job, share in enumerate(part.tolist()):
        alone = Program(replace(snapshot, capacity=snapshot.capacity * share))
        # a part of a device is none that a number could exceed
        alone = Program(snapshot)
        alone.limits[1] = alone.devices <= snapshot.capacity * share
        found.append(alone.most_of_one(job))
    return np.array(found)


def by_weight(snapshot: Snapshot) -> Floats:
    return np.asarray(snapshot.weight / snapshot.weight.sum())


def solved(name: str, snapshot: Snapshot) -> tuple[ConfigurationProblem, Allocation, Floats]:
    """The problem, its allocation, and (jobs,) steps/s of each job by the scheduler's allocation."""
    choices = NumberChoices.of(snapshot)
    problem = ConfigurationProblem.of(snapshot, choices, np.zeros(choices.rate.shape))
    made = policy_of(name).allocate(problem.snapshot)
    return problem, made, _checked(problem.allocation(made, len(snapshot.slots)), snapshot, choices)


def _checked(made: Allocation, snapshot: Snapshot, choices: NumberChoices) -> Floats:
    given = made.by_number
    assert given is not None
    rate_of = {
        (job, number): rate
        for job, number, rate in zip(
            choices.job.tolist(), choices.devices.tolist(), choices.rate, strict=True
        )
    }
    devices, gets = np.zeros(len(snapshot.capacity)), np.zeros(len(snapshot.jobs))
    for i in range(len(gets)):
        assert snapshot.jobs[i] == made.job_groups[i, 0]
        for slot, number, share in zip(given.slot, given.devices, given.share[i], strict=True):
            if share > 0:
                gets[i] += share * rate_of[i, int(number)][slot]
                devices[snapshot.accelerator_of_slot[slot]] += share * number
    assert (given.share.sum(axis=1) <= 1 + NEAR).all()
    assert (given.share >= 0).all()
    assert (devices <= snapshot.capacity * (1 + NEAR)).all()
    np.testing.assert_allclose(made.share.sum(axis=1), given.share.sum(axis=1), atol=1e-12)
    return gets


def close(a: float, b: float) -> bool:
    return a == pytest.approx(b, rel=NEAR, abs=1e-9)


def certified(report: SolveReport) -> None:
    assert report.gap is not None
    assert report.gap <= NEAR or not report.objective


Judge = Callable[[Snapshot, Program, Floats, SolveReport], None]


def _las(snapshot: Snapshot, program: Program, gets: Floats, report: SolveReport) -> None:
    own = own_part(snapshot, by_weight(snapshot))
    level = cp.Variable()
    can = np.flatnonzero(program.can & (own > 0))
    if not len(can):
        assert not gets.any()
        return
    best = program.most(level, program.gets[can] >= cp.multiply(own[can], level))
    assert best >= 1 - NEAR, "each can have its own part"
    assert close(float((gets[can] / own[can]).min()), best)
    assert report.objective is not None
    assert close(report.objective * snapshot.weight.sum() / snapshot.capacity.sum(), best)


def _water_filling(snapshot: Snapshot, program: Program, gets: Floats, report: SolveReport) -> None:
    """Nobody's level can rise without that of one who has no more falling."""
    own = own_part(snapshot, by_weight(snapshot))
    can = np.flatnonzero(program.can & (own > 0))
    level = gets[can] / own[can] if len(can) else np.zeros(0)
    for i, job in enumerate(can.tolist()):
        low = can[level <= level[i] * (1 + NEAR)]
        low = low[low != job]
        held = [program.gets[low] >= gets[low] * (1 - 1e-8)] if len(low) else []
        assert gets[job] >= program.most_of_one(job, *held) * (1 - 1e-4)
    del report


def _makespan(snapshot: Snapshot, program: Program, gets: Floats, report: SolveReport) -> None:
    pace = cp.Variable()  # of the job with most steps left, so that it is no tiny number
    can = np.flatnonzero(program.can)
    if len(can):
        left = snapshot.steps_left[can]
        best = program.most(pace, cp.multiply(program.gets[can], left.max() / left) >= pace)
        assert report.objective is not None
        assert close(report.objective, left.max() / best)
        assert close(float((left / gets[can]).max()), left.max() / best)


def _finish_time(snapshot: Snapshot, program: Program, gets: Floats, report: SolveReport) -> None:
    own = own_part(snapshot, by_weight(snapshot))
    can = np.flatnonzero(program.can & (own > 0))
    if not len(can):
        return
    rho = report.objective
    assert rho is not None
    finish_s = snapshot.isolated_s[can] + snapshot.steps_left[can] / own[can]
    reached = (snapshot.age_s[can] + snapshot.steps_left[can] / gets[can]) / finish_s
    assert close(float(reached.max()), rho)
    factor = cp.Variable()  # at a rho that is lower, not all can have what they need
    left_s = rho * (1 - 3 * NEAR) * finish_s - snapshot.age_s[can]
    if (left_s > 0).all():
        need = snapshot.steps_left[can] / left_s
        assert program.most(factor, cp.multiply(program.gets[can], 1 / need) >= factor) < 1


def _nash(snapshot: Snapshot, program: Program, gets: Floats, report: SolveReport) -> None:
    """No change of shares has a positive sum of weighted relative changes."""
    can = np.flatnonzero(program.can)
    if len(can):
        weight = snapshot.weight[can] / gets[can]
        assert program.most(weight @ program.gets[can]) <= snapshot.weight[can].sum() * (1 + NEAR)
    del report


def _total(snapshot: Snapshot, program: Program, gets: Floats, report: SolveReport) -> None:
    assert report.objective is not None
    assert close(report.objective, program.most(cp.sum(program.gets)))
    assert close(float(gets.sum()), report.objective)
    del snapshot


def _normalised(snapshot: Snapshot, program: Program, gets: Floats, report: SolveReport) -> None:
    choices = NumberChoices.of(snapshot)
    best = np.zeros(len(gets))
    np.maximum.at(best, choices.job, choices.rate.max(axis=1))
    worth = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0)
    assert report.objective is not None
    assert close(report.objective, program.most(worth @ program.gets))
    assert close(float(worth @ gets), report.objective)


JUDGES: dict[str, Judge] = {
    "las_aware": _las,
    "water_filling_aware": _water_filling,
    "makespan_aware": _makespan,
    "finish_time_aware": _finish_time,
    "nash": _nash,
    "total_throughput": _total,
    "total_throughput_normalised": _normalised,
}


def test_each_policy_of_shares_for_elastic_jobs_is_judged() -> None:
    assert set(POLICIES) == {*JUDGES, "strategy_proof"}  # which has parts of the shares of nash


@pytest.mark.parametrize("name", JUDGES)
@settings(max_examples=25, deadline=None)
@given(snapshot=elastic_snapshots())
def test_shares_are_the_best_of_the_program_as_it_is_written(name: str, snapshot: Snapshot) -> None:
    problem, made, gets = solved(name, snapshot)
    certified(made.report)
    JUDGES[name](snapshot, Program(snapshot), gets, made.report)
    policy = policy_of(name)
    if hasattr(policy, "measure"):
        assert close(policy.measure(problem.snapshot, made), made.report.objective or 0.0)


@settings(max_examples=30, deadline=None)
@given(snapshot=elastic_snapshots())
def test_the_best_use_of_a_part_of_its_own(snapshot: Snapshot) -> None:
    choices = NumberChoices.of(snapshot)
    problem = ConfigurationProblem.of(snapshot, choices, np.zeros(choices.rate.shape))
    for weighted in (True, False):
        part = by_weight(snapshot) if weighted else np.full(len(snapshot.jobs), 1.0)
        part = part / part.sum()
        np.testing.assert_allclose(
            isolated_rate(problem.snapshot, weighted),
            own_part(snapshot, part),
            rtol=1e-7,
            atol=1e-9,
        )


def test_by_hand() -> None:
    """Two jobs on four devices, at 10, 18 and 30 steps/s on 1, 2 and 4 of them, and one that has one device
    of them at 10: with two each for 5/6 of the time the two would have 15 steps/s each. Own parts are 4/3
    devices: 2/3 of the time on one and 1/3 on two, 12.67 steps/s; the rigid job makes 10 of its part. So the
    rigid job runs all the time, and the two share three devices: half of the time on one and half on two,
    14 steps/s each."""
    rate = np.ones((12, 3))
    rate[0:3, 0] = 10.0, 18.0, 30.0
    jobs = [InstanceJob(i, FAMILIES[0], 1, steps_left=1e6) for i in range(3)]
    rigid = snapshot_of(jobs, Cluster.of({"a": 4}), table(rate))
    elastic = Elastic(
        job=np.array([0, 0, 0, 1, 1, 1]),
        devices=np.array([1, 2, 4, 1, 2, 4]),
        job_type=np.array([0, 1, 2, 0, 1, 2]),
    )
    snapshot = replace(rigid, elastic=elastic)
    problem, made, gets = solved("water_filling_aware", snapshot)
    assert gets == pytest.approx([14.0, 14.0, 10.0])
    assert made.report.objective == pytest.approx(4 / 3)  # the rigid job's level, in devices
    assert isolated_rate(problem.snapshot, weighted=True) == pytest.approx([38 / 3, 38 / 3, 10.0])
