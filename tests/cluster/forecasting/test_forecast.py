"""Forecasts: the future of a state in the middle of a run is what the run then does."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.small import TABLE, job

from fairlead.cluster.forecasting.arrivals import History
from fairlead.cluster.forecasting.forecast import (
    ForecastQuery,
    eta,
    forecast,
    running_jobs,
)
from fairlead.model.cluster import Cluster
from fairlead.model.commands import EndJobs, Solve
from fairlead.model.events import JobsPaused, JobsSubmitted, NodeLost
from fairlead.model.job import Arrival, Job, JobId, RestartCosts
from fairlead.scheduler.core.checkpoint import SchedulerCheckpoint, take_checkpoint
from fairlead.scheduler.journal import encode
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup, build
from fairlead.simulator.backend import SimBackend
from fairlead.simulator.ground_truth import GroundTruth

COSTS = RestartCosts(20.0)
CLUSTER = Cluster.of({"fast": 2, "slow": 3}, 2)


def setup(policy: str = "las_aware", cluster: Cluster = CLUSTER) -> Setup:
    return Setup(
        version="0",
        cluster=cluster,
        throughputs=TABLE,
        policy=policy,
        settings=DEFAULT,
        seed=0,
        restart_costs=COSTS,
    )


def jobs(n: int = 12) -> list[Arrival]:
    return [job(i, 0.0, 20_000.0 + 7_000.0 * (i * 5 % n), 1 + i % 2) for i in range(n)]


def middle(
    what: Setup, trace: list[Arrival], events: int
) -> tuple[SchedulerCheckpoint, dict[int, float]]:
    """The state after so many events, as soon as a round is in force, and when jobs then ended."""
    core = build(what)
    backend = SimBackend(
        trace, what.cluster, TABLE, core.data.planning.planner.solve, GroundTruth(COSTS)
    )
    state, count = None, 0
    ends: dict[int, float] = {}
    while (event := backend.next()) is not None:
        count += 1
        for command in core.handle(event):
            backend.perform(command)
            if isinstance(command, EndJobs) and state is not None:
                ends |= dict(zip(command.jobs.tolist(), command.end_s.tolist(), strict=True))
        if (
            state is None
            and count >= events
            and core.data.round.active
            and not core.data.planning.solving
        ):
            state = take_checkpoint(core.data)
    assert state is not None
    return state, ends


@pytest.mark.parametrize(
    "policy",
    [
        "las_aware",
        "las",
        "fifo_perf",
        "shortest_job_first",
        "tiresias",
        "shockwave",
        "finish_time_aware",
        "makespan",
    ],
)
@pytest.mark.parametrize("events", [3, 30])
def test_a_forecast_is_how_the_run_went_on(policy: str, events: int) -> None:
    state, ends = middle(setup(policy), jobs(), events)
    before = encode(state)
    (outcome,) = forecast(setup(policy), state)
    assert outcome.complete
    assert len(ends) > 4
    assert set(outcome.finish_s) == set(ends)
    for number, end_s in ends.items():
        assert outcome.finish_s[number] == pytest.approx(end_s - state.time_s, abs=1.0)
    assert outcome.makespan_s == pytest.approx(max(ends.values()) - state.time_s, abs=1.0)
    assert 0.5 < outcome.utilization <= 1.0
    assert encode(state) == before


def test_those_run_that_hold_devices_in_the_round_in_force_and_have_not_left_it() -> None:
    state, _ = middle(setup(), jobs(), 20)
    assert state.in_force is not None
    members = set(state.in_force.job_groups.flatten().tolist()) - {-1}
    assert running_jobs(state) == members
    assert members < set(state.ledger.jobs["id"].tolist())
    gone = msgspec.structs.replace(state.in_force, counts=np.zeros_like(state.in_force.counts))
    assert running_jobs(replace(state, in_force=gone)) == frozenset()
    assert running_jobs(replace(state, in_force=None)) == frozenset()


def test_a_round_under_way_counts_up_to_now() -> None:
    """Asked 300 s into a round: by rates and time, or by what is known."""
    one = [job(0, 0.0, 100_000.0)]
    state, _ = middle(setup(), one, 1)
    later = state.time_s + 300.0
    (guessed,) = forecast(setup(), state, ForecastQuery(now_s=later))
    assert guessed.finish_s[0] == pytest.approx(10_000.0 - later)
    (known,) = forecast(setup(), state, ForecastQuery(now_s=later, steps_done={0: 1_000.0}))
    assert known.finish_s[0] == pytest.approx(9_900.0)
    (over,) = forecast(setup(), state, ForecastQuery(now_s=later, steps_done={0: 100_000.0}))
    assert over.finish_s == {0: 0.0}
    assert over.complete


def test_what_if_there_were_more_jobs_other_nodes_another_policy() -> None:
    state, _ = middle(setup(), jobs(), 20)
    (now,) = forecast(setup(), state)
    more = [Job(JobId(100 + i), "net", 1, 50_000.0) for i in range(4)]
    (busier,) = forecast(setup(), state, ForecastQuery(add_jobs=more))
    assert set(busier.finish_s) == set(now.finish_s) | {100, 101, 102, 103}
    assert busier.makespan_s > now.makespan_s
    larger = Cluster.of({"fast": 6, "slow": 3}, 2)
    (faster,) = forecast(setup(), state, ForecastQuery(cluster=larger))
    assert faster.mean_left_s < 0.7 * now.mean_left_s
    smaller = CLUSTER.without("slow-0")
    (slower,) = forecast(setup(), state, ForecastQuery(cluster=smaller))
    assert slower.makespan_s > now.makespan_s
    (other,) = forecast(setup(), state, ForecastQuery(policy="srtf"))
    assert other.mean_left_s < now.mean_left_s


def test_what_is_beyond_the_horizon_has_no_time() -> None:
    state, ends = middle(setup(), jobs(), 20)
    left = sorted(end_s - state.time_s for end_s in ends.values())
    (near,) = forecast(setup(), state, ForecastQuery(horizon_s=(left[1] + left[2]) / 2))
    assert len(near.finish_s) == 2
    assert not near.complete
    beyond = eta([near], int(max(ends, key=lambda number: ends[number])))
    assert (beyond.finish_s, beyond.low_s, beyond.high_s, beyond.forecasts) == (None, None, None, 1)


def test_jobs_that_can_never_run_and_held_ones_do_not_end() -> None:
    core = build(setup())
    backend = SimBackend(jobs(4), CLUSTER, TABLE, core.data.planning.planner.solve)
    for _ in range(3):
        event = backend.next()
        assert event is not None
        for command in core.handle(event):
            backend.perform(command)
    core.handle(JobsPaused(core.data.now_s, np.array([1]), True))
    huge = Job(JobId(50), "net", 4, 100.0)
    (outcome,) = forecast(setup(), take_checkpoint(core.data), ForecastQuery(add_jobs=[huge]))
    assert set(outcome.finish_s) == {0, 2, 3}
    assert outcome.unfinished == (50,)


@pytest.mark.parametrize("cpu_s", [np.inf, 0.0])
def test_jobs_that_are_held_for_now_end_after_their_wait(cpu_s: float) -> None:
    core = build(setup())
    for command in core.handle(JobsSubmitted(0.0, (Job(JobId(0), "net", 1, 100.0),))):
        assert isinstance(command, Solve)
    core.handle(JobsPaused(0.0, np.array([0]), True))
    state = take_checkpoint(core.data)
    asked = ForecastQuery(cpu_s=cpu_s)
    assert forecast(setup(), state, asked)[0].finish_s == {}
    (free,) = forecast(setup(), state, replace(asked, paused_s={0: 0.0}))
    (held,) = forecast(setup(), state, replace(asked, paused_s={0: 70.0}))
    assert free.finish_s[0] > 0
    assert held.finish_s[0] == held.makespan_s == free.finish_s[0] + 70.0
    assert held.complete


def test_how_sure_a_forecast_is() -> None:
    state, ends = middle(setup(), jobs(), 20)
    last = max(ends, key=lambda number: ends[number])
    unsure = ForecastQuery(rate_noise=0.1, rate_bias=0.2)
    outcomes = forecast(setup(), state, unsure, seeds=range(6))
    when = eta(outcomes, last)
    assert when.forecasts == 6
    assert when.low_s is not None
    assert when.finish_s is not None
    assert when.high_s is not None
    assert 0 < when.low_s < when.finish_s < when.high_s
    assert forecast(setup(), state, unsure, seeds=[3]) == outcomes[3:4]
    assert eta([], last).forecasts == 0


def test_rounds_are_simulated_for_as_long_as_is_wanted() -> None:
    state, ends = middle(setup(), jobs(), 20)
    first = min(ends.values()) - state.time_s
    (some,) = forecast(setup(), state, ForecastQuery(rounds_s=first))
    assert first <= some.exact_s < first + 2 * DEFAULT.round_s
    assert set(some.finish_s) == set(ends)
    assert forecast(setup(), state, ForecastQuery(wall_s=0.0))[0].exact_s == 0.0


def test_an_idle_cluster_has_a_future_too() -> None:
    core = build(setup())
    (nothing,) = forecast(setup(), take_checkpoint(core.data))
    assert nothing.complete
    assert nothing.makespan_s == 0.0
    (one,) = forecast(
        setup(),
        take_checkpoint(core.data),
        ForecastQuery(add_jobs=[Job(JobId(1), "net", 1, 1_000.0)]),
    )
    assert one.finish_s == {1: pytest.approx(100.0)}
    costly = replace(setup(), overlap_solves=True)
    assert forecast(costly, take_checkpoint(build(costly).data))[0].complete


@pytest.mark.parametrize(("early_s", "end_s"), [(np.inf, 460.0), (10.0, 200.0), (150.0, 250.0)])
def test_rounds_end_early_where_those_of_the_cluster_do(early_s: float, end_s: float) -> None:
    one = replace(setup("fifo", Cluster.of({"fast": 2}, 2)), restart_costs=RestartCosts())
    three = [job(0, 0.0, 9_000.0), job(1, 0.0, 1_000.0), job(2, 0.0, 1_000.0)]
    core = build(one)
    backend = SimBackend(three, one.cluster, TABLE, core.data.planning.planner.solve, GroundTruth())
    event = backend.next()
    assert event is not None
    for command in core.handle(event):
        backend.perform(command)
    (outcome,) = forecast(one, take_checkpoint(core.data), ForecastQuery(early_s=early_s))
    assert outcome.finish_s == pytest.approx({0: 900.0, 1: 100.0, 2: end_s})


def test_jobs_that_are_expected_take_their_part_and_are_not_told_of() -> None:
    one = setup("las_aware", Cluster.of({"fast": 1}, 1))
    state, _ = middle(one, [job(0, 0.0, 100_000.0)], 1)
    mine = job(9, 0.0, 20_000.0).job
    came = History(tuple((state.time_s - 40_000.0 + 4_000.0 * i, (mine,)) for i in range(10)))
    (alone,) = forecast(one, state)
    for cpu_s in (np.inf, 0.0):
        outcomes = forecast(one, state, ForecastQuery(history=came, cpu_s=cpu_s), range(8))
        assert all(set(outcome.finish_s) == {0} for outcome in outcomes)
        mean_s = float(np.mean([outcome.finish_s[0] for outcome in outcomes]))
        assert 1.2 * alone.finish_s[0] < mean_s < 3 * alone.finish_s[0]
        assert all(outcome.complete for outcome in outcomes)


@pytest.mark.parametrize("cpu_s", [np.inf, 0.0])
def test_where_no_node_can_be_used_no_job_ends_and_the_forecast_does(cpu_s: float) -> None:
    """The jobs that are expected are a stream without end, of which none fits."""
    core = build(setup())
    core.handle(JobsSubmitted(0.0, (Job(JobId(0), "net", 1, 100.0),)))
    for node in CLUSTER.nodes:
        core.handle(NodeLost(1.0, node.name))
    mine = job(9, 0.0, 20_000.0).job
    came = History(tuple((-40_000.0 + 4_000.0 * i, (mine,)) for i in range(10)))
    asked = ForecastQuery(history=came, cpu_s=cpu_s, wall_s=20.0)
    (outcome,) = forecast(setup(), take_checkpoint(core.data), asked)
    assert (dict(outcome.finish_s), outcome.unfinished) == ({}, (0,))


ONE = Cluster.of({"fast": 1}, 1)


def test_a_start_under_way_comes_before_the_steps() -> None:
    """It was taken to be free, or over: the end of one that starts for 33 s did not move in that time."""
    state, _ = middle(setup(), [job(0, 0.0, 100_000.0)], 1)
    for left_s in (33.0, 5.0):
        query = ForecastQuery(
            now_s=state.time_s + 100.0,
            steps_done={0: 0.0},
            start_s={0: 100.0 + left_s},
            starting={0: left_s},
        )
        (found,) = forecast(setup(), state, query)
        assert found.finish_s[0] == pytest.approx(10_000.0 + left_s)


def test_a_first_start_to_come_takes_what_starts_take() -> None:
    both = [job(0, 0.0, 10_000.0), job(1, 0.0, 10_000.0)]
    state, _ = middle(setup("fifo", ONE), both, 2)
    (free,) = forecast(setup("fifo", ONE), state)
    (found,) = forecast(setup("fifo", ONE), state, ForecastQuery(start_s={0: 50.0, 1: 50.0}))
    assert found.finish_s[0] == free.finish_s[0], "it has started"
    assert found.finish_s[1] == pytest.approx(free.finish_s[1] + 50.0)


def test_starts_that_are_longer_than_rounds_are_not_for_nothing() -> None:
    """The core believes that they cost nothing: each would be preempted before its first step."""
    cheap = replace(setup("las_aware", ONE), restart_costs=RestartCosts(0.1))
    trace = [job(i, 0.0, 100_000.0) for i in range(4)]
    state, _ = middle(cheap, trace, 4)
    start_s = 3 * DEFAULT.round_s
    query = ForecastQuery(start_s=dict.fromkeys(range(4), start_s))
    (found,) = forecast(cheap, state, query)
    assert found.complete
    assert found.makespan_s < 2.5 * 4 * 10_000.0
