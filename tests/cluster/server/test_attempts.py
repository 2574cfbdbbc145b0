"""What is measured of a start."""

from typing import Any

import msgspec
import pytest

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import EXPIRED, LEFT_EARLY, AttemptStatus, Failure
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.rows import AttemptRow, JobRow


def start() -> Attempt:
    """On one device of node "a", before its first step."""
    spec = JobSpec(command=("true",), total_steps=1000, rates={"v100": 10.0}, cwd="/")
    row = JobRow(
        id=1,
        name="",
        tenant="t",
        user="u",
        spec=spec,
        state="running",
        submitted_s=0.0,
        total_steps=1000.0,
    )
    attempt = AttemptRow(job=1, attempt=1, node="a", accelerator="v100", devices=(0,), began_s=0.0)
    return Attempt(row, attempt, ranks_on({"a": (0,)}), 10.0, 0.0, ordered=True)


def trains(one: Attempt, step: int, ran_s: float) -> None:
    one.statuses["a"] = msgspec.convert(
        {
            "job": 1,
            "attempt": 1,
            "state": "running",
            "step": step,
            "loaded_step": 100,
            "ran_s": ran_s,
        },
        AttemptStatus,
    )


def test_a_rate_is_measured_alone() -> None:
    one = start()
    assert one.measured() is None
    trains(one, 110, 1.0)
    assert one.measured() is None, "a second is too short"
    trains(one, 200, 10.0)
    assert one.measured() == pytest.approx(10.0)


def test_what_a_job_does_beside_another_is_not_its_rate() -> None:
    one = start()
    one.shares(((2, 1),))
    trains(one, 200, 20.0)
    assert one.measured() is None
    one.shares(())
    assert one.measured() is None, "not yet for a second"
    trains(one, 300, 30.0)
    assert one.measured() == pytest.approx(10.0), "since it has been alone"
    one.shares(())
    trains(one, 400, 40.0)
    assert one.measured() == pytest.approx(10.0)
    one.shares(((2, 1),))
    assert one.measured() is None


def test_a_start_after_the_last_step_is_at_the_last_step() -> None:
    one = start()
    one.from_step = 1000.0
    assert (one.done(), one.progress()) == (1000.0, 999.0), "one is kept back from the core alone"
    trains(one, 1000, 10.0)
    assert (one.done(), one.progress()) == (1000.0, 999.0)
    trains(one, 1200, 10.0)
    assert one.done() == 1000.0


def test_time_alone_brings_no_job_to_its_last_step() -> None:
    one = start()
    one.row.spec = msgspec.structs.replace(one.row.spec, unmanaged=True)
    one.statuses["a"] = AttemptStatus(job=1, attempt=1, state="running", ran_s=1e6)
    assert one.done() == 999.0


def test_how_an_attempt_ended_is_told_apart_from_the_reason() -> None:
    def gang(**more: Any) -> Attempt:
        spec = JobSpec(command=("x",), total_steps=100, scale_factor=2)
        row = JobRow(
            id=1, name="", tenant="t", user="u", spec=spec, submitted_s=0.0, total_steps=100.0
        )
        attempt = AttemptRow(
            job=1, attempt=1, node="a,b", accelerator="v100", devices=(0, 0), began_s=0.0
        )
        made = Attempt(row, attempt, ranks_on({"a": (0,), "b": (0,)}), 10.0, 0.0, ordered=True)
        made.statuses = {
            "a": AttemptStatus(job=1, attempt=1, state="ended", exit_code=0, reason="ranks ended"),
            "b": AttemptStatus(job=1, attempt=1, state="ended", **more),
        }
        return made

    expired = gang(exit_code=-15, reason=EXPIRED)  # not on the node of rank 0
    assert expired.end() == (AttemptEnd.LEASE_EXPIRED, EXPIRED)
    assert gang(exit_code=3).end() == (AttemptEnd.FAILED, "failed: exit code 3")
    stopped = gang(exit_code=0)
    stopped.stop(AttemptEnd.STOPPED, "node a is drained")
    assert stopped.end() == (AttemptEnd.STOPPED, "node a is drained")
    moved = gang(exit_code=0)
    moved.stop(AttemptEnd.MOVED)
    assert moved.is_preempted
    assert moved.end() == (AttemptEnd.MOVED, "moved")
    lost = gang(exit_code=3)
    lost.lost = True
    assert lost.end() == (AttemptEnd.NODE_LOST, "node lost")


def test_of_a_gang_a_rank_that_left_before_its_first_step_is_to_blame() -> None:
    def gang(**first: Any) -> Attempt:
        made = start()
        made.nodes = ranks_on({"a": (0,), "b": (0,)})
        made.statuses = {
            "a": AttemptStatus(job=1, attempt=1, **{"state": "ended", "exit_code": 75, **first}),
            "b": AttemptStatus(job=1, attempt=1, state="ended", exit_code=0, left=1),
        }
        return made

    early = gang()
    assert early.note_left("b")
    assert early.broken
    assert early.failure() == f"rank 1 {LEFT_EARLY}"
    node, failure = early.root_failure()
    assert failure is not None
    assert (node, failure.rank, failure.exit_code) == ("b", 1, 0)
    trains = gang(state="running", exit_code=None, loaded_step=0, step=3)
    assert not trains.note_left("b"), "it has been there"
    assert not trains.broken
    own = gang(reason="rank 0: KeyError", failure=Failure(kind="exception", exit_code=1))
    assert own.note_left("b")
    assert (own.failure(), own.root_failure()[0]) == ("rank 0: KeyError", "a")


def test_of_a_gang_the_rank_that_left_early_is_to_blame_and_not_those_that_missed_it() -> None:
    def gang(**first: Any) -> Attempt:
        made = start()
        made.nodes = ranks_on({"a": (0,), "b": (0,)})
        missed = Failure(exit_code=76, message="rank 1 is gone", secondary=True)
        told = {"exit_code": 76, "reason": "rank 0: exit code 76: rank 1 is gone", **first}
        made.statuses = {
            "a": AttemptStatus(job=1, attempt=1, state="ended", failure=missed, **told),
            "b": AttemptStatus(job=1, attempt=1, state="ended", exit_code=0),
        }
        return made

    early = gang()
    assert early.failure() == (
        "ranks on b ended first, with exit code 0; rank 0: exit code 76: rank 1 is gone"
    )
    assert early.root_failure()[0] == "b"
    own = gang(exit_code=1, reason="rank 0: KeyError")
    own.statuses["a"] = msgspec.structs.replace(own.statuses["a"], failure=Failure(exit_code=1))
    assert (own.failure(), own.root_failure()[0]) == ("rank 0: KeyError", "a")
