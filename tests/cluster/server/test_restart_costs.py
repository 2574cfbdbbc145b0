"""What starts cost is measured, and the core told when it believes something else."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cluster.server_parts import AttemptParts, add_node, cluster_state

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus, ParkedAttempt
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.restart_costs import (
    FEW_SAMPLES,
    LATE_RESUMES,
    MAX_YOUNG_S,
    MIN_SAMPLES,
    MISJUDGED_FACTOR,
    AutomaticRound,
    MeasuredStarts,
)
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.cluster.store.store import Store
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import RestartCosts
from fairlead.scheduler.mechanism.round_length import (
    adjusted_round_s,
    automatic_round_s,
)
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup
from fairlead.simulator.traces.throughput_tables import read_throughputs


def _state(restart_s: float | None = None, **options: Any) -> ClusterState:
    fleet = Fleet(30.0, 0.01, lambda: 0.0, lambda _: None)
    return cluster_state(fleet, lambda: 0.0, restart_s=restart_s, **options)


def test_the_belief_is_a_guess_then_what_was_said_then_what_was_measured() -> None:
    assert MeasuredStarts(_state()).restart_s() == 1.0  # of rounds of 360 s
    starts = MeasuredStarts(_state(7.0))
    starts.seconds.extend([3.0] * (MIN_SAMPLES - 1))
    assert starts.restart_s() == 7.0
    starts.seconds.append(3.0)
    assert starts.restart_s() == 3.0


def test_the_core_is_put_together_anew_only_when_it_is_far_off() -> None:
    state = _state()
    starts = MeasuredStarts(state)
    cluster = Cluster((Node("a", "v100", 1),))
    table = read_throughputs("builtin").on(cluster)
    state.setup = Setup(
        version="0",
        cluster=cluster,
        throughputs=table,
        policy="las_aware",
        settings=DEFAULT,
        seed=0,
        restart_costs=RestartCosts(1.0),
    )
    starts.seconds.extend([0.9 * MISJUDGED_FACTOR] * MIN_SAMPLES)
    assert not starts.is_misjudged()
    starts.seconds.extend([1.1 * MISJUDGED_FACTOR] * 5 * MIN_SAMPLES)
    assert starts.is_misjudged()
    starts.seconds.clear()
    assert not starts.is_misjudged()


def test_a_job_that_was_resumed_costs_what_that_took() -> None:
    state = _state()
    starts = MeasuredStarts(state)
    parts = AttemptParts(state, (starts,))
    for job in (1, 2):
        state.registry.jobs[job] = _row(job)
        state.fleet.add(f"n{job}", "v100", 1)
        attempt = parts.orders.assign(job, {f"n{job}": (0,)}, "v100", 0.0)
        attempt.resumes = 3 if job == 1 else 0
        attempt.statuses[f"n{job}"] = AttemptStatus(
            job=job, attempt=1, state="ended", start_s=0.02, load_s=0.01, stop_s=0.03, exit_code=0,
            loaded_step=0, step=5, saved_step=5, order_id=attempt.record.order_id,
        )  # fmt: skip
        parts.orders.stop(job, AttemptEnd.PREEMPTED)
        attempt.record.trained_s = 4.0
        parts.ends.end(attempt)
    assert starts.resume_s(1) == pytest.approx(0.06, abs=0.01)
    assert starts.resume_s(2) is None
    assert list(starts.seconds) == [4.0], "it says nothing of a start"
    del state.registry.jobs[1]
    starts.forget_closed()
    assert starts.resume_s(1) is None


def test_a_start_is_young_for_three_times_as_long_as_its_job_is_known_to_take() -> None:
    now = [0.0]
    state = cluster_state(Fleet(30.0, 0.01, lambda: now[0], lambda _: None), lambda: now[0])
    starts = MeasuredStarts(state)
    parts = AttemptParts(state, (starts,))
    row = state.registry.jobs[1] = _row(1)
    state.fleet.add("n", "v100", 1)
    starts.seconds.extend([4.0] * FEW_SAMPLES)
    assert starts.young_s(row) == 12.0, "as others here"

    def run(until_s: float, trained_s: float | None = None) -> None:
        attempt = parts.orders.assign(1, {"n": (0,)}, "v100", now[0])
        attempt.record.trained_s = trained_s
        now[0] = until_s
        parts.orders.stop(1, AttemptEnd.PREEMPTED)
        attempt.statuses["n"] = AttemptStatus(
            job=1, attempt=attempt.key[1], state="ended", exit_code=0
        )
        parts.ends.end(attempt)

    run(10.0)
    assert starts.young_s(row) == 30.0
    run(40.0)
    run(50.0)
    assert starts.young_s(row) == 90.0
    run(100.0, trained_s=60.0)
    row.usual_start_s = 10.0  # as it is booked elsewhere
    assert starts.young_s(row) == 30.0
    row.usual_start_s = 1e4
    assert starts.young_s(row) == MAX_YOUNG_S


def test_a_program_that_could_not_be_stopped_as_it_was_is_remembered() -> None:
    state = _state()
    starts = MeasuredStarts(state)
    parts = AttemptParts(state, (starts,))
    row = state.registry.jobs[1] = _row(1)
    row.spec = JobSpec(command=("x",), total_steps=100, unmanaged=True, park="stop")
    state.fleet.add("n", "v100", 1)
    for number, released in enumerate((False, True, False), 1):
        attempt = parts.orders.assign(1, {"n": (0,)}, "v100", 0.0)
        attempt.statuses["n"] = AttemptStatus(
            job=1, attempt=number, state="ended", ran_s=3.0, exit_code=0, released=released,
            terminated=True, order_id=attempt.record.order_id,
        )  # fmt: skip
        parts.orders.stop(1, AttemptEnd.PREEMPTED)
        parts.ends.end(attempt)
        assert starts.can_suspend(attempt) == released
        assert (row.steps > 0) == released, "else it starts from zero"


def test_a_program_that_found_no_room_is_spared_while_what_took_it_is_parked() -> None:
    state = _state()
    starts = MeasuredStarts(state)
    parts = AttemptParts(state, (starts,))
    state.registry.jobs[1] = row = _row(1)
    row.spec = JobSpec(command=("x",), total_steps=100, unmanaged=True, park="stop")
    state.fleet.add("n", "v100", 1)
    one, two = (ParkedAttempt(job=job, attempt=1, ranks=()) for job in (7, 8))

    def attempt_beside(*parked: ParkedAttempt) -> Attempt:
        add_node(state.fleet, "n", parked=parked)
        return parts.orders.assign(1, {"n": (0,)}, "v100", 0.0)

    attempt = attempt_beside(one, two)
    parts.orders.stop(1, AttemptEnd.PREEMPTED)
    parts.ends.end(attempt)
    assert not starts.can_suspend(attempt_beside(one, two))
    assert starts.can_suspend(attempt_beside(two))


def test_a_program_that_a_node_cannot_park_is_spared_there_whatever_else_is_parked() -> None:
    state = _state()
    starts = MeasuredStarts(state)
    parts = AttemptParts(state, (starts,))
    state.registry.jobs[1] = row = _row(1)
    row.spec = JobSpec(command=("x",), total_steps=100, unmanaged=True, park="stop")
    beside = ParkedAttempt(job=7, attempt=1, ranks=())
    for name in ("n", "m"):
        add_node(state.fleet, name, parked=(beside,))

    def attempt_on(name: str) -> Attempt:
        return parts.orders.assign(1, {name: (0,)}, "v100", 0.0)

    attempt = attempt_on("n")
    attempt.statuses["n"] = AttemptStatus(
        job=1, attempt=1, state="ended", ran_s=3.0, exit_code=-15, unsaved="the tool: exit code 3",
        order_id=attempt.record.order_id,
    )  # fmt: skip
    parts.orders.stop(1, AttemptEnd.PREEMPTED)
    parts.ends.end(attempt)
    assert attempt.record.why == "preempted; the tool: exit code 3"
    assert starts.why_not_parked(1) == "n: the tool: exit code 3"
    assert starts.waiting_anew() == [1], "it is no new job, and not preferred as those are"
    add_node(state.fleet, "n", parked=())
    assert not starts.can_suspend(attempt_on("n"))
    parts.orders.stop(1, AttemptEnd.PREEMPTED)
    del state.registry.jobs[1]
    starts.forget_closed()
    assert starts.why_not_parked(1) == ""
    assert starts.waiting_anew() == []


def _resumed(
    job: int, attempt: int, seconds: float, origin: str = "resumed at step 5"
) -> AttemptRow:
    return AttemptRow(
        job=job, attempt=attempt, node="a", accelerator="v100", devices=(0,), began_s=0.0,
        ended_s=9.0, start_s=0.0, load_s=0.0, stop_s=seconds, origin=origin,
    )  # fmt: skip


def test_what_resuming_costs_is_known_again_after_a_restart_of_the_server(tmp_path: Path) -> None:
    state = _state()
    costs = [9.0, *(0.1 * i for i in range(LATE_RESUMES))]
    state.registry.jobs = {1: _row(1), 2: _row(2)}
    starts = MeasuredStarts(state)
    with Store(tmp_path) as store:
        with store.transaction() as t:
            t.put_attempts(_resumed(1, number, seconds) for number, seconds in enumerate(costs, 1))
            t.put_attempts([_resumed(2, 1, 5.0, "began at step 3"), _resumed(3, 1, 5.0)])
        state.store = store
        starts.recover()
    assert starts.resume_s(1) == pytest.approx(0.2), "the median of the last ones"
    assert starts.resume_s(2) is None
    assert starts.resume_s(3) is None, "it has ended"


def _automatic(jobs: dict[int, int]) -> tuple[ClusterState, MeasuredStarts]:
    """jobs: id -> devices."""
    state = _state(2.0, automatic_round=True)
    table = SimpleNamespace(id=np.array([*jobs]), scale=np.array([*jobs.values()]))
    state.scheduler = SimpleNamespace(data=SimpleNamespace(ledger=SimpleNamespace(jobs=table)))  # type: ignore[assignment]
    for job in jobs:
        state.registry.jobs[job] = _row(job)
    return state, MeasuredStarts(state)


def test_rounds_become_as_short_as_measured_costs_allow() -> None:
    state, starts = _automatic({1: 1, 2: 3})
    length = AutomaticRound(state, starts)
    assert state.round_s == 100.0, "nothing is measured: what a start is said to cost counts"
    assert not length.is_outdated()
    for number in (1, 2):
        starts.note_resumed(_resumed(1, number, 0.5))
    assert not length.is_outdated(), "82 s are not clearly less"
    starts.note_resumed(_resumed(2, 1, 0.5))
    assert length.is_outdated()
    assert length.length_s() == automatic_round_s([(1, 0.5), (3, 0.5)], 2.0) == 25.0
    state.round_s = 25.0
    assert not length.is_outdated()


def test_rounds_become_longer_with_the_first_starts_that_cost_more() -> None:
    state, starts = _automatic({1: 1})
    starts.seconds.extend([5.0, 6.0])
    assert AutomaticRound(state, starts).length_s() == 100.0
    starts.seconds.append(7.0)
    assert AutomaticRound(state, starts).length_s() == 300.0
    assert starts.restart_s() == 2.0, "the core is told later, of what is certain"


def test_fixed_rounds_stay() -> None:
    state, starts = _automatic({1: 1})
    state.options = _state(2.0).options
    state.round_s = 360.0
    starts.note_resumed(_resumed(1, 1, 0.4))
    assert not AutomaticRound(state, starts).is_outdated()


def test_rounds_are_lengthened_at_once_and_shortened_only_by_much() -> None:
    assert adjusted_round_s(20.0, 21.0) == 21.0, "else switching takes more than its part"
    assert [adjusted_round_s(20.0, one) for one in (20.0, 19.0, 16.1)] == [20.0] * 3
    assert adjusted_round_s(20.0, 16.0) == 16.0


def test_the_round_is_a_mean_over_devices() -> None:
    assert automatic_round_s([(1, 1.0), (3, 5.0)], 0.0) == 200.0
    assert automatic_round_s([], 3.0) == 150.0


def _row(job: int) -> JobRow:
    return JobRow(
        id=job, name="", tenant="t", user="u", spec=JobSpec(command=("x",), total_steps=100),
        submitted_s=0.0, total_steps=100.0, acknowledged_total=100.0, state="running",
    )  # fmt: skip
