"""What must hold for every cluster, trace, policy and accident."""

import itertools
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from tests.drawn import examples
from tests.job_types import job_types
from tests.small import core

from fairlead.analysis.simulate import simulate
from fairlead.model.cluster import Cluster, Locality, SlotType
from fairlead.model.commands import (
    Command,
    EndJobs,
    JobEnd,
    StartRound,
)
from fairlead.model.events import (
    Event,
    JobsCancelled,
    JobsSubmitted,
    RoundEnded,
)
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.driver import drive
from fairlead.scheduler.journal import replay
from fairlead.scheduler.mechanism.settings import (
    DEFAULT,
    GAVEL,
    MechanismSettings,
)
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth

TYPES = ("a", "b", "c")
SCALES = (1, 2, 3, 4)
POLICIES = ("las", "las_aware", "isolated", "proportional", "fifo", "fifo_perf")


@st.composite
def tables(draw: st.DrawFn) -> Throughputs:
    """Rates of three families; every kind runs somewhere, not everywhere."""
    kinds = tuple((family, scale) for family in ("x", "y", "z") for scale in SCALES)
    rates = st.floats(0.05, 20).map(lambda r: round(r, 3))
    rows = []
    for _ in kinds:
        row = [draw(st.one_of(st.just(0.0), rates)) for _ in TYPES]
        if not any(row):
            row[draw(st.integers(0, 2))] = draw(rates)
        rows.append(row)
    return Throughputs(tuple(SlotType(t) for t in TYPES), job_types(*kinds), np.array(rows))


@st.composite
def spread_tables(draw: st.DrawFn) -> Throughputs:
    """The same with rates for spread devices: some lower, some higher, some none."""
    table = draw(tables())
    factor = draw(
        st.lists(st.sampled_from([0.0, 0.3, 0.8, 1.2]), min_size=len(TYPES), max_size=len(TYPES))
    )
    odd = draw(st.sampled_from([0.0, 0.5, 1.0]))
    spread = table.rate * np.array(factor)
    spread[:: len(SCALES) - 1] *= odd
    slots = tuple(SlotType(t, where) for where in Locality for t in TYPES)
    return Throughputs(slots, table.job_types, np.hstack([table.rate, spread]))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    counts = {t: draw(st.integers(4, 9)) for t in TYPES}
    return Cluster.of(counts, draw(st.sampled_from([1, 2, 4])), {"a": 1.0, "b": 0.5})


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    gaps = st.one_of(st.just(0.0), st.floats(0, 3000))
    time_s, result = 0.0, []
    for number in range(draw(st.integers(1, 14))):
        time_s += draw(gaps)
        job = Job(
            JobId(number),
            draw(st.sampled_from(["x", "y", "z"])),
            draw(st.sampled_from(SCALES)),
            draw(st.floats(0.5, 5000)),
            weight=draw(st.sampled_from([1.0, 1.0, 5.0])),
        )
        result.append(Arrival(time_s, job))
    return result


def worlds(accidents: bool) -> st.SearchStrategy[GroundTruth]:
    if not accidents:
        return st.just(GroundTruth())
    return st.builds(
        GroundTruth,
        restart_costs=st.sampled_from([RestartCosts(), RestartCosts(30.0), RestartCosts(500.0)]),
        rate_noise=st.sampled_from([0.0, 0.2]),
        rate_bias=st.sampled_from([0.0, 0.3]),
        mtbf_s=st.sampled_from([None, 20_000.0]),
        mttr_s=st.just(2_000.0),
        early_termination=st.sampled_from([0.0, 0.5]),
        seed=st.integers(0, 5),
    )


class Watch:
    """Checks the state after every event, and counts steps and devices on its own."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.jobs: dict[int, Job] = {}
        self.done: dict[int, float] = {}
        self.ended: dict[int, int] = {}
        self.round: StartRound | None = None

    def event(self, event: Event) -> None:
        invariants.check(self.scheduler)
        match event:
            case JobsSubmitted():
                self.jobs |= {job.id: job for job in event.jobs}
                self.done |= {job.id: 0.0 for job in event.jobs}
            case RoundEnded():
                assert self.round is not None
                for group, steps in zip(self.round.job_groups.tolist(), event.steps, strict=True):
                    for job, n in zip(group, steps.tolist(), strict=True):
                        if job >= 0 and job not in self.ended:
                            assert n >= 0
                            self.done[job] += n

    def command(self, command: Command) -> None:
        match command:
            case StartRound():
                assert len(set(command.devices.tolist())) == len(command.devices)
                jobs = command.job_groups[command.job_groups >= 0].tolist()
                assert len(set(jobs)) == len(jobs)
                assert not set(jobs) & set(self.ended)
                self.round = command
            case EndJobs():
                for job, end in zip(command.jobs.tolist(), command.end.tolist(), strict=True):
                    assert job not in self.ended, "a job ended twice"
                    self.ended[job] = end
                    total = self.jobs[job].total_steps
                    assert self.done[job] <= total * (1 + 1e-9)
                    if end == JobEnd.COMPLETED:
                        assert self.done[job] == pytest.approx(total)
        if isinstance(command, StartRound):
            invariants.check(self.scheduler)


def work_conserving(scheduler: Scheduler) -> None:
    """No job waits beside devices that it could use."""
    jobs, groups = scheduler.data.ledger.jobs, scheduler.data.ledger.groups
    used = np.bincount(
        scheduler.data.cluster.device_type[scheduler.data.running.devices],
        minlength=len(scheduler.data.capacity),
    )
    free = scheduler.data.capacity - used
    waits = groups.running_on < 0
    could = (groups.rate[:, :, 0] > 0) & (groups.scale[:, None] <= free)
    assert not (waits[:, None] & could).any(), f"jobs {jobs.id[waits]} wait beside free devices"


MANY = 20_000  # events; no run of these sizes needs nearly as many


def run(
    trace: list[Arrival],
    cluster: Cluster,
    table: Throughputs,
    policy: str,
    profile: MechanismSettings,
    ground_truth: GroundTruth,
    solve_s: float = 0.0,
) -> Watch:
    """Drive a run with all checks."""
    scheduler = core(cluster, table, policy, profile, ground_truth.restart_costs, solve_s > 0)
    backend = SimBackend(
        trace,
        cluster,
        table,
        scheduler.data.planning.planner.solve,
        ground_truth,
        whole_steps=profile.gavel.whole_steps,
        solve_s=solve_s,
    )
    watch = Watch(scheduler)
    events = itertools.count()
    assert drive(scheduler, backend, [watch], lambda: next(events) > MANY), "the run does not end"
    return watch


SLOW = examples(60)


@SLOW
@given(arrivals(), clusters(), tables(), st.sampled_from(POLICIES), worlds(accidents=True))
def test_every_run_keeps_the_invariants_and_starves_nobody(
    trace: list[Arrival],
    cluster: Cluster,
    table: Throughputs,
    policy: str,
    ground_truth: GroundTruth,
) -> None:
    watch = run(trace, cluster, table, policy, DEFAULT, ground_truth)
    assert set(watch.ended) == {arrival.job.id for arrival in trace}
    assert all(end in (JobEnd.COMPLETED, JobEnd.KILLED) for end in watch.ended.values())


@SLOW
@given(arrivals(), clusters(), spread_tables(), st.sampled_from(POLICIES), worlds(accidents=True))
def test_nobody_starves_where_servers_matter(
    trace: list[Arrival],
    cluster: Cluster,
    table: Throughputs,
    policy: str,
    ground_truth: GroundTruth,
) -> None:
    """Every job group runs where the command says that it does, and every job ends."""
    watch = run(trace, cluster, table, policy, DEFAULT, ground_truth)
    assert set(watch.ended) == {arrival.job.id for arrival in trace}
    assert all(end in (JobEnd.COMPLETED, JobEnd.KILLED) for end in watch.ended.values())


@SLOW
@given(arrivals(), clusters(), tables(), st.sampled_from(POLICIES))
def test_gavels_profile_keeps_the_invariants(
    trace: list[Arrival], cluster: Cluster, table: Throughputs, policy: str
) -> None:
    watch = run(trace, cluster, table, policy, GAVEL, GroundTruth())
    assert set(watch.ended) == {arrival.job.id for arrival in trace}


@SLOW
@given(
    arrivals(),
    clusters(),
    tables(),
    st.sampled_from(POLICIES),
    st.sampled_from([DEFAULT, GAVEL]),
    st.sampled_from([1.0, 400.0, 5000.0]),
)
def test_slow_solves_change_nothing_of_that(
    trace: list[Arrival],
    cluster: Cluster,
    table: Throughputs,
    policy: str,
    profile: MechanismSettings,
    solve_s: float,
) -> None:
    """Rounds go on while the solver works on what it was given."""
    watch = run(trace, cluster, table, policy, profile, GroundTruth(), solve_s)
    assert set(watch.ended) == {arrival.job.id for arrival in trace}


@SLOW
@given(arrivals(), clusters(), tables(), st.sampled_from(["las", "las_aware", "isolated"]))
def test_no_job_waits_beside_devices_that_it_could_use(
    trace: list[Arrival], cluster: Cluster, table: Throughputs, policy: str
) -> None:
    scheduler = core(cluster, table, policy)
    backend = SimBackend(trace, cluster, table, scheduler.data.planning.planner.solve)

    class Conserve:
        def event(self, event: Event) -> None:
            pass

        def command(self, command: Command) -> None:
            if isinstance(command, StartRound):
                work_conserving(scheduler)

    assert drive(scheduler, backend, [Conserve()])


@examples(25)
@given(
    arrivals(),
    clusters(),
    st.one_of(tables(), spread_tables()),
    st.sampled_from(POLICIES),
    worlds(accidents=True),
    st.sampled_from(["default", "gavel"]),
)
def test_a_replay_gives_the_same_commands(
    trace: list[Arrival],
    cluster: Cluster,
    table: Throughputs,
    policy: str,
    ground_truth: GroundTruth,
    profile: str,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        simulate(
            trace,
            cluster,
            policy,
            throughputs=table,
            profile=profile,
            ground_truth=ground_truth,
            out=out,
        )
        count, left = replay(out / "journal")
        assert count > 2
        assert left == 0


@SLOW
@given(arrivals(), clusters(), tables(), st.sampled_from(POLICIES), st.data())
def test_cancelled_jobs_are_gone(
    trace: list[Arrival], cluster: Cluster, table: Throughputs, policy: str, data: st.DataObject
) -> None:
    """Jobs withdrawn at random moments leave at once, and the others still finish."""
    scheduler = core(cluster, table, policy)
    backend = SimBackend(trace, cluster, table, scheduler.data.planning.planner.solve)
    watch = Watch(scheduler)
    while (event := backend.next()) is not None:
        batch: list[Event] = [event]
        here = sorted(set(watch.jobs) - set(watch.ended))
        quiet = not isinstance(event, RoundEnded) and not scheduler.data.planning.solving
        if here and quiet and data.draw(st.integers(0, 3)) == 0:
            victim = data.draw(st.sampled_from(here))
            batch.insert(0, JobsCancelled(event.time_s, (JobId(victim),)))
        for one in batch:
            watch.event(one)
            for command in scheduler.handle(one):
                watch.command(command)
                backend.perform(command)
    assert set(watch.ended) == {arrival.job.id for arrival in trace}
