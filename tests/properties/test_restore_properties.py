"""A scheduler that is restored from a state, wherever that was taken, goes on as if it had been there."""

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from tests.drawn import examples
from tests.properties.test_scheduler_properties import (
    MANY,
    Watch,
    arrivals,
    clusters,
    spread_tables,
    tables,
    worlds,
)

from fairlead.errors import SimulationError
from fairlead.model.cluster import Cluster
from fairlead.model.commands import JobEnd
from fairlead.model.events import (
    Event,
    JobsPaused,
    JobsReweighted,
    ProgressCorrected,
    RoundEnded,
    Stalled,
)
from fairlead.model.job import Arrival, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.core import invariants
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint, take_checkpoint
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.core.scheduler_data import running_jobs
from fairlead.scheduler.journal import (
    decode,
    decode_state,
    encode,
)
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

POLICIES = (
    "las",
    "las_aware",
    "fifo",
    "isolated",
    "las_packed",
    "tiresias",
    "shockwave",
    "gandiva",
)


def beside(table: Throughputs) -> Throughputs:
    """The same with rates of pairs: both at 70 %."""
    pair = np.repeat(0.7 * table.rate[:, None, :], len(table.job_types), axis=1)
    pair[:, (table.rate == 0).all(axis=1)] = 0.0
    pair *= table.rate[None] > 0
    return Throughputs(table.slots, table.job_types, table.rate, pair)


class Relay:
    """A run whose scheduler is replaced now and then by one restored from its state, and by its twin."""

    def __init__(
        self, trace: list[Arrival], setup: Setup, ground_truth: GroundTruth, solve_s: float
    ) -> None:
        self.setup = setup
        self.schedulers = [build(setup)]
        self.backend = SimBackend(
            trace,
            setup.cluster,
            setup.throughputs,
            lambda shot, state: self.schedulers[0].data.planning.planner.solve(shot, state),
            ground_truth,
            whole_steps=setup.settings.gavel.whole_steps,
            solve_s=solve_s,
        )
        self.watch = Watch(self.schedulers[0])

    def run(self, between: Callable[["Relay", Event], list[Event]]) -> None:
        """To the end; between: what happens besides, before an event."""
        for _ in range(MANY):
            event = self.backend.next()
            if event is None:
                return
            for other in between(self, event):
                self.handle(other)
            self.handle(event)
        raise AssertionError("the run does not end")

    def handle(self, event: Event) -> None:
        self.watch.event(event)
        told = [scheduler.handle(event) for scheduler in self.schedulers]
        for commands in told[1:]:
            assert [encode(c) for c in commands] == [encode(c) for c in told[0]]
        for command in told[0]:
            self.watch.command(command)
            self.backend.perform(command)

    def replace(self, setup: Setup) -> None:
        """Two schedulers from the state of the one there is."""
        old = self.schedulers[0]
        state = through_the_journal(take_checkpoint(old.data))
        self.setup = setup
        self.schedulers = [restore(setup, state), restore(setup, state)]
        self.watch.scheduler = self.schedulers[0]
        invariants.check(self.schedulers[0])
        same_jobs(old, self.schedulers[0])
        self.backend._begins = not old.data.round.active and old.data.ledger.jobs.n > 0


def through_the_journal(state: SchedulerCheckpoint) -> SchedulerCheckpoint:
    record = encode(state)
    assert encode(decode(record)) == record
    return decode_state(record)


def same_jobs(old: Scheduler, new: Scheduler) -> None:
    for a, b in ((old.data.ledger, new.data.ledger), (old.data.paused_jobs, new.data.paused_jobs)):
        for name in ("id", "arrival_s", "weight", "total", "done", "state"):
            assert (getattr(a.jobs, name) == getattr(b.jobs, name)).all(), name
        for name in ("ran_s", "fails"):
            assert (getattr(a.runs, name) == getattr(b.runs, name)).all(), name
        families = [
            [s.data.throughputs.job_types[k] for k in ledger.jobs.job_type.tolist()]
            for s, ledger in ((old, a), (new, b))
        ]
        assert families[0] == families[1]
    assert new.data.round.active == old.data.round.active
    assert new.data.round.number == old.data.round.number


SOME = examples(60)


@SOME
@given(
    arrivals(),
    clusters(),
    st.one_of(tables(), spread_tables(), tables().map(beside)),
    st.lists(st.sampled_from(POLICIES), min_size=2, max_size=4),
    st.sampled_from([DEFAULT, DEFAULT, GAVEL]),
    worlds(accidents=True),
    st.sampled_from([1, 3, 8]),
)
def test_a_restored_scheduler_goes_on(
    trace: list[Arrival],
    cluster: Cluster,
    table: Throughputs,
    policies: list[str],
    profile: MechanismSettings,
    ground_truth: GroundTruth,
    every: int,
) -> None:
    """After every few events another policy takes over; all jobs end, none lost, no step counted twice."""
    setups = [
        Setup(
            version="0",
            cluster=cluster,
            throughputs=table.on(cluster, profile.scattered),
            policy=p,
            settings=profile,
            seed=0,
            restart_costs=ground_truth.restart_costs,
        )
        for p in policies
        if table.colocated_rate is not None or p != "las_packed"
    ] or [
        Setup(
            version="0",
            cluster=cluster,
            throughputs=table.on(cluster, profile.scattered),
            policy="las",
            settings=profile,
            seed=0,
        )
    ]
    relay = Relay(trace, setups[0], ground_truth, 0.0)
    relay.setup = setups[0]
    count = 0

    def between(relay: Relay, event: Event) -> list[Event]:
        nonlocal count
        count += 1
        if (
            count % every == 0
            and not relay.schedulers[0].data.planning.solving
            and count < 60 * every
        ):
            relay.replace(setups[count // every % len(setups)])
        return []

    relay.run(between)
    assert set(relay.watch.ended) == {arrival.job.id for arrival in trace}


class Owners:
    """People who pause jobs, let them go on, reweigh and withdraw them, and news of work that was lost."""

    def __init__(self, data: st.DataObject, setup: Setup) -> None:
        self.data = data
        self.setup = setup
        self.held: set[int] = set()

    def __call__(self, relay: Relay, event: Event) -> list[Event]:
        here = sorted(set(relay.watch.jobs) - set(relay.watch.ended))
        scheduler = relay.schedulers[0]
        if isinstance(event, RoundEnded) or scheduler.data.planning.solving or not here:
            return []
        match self.data.draw(st.integers(0, 9)):
            case 0 | 1:
                job = self.data.draw(st.sampled_from(here))
                self.held.add(job)
                return [JobsPaused(event.time_s, np.array([job]), True)]
            case 2:
                return self.let_go(relay, event.time_s)
            case 3:
                job = self.data.draw(st.sampled_from(here))
                return [JobsReweighted(event.time_s, np.array([job]), np.array([3.0]))]
            case 4:
                return self.lose_work(relay, event.time_s, here)
            case 5:
                relay.replace(self.setup)
        if isinstance(event, Stalled):
            return self.let_go(relay, event.time_s)
        return []

    def let_go(self, relay: Relay, time_s: float) -> list[Event]:
        """All that have not ended in the round that was in force when they were paused."""
        jobs = np.array(sorted(self.held - set(relay.watch.ended)), np.int64)
        self.held = set()
        return [JobsPaused(time_s, jobs, False)] if len(jobs) else []

    def lose_work(self, relay: Relay, time_s: float, here: list[int]) -> list[Event]:
        """Half of the work of a job that does not run; the simulator and the watch are told too."""
        running = running_jobs(relay.schedulers[0].data)
        job = self.data.draw(st.sampled_from(here))
        if job in running:
            return []
        done = relay.watch.done[job] / 2
        relay.watch.done[job] = done
        jobs = relay.backend.rounds.jobs
        jobs.arrays.steps_done[jobs.index.find(np.array([[job]]))[0, 0]] = done
        return [ProgressCorrected(time_s, np.array([job, 10_000]), np.array([done, 5.0]))]


@SOME
@given(
    arrivals(),
    clusters(),
    st.one_of(tables(), tables().map(beside)),
    st.sampled_from(POLICIES),
    st.sampled_from([DEFAULT, DEFAULT, GAVEL]),
    st.data(),
)
def test_whatever_owners_do_every_job_ends_with_its_steps(
    trace: list[Arrival],
    cluster: Cluster,
    table: Throughputs,
    policy: str,
    profile: MechanismSettings,
    data: st.DataObject,
) -> None:
    if table.colocated_rate is None and policy == "las_packed":
        policy = "las"
    believed = table.on(cluster, profile.scattered)
    setup = Setup(
        version="0",
        cluster=cluster,
        throughputs=believed,
        policy=policy,
        settings=profile,
        seed=0,
        restart_costs=RestartCosts(30.0),
    )
    owners = Owners(data, setup)
    relay = Relay(trace, setup, GroundTruth(RestartCosts(30.0)), 0.0)
    while True:
        try:
            relay.run(owners)
        except SimulationError:  # nothing but held jobs: somebody lets them go
            assert owners.held
            for event in owners.let_go(relay, relay.backend.now_s):
                relay.handle(event)
            relay.backend._stalled = False  # now there is something that may happen
            continue
        break
    assert set(relay.watch.ended) == {arrival.job.id for arrival in trace}
    if profile is DEFAULT:  # in Gavel's, an attempt that was cut before its first step failed
        assert set(relay.watch.ended.values()) == {JobEnd.COMPLETED}
    for arrival in trace:
        if relay.watch.ended[arrival.job.id] == JobEnd.COMPLETED:
            assert relay.watch.done[arrival.job.id] == pytest.approx(arrival.job.total_steps)
