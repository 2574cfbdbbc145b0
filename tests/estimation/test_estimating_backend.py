"""An estimator beside a run: what it hears, and that the core needs it for nothing but events."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.small import TABLE, job

from fairlead.analysis.simulate import simulate
from fairlead.estimation import registry
from fairlead.estimation.estimating_backend import EstimatingBackend
from fairlead.estimation.messages import Beliefs, Measurement
from fairlead.model.arrays import Floats, Ints
from fairlead.model.cluster import Cluster
from fairlead.model.commands import (
    EndJobs,
    Solve,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsSubmitted,
    RatesLearned,
    RoundEnded,
)
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler import journal
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.checkpoint import take_checkpoint
from fairlead.scheduler.core.snapshots import make_snapshot
from fairlead.scheduler.driver import drive
from fairlead.scheduler.mechanism.settings import (
    DEFAULT,
    GAVEL,
    MechanismSettings,
)
from fairlead.scheduler.setup import (
    Setup,
    build,
    restore,
)
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.options import SimulationOptions
from fairlead.simulator.simulation_input import SimulationInput
from fairlead.simulator.simulation_run import SimulationRun


class Means:
    """Believes of a job what it was measured to do on a slot type last, and writes down what it hears."""

    def __init__(self, throughputs: Throughputs) -> None:
        self.heard: list[Measurement] = []
        self.gone: list[int] = []
        self.job_types: dict[int, tuple[str, int]] = {}
        self.rate: dict[int, Floats] = {}
        self.new: dict[int, None] = {}
        self.table(throughputs)

    def table(self, throughputs: Throughputs) -> None:
        self.throughputs = throughputs

    def submitted(self, jobs: Sequence[Job], user_estimates: Floats | None) -> None:
        del user_estimates
        for one in jobs:
            self.job_types[one.id] = (one.family, one.scale_factor)

    def adapted(self, jobs: Ints, batch: Ints) -> None:
        del jobs, batch

    def measured(self, report: Measurement) -> None:
        self.heard.append(report)
        for one, slot, rate in zip(report.jobs, report.slot, report.rate, strict=True):
            number = int(one)
            if number not in self.rate:
                row = self.throughputs.row(JobType.parse(*self.job_types[number]))
                assert row is not None
                self.rate[number] = self.throughputs.rate[row].copy()
            if abs(self.rate[number][slot] - rate) > 1e-6 * rate:
                self.rate[number][slot] = rate
                self.new[number] = None

    def ended(self, jobs: Ints) -> None:
        self.gone += jobs.tolist()

    def beliefs(self) -> Beliefs | None:
        new, self.new = [n for n in self.new if n not in self.gone], {}
        if not new:
            return None
        return Beliefs.of_jobs(np.array(new), np.array([self.rate[n] for n in new]))


class Silent(Means):
    """Believes nothing."""

    def beliefs(self) -> Beliefs | None:
        return None


class Guesses(Means):
    """Believes anything of anybody, in pairs too; some jobs go by one belief."""

    def beliefs(self) -> Beliefs | None:
        rng = np.random.default_rng(len(self.job_types) + 1000 * len(self.heard))
        there = [n for n in self.job_types if n not in self.gone]
        some = [n for n in there if rng.random() < 0.5]
        if not some:
            return None
        jobs = np.array(some)
        name = jobs * 2 + 1
        for scale in (1, 2):  # those of a scale factor that came first are alike
            same = [i for i, n in enumerate(some) if self.job_types[n][1] == scale and n % 3 == 0]
            name[same] = 10_000 + scale
        belief = np.unique(name)
        rate = np.round(rng.uniform(1.0, 9.0, (len(belief), len(self.throughputs.slots))), 1)
        pair = np.array([(a, b) for a in belief for b in belief if a <= b and rng.random() < 0.3])
        pair = pair.reshape(-1, 2).astype(np.int64)
        colocated_rate = rng.uniform(0.0, 4.0, (len(pair), rate.shape[1], 2))
        return Beliefs(jobs, name, belief, rate, pair, colocated_rate)


PAIRED = replace(TABLE, colocated_rate=0.7 * np.repeat(TABLE.rate[:, None, :], 3, axis=1))


def trace(jobs: int = 30, seed: int = 0) -> list[Arrival]:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(300.0, jobs)).tolist()
    sizes = rng.choice([1, 1, 2], jobs).tolist()
    steps = rng.uniform(500.0, 30_000.0, jobs).round().tolist()
    return [job(n, t, s, d) for n, (t, s, d) in enumerate(zip(times, steps, sizes, strict=True))]


def setup_of(policy: str, profile: MechanismSettings = DEFAULT) -> Setup:
    cluster = Cluster.of({"fast": 3, "slow": 3}, 1, {})
    return Setup(
        version="0", cluster=cluster, throughputs=PAIRED, policy=policy, settings=profile, seed=0
    )


def feed_of(
    setup: Setup, made: Means, arrivals: list[Arrival], ground_truth: GroundTruth | None = None
) -> tuple[EstimatingBackend, "list[Event]"]:
    core = build(setup)
    backend = SimBackend(
        arrivals, setup.cluster, setup.throughputs, core.data.planning.planner.solve, ground_truth,
        whole_steps=setup.settings.gavel.whole_steps,
    )  # fmt: skip
    events: list[Event] = []

    class Note:
        def event(self, event: Event) -> None:
            events.append(event)

        def command(self, command: object) -> None:
            invariants.check(core)

    fed = EstimatingBackend(backend, made, setup.throughputs)
    drive(core, fed, [Note()])
    return fed, events


def test_an_estimator_hears_what_each_job_did() -> None:
    """At the rates of the world, whatever a start costs, and of jobs that end in a round too."""
    made = Means(PAIRED)
    ground_truth = GroundTruth(RestartCosts(50.0), first_starts_cost=True)
    _, events = feed_of(setup_of("las_aware"), made, trace(), ground_truth)
    assert sorted(made.gone) == list(range(30))
    true = {n: PAIRED.rate[{1: 0, 2: 1}[scale]] for n, (_, scale) in made.job_types.items()}
    for report in made.heard:
        expected = [true[n][slot] for n, slot in zip(report.jobs, report.slot, strict=True)]
        assert report.rate.tolist() == pytest.approx(expected)
        assert (report.partner == -1).all()
        assert not report.failed.any()
    assert len(made.heard) > 20
    assert not any(isinstance(event, RatesLearned) for event in events)  # nothing differs


def test_rounds_that_nodes_were_lost_in_teach_nothing() -> None:
    made = Means(PAIRED)
    feed_of(setup_of("las_packed"), made, trace(), GroundTruth(mtbf_s=1500.0, mttr_s=300.0))
    assert sorted(made.gone) == list(range(30))
    assert all((report.steps > 0).all() for report in made.heard)


def test_of_a_pair_both_are_heard_unless_one_ended() -> None:
    made = Means(PAIRED)
    feed_of(setup_of("las_packed"), made, trace())
    rows = [
        (int(n), int(p), r / PAIRED.rate[{1: 0, 2: 1}[made.job_types[int(n)][1]], slot])
        for report in made.heard
        for n, p, r, slot in zip(report.jobs, report.partner, report.rate, report.slot, strict=True)
    ]
    paired = [part for _, partner, part in rows if partner >= 0]
    assert len(paired) > 10
    assert paired == pytest.approx([0.7] * len(paired))


def test_a_pair_that_cannot_run_is_heard_as_failed_and_does_no_harm() -> None:
    """Believed to fit, it does not, and nobody learns from it."""

    class Hopes(Means):
        def beliefs(self) -> Beliefs | None:
            there = [n for n in self.job_types if n not in self.gone and n not in self.rate]
            if not there:
                return None
            self.rate |= {n: np.zeros(0) for n in there}
            known = sorted(n for n in self.job_types if n not in self.gone)
            pair = [(a, b) for a in known for b in there if a < b]
            rate = np.array([PAIRED.rate[{1: 0, 2: 1}[self.job_types[n][1]]] for n in there])
            colocated_rate = np.full((len(pair), 2, 2), 4.9)
            return Beliefs.of_jobs(
                np.array(there), rate, np.array(pair).reshape(-1, 2), colocated_rate
            )

        def measured(self, report: Measurement) -> None:
            self.heard.append(report)

    alone = replace(PAIRED, colocated_rate=np.zeros((3, 3, 2)))
    for profile in (DEFAULT, GAVEL):
        made = Hopes(alone)
        arrivals = [job(n, 100.0 * n, 20_000.0) for n in range(20)]
        setup = replace(setup_of("las_packed", profile), throughputs=alone)
        core = build(setup)
        solve = core.data.planning.planner.solve
        backend = SimBackend(
            arrivals,
            setup.cluster,
            alone,
            solve,
            whole_steps=profile.gavel.whole_steps,
            stop_at_s=20_000.0,
        )
        drive(core, EstimatingBackend(backend, made, alone))
        failed = [r for r in made.heard if r.failed.any()]
        assert failed
        assert all((r.partner[r.failed] >= 0).all() for r in failed)
        assert all((r.steps[r.failed] == 0).all() for r in failed)


def test_what_was_measured_is_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a world where each job's rates differ from the table's, what is learned ends in the core."""
    made = Means(PAIRED)
    ground_truth = GroundTruth(rate_bias=0.5, seed=3)
    _, events = feed_of(setup_of("las_aware"), made, trace(), ground_truth)
    told = [event for event in events if isinstance(event, RatesLearned)]
    assert told
    core = build(setup_of("las_aware"))
    for event in events:
        core.handle(event)
        if isinstance(event, RatesLearned):
            shown = make_snapshot(core.data, event.time_s)
            for n, name in zip(event.jobs.tolist(), event.name.tolist(), strict=True):
                at = event.belief.tolist().index(name)
                row = shown.jobs.tolist().index(n)
                assert shown.solo_rate[row].tolist() == event.rate[at].tolist()


def test_beliefs_come_before_the_event_that_decides() -> None:
    _, events = feed_of(setup_of("las_packed"), Guesses(PAIRED), trace())
    for event, following in pairwise(events):
        if isinstance(event, RatesLearned):
            assert isinstance(following, JobsSubmitted | RoundEnded)
            assert following.time_s == event.time_s


def test_the_numbers_of_beliefs_are_used_again() -> None:
    made = Guesses(PAIRED)
    _, events = feed_of(setup_of("las_aware"), made, trace(60))
    most = max(
        (int(e.belief.max(initial=0)) for e in events if isinstance(e, RatesLearned)), default=0
    )
    assert 0 < most < 45 < len(made.job_types)


def test_an_estimator_that_says_nothing_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.ESTIMATORS, "gavel", lambda o, table, c, s: Silent(table))
    hashes = set()
    for spec in ("oracle", "gavel"):
        out = tmp_path / spec
        out.mkdir()
        result = simulate(
            trace(), "fast=3,slow=3", "las_aware", throughputs=PAIRED, estimator=spec, out=out
        )
        hashes.add(result.metrics["journal_sha256"])
    assert len(hashes) == 1


@pytest.mark.parametrize("policy", ["las_aware", "las_packed", "fifo_packed", "gandiva"])
@pytest.mark.parametrize("profile", ["default", "gavel"])
def test_a_run_with_an_estimator_replays_without_it(
    policy: str, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.ESTIMATORS, "gavel", lambda o, table, c, s: Guesses(table))
    cluster = Cluster.of({"fast": 3, "slow": 3}, 1, {})
    options = SimulationOptions(throughputs=PAIRED, profile=profile, estimator="gavel")
    result = SimulationRun.of(trace(), cluster, policy, options).execute(tmp_path)
    assert result.complete
    records = list(journal.records(tmp_path / "journal"))
    assert any(isinstance(journal.decode(r), RatesLearned) for r in records)
    count, left = journal.replay(tmp_path / "journal")
    assert (count, left) == (len(records), 0)
    # And it is the same again, from the middle on too.
    (tmp_path / "half").mkdir()
    whole = (tmp_path / "journal").read_bytes()
    (tmp_path / "half" / "journal").write_bytes(whole[: len(whole) // 2])
    again = SimulationRun.of(trace(), cluster, policy, options).execute(
        tmp_path / "half", resume=True
    )
    assert again.metrics["journal_sha256"] == result.metrics["journal_sha256"]


@pytest.mark.parametrize("seed", range(4))
def test_a_scheduler_restored_amid_beliefs_goes_on_as_the_other(seed: int) -> None:
    setup = setup_of("las_aware")
    first = build(setup)
    cores = [first]
    backend = SimBackend(trace(seed=seed), setup.cluster, PAIRED, first.data.planning.planner.solve)
    fed = EstimatingBackend(backend, Guesses(PAIRED), PAIRED)
    rng = np.random.default_rng(seed)
    while (event := fed.next()) is not None:
        told = [[journal.encode(c) for c in core.handle(event)] for core in cores[1:]]
        commands = first.handle(event)
        assert all(other == [journal.encode(c) for c in commands] for other in told)
        for command in commands:
            assert isinstance(command, Solve | StartRound | EndJobs)
            fed.perform(command)
        if not first.data.planning.solving and rng.random() < 0.1:
            state = journal.decode_state(journal.encode(take_checkpoint(first.data)))
            cores = [first, restore(setup, state)]
    assert len(cores) == 2


def test_a_feed_that_comes_late_takes_jobs_up() -> None:
    """As a live server's does that was started again: what the core had believed is forgotten."""
    setup = setup_of("las_packed")
    core = build(setup)
    backend = SimBackend(trace(8), setup.cluster, PAIRED, core.data.planning.planner.solve)
    fed = EstimatingBackend(backend, Guesses(PAIRED), PAIRED)
    for _ in range(60):
        event = fed.next()
        assert event is not None
        for command in core.handle(event):
            fed.perform(command)
        if core.data.beliefs.row and core.data.round.active and not isinstance(event, RatesLearned):
            break
    made = Means(PAIRED)
    late = EstimatingBackend(backend, made, PAIRED)
    jobs = [
        (Job(JobId(n), "net", int(scale), total), done)
        for n, scale, total, done in zip(
            core.data.ledger.jobs.id.tolist(), core.data.ledger.jobs.scale.tolist(),
            core.data.ledger.jobs.total.tolist(), core.data.ledger.jobs.done.tolist(), strict=True,
        )
    ]  # fmt: skip
    late.take_over_jobs(core.data.now_s, jobs, core.data.round.in_force)
    told = late.next()
    assert isinstance(told, RatesLearned)
    core.handle(told)
    assert (core.data.ledger.jobs.rate_row == core.data.ledger.jobs.job_type).all()
    drive(core, late)
    assert sorted(made.gone) == sorted(n for n in made.job_types)
    assert made.heard


def test_gavels_estimator_serves_a_packing_policy() -> None:
    """4 devices of each type, a job in 100 minutes: some pairs are misjudged, and nothing breaks."""
    jct = {}
    for spec in ("oracle", "gavel", "gavel:references=16,profiling=0.2,defect"):
        given = SimulationInput(
            generate="gavel,interarrival=4000,duration=20000",
            cluster="v100=4,p100=4,k80=4",
            window="0:40",
            estimator=spec,
        )
        result = given.prepare("las_packed", "gavel").execute()
        assert result.complete
        jct[spec] = result.metrics["avg_jct_s"]
    assert jct["gavel"] == pytest.approx(jct["oracle"], rel=0.02)
    assert jct["gavel:references=16,profiling=0.2,defect"] < 1.5 * jct["oracle"]
