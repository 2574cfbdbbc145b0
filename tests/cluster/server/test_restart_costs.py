"""What starts cost is measured, and the core told when it believes something else."""

import pytest
from tests.cluster.server_parts import AttemptParts, cluster_state

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.restart_costs import (
    MIN_SAMPLES,
    MISJUDGED_FACTOR,
    MeasuredStarts,
)
from fairlead.cluster.store.rows import JobRow
from fairlead.model.cluster import Cluster, Node
from fairlead.model.job import RestartCosts
from fairlead.scheduler.mechanism.settings import DEFAULT
from fairlead.scheduler.setup import Setup
from fairlead.simulator.traces.throughput_tables import read_throughputs


def _state(restart_s: float | None = None) -> ClusterState:
    fleet = Fleet(30.0, 0.01, lambda: 0.0, lambda _: None)
    return cluster_state(fleet, lambda: 0.0, restart_s=restart_s)


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


def _row(job: int) -> JobRow:
    return JobRow(
        id=job, name="", tenant="t", user="u", spec=JobSpec(command=("x",), total_steps=100),
        submitted_s=0.0, total_steps=100.0, acknowledged_total=100.0, state="running",
    )  # fmt: skip
