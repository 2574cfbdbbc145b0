"""What the server takes a running job to have done since it last heard of it."""

from typing import Any

import msgspec
import pytest

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus, Rank
from fairlead.cluster.server.assignments import assignment
from fairlead.cluster.server.attempts import MAX_EXTRAPOLATION_S, Attempt
from fairlead.cluster.store.rows import AttemptRow, JobRow

TOTAL, RATE = 1000, 20.0


def _start(unmanaged: bool = False, **held: Any) -> Attempt:
    spec = JobSpec(command=("x",), total_steps=TOTAL, unmanaged=unmanaged)
    row = JobRow(id=0, name="", tenant="", user="", spec=spec, submitted_s=0.0, total_steps=TOTAL)
    attempt = AttemptRow(job=0, attempt=1, node="a", accelerator="v100", devices=(0,), began_s=0.0)
    start = Attempt(
        row, attempt, {"a": (Rank(rank=0, devices=(0,)),)}, RATE, 100.0, last_report_s=50.0
    )
    message = AttemptStatus(job=0, attempt=1, state="running")
    start.statuses["a"] = msgspec.structs.replace(message, **held)
    return start


def test_it_goes_on_at_the_rate_that_this_start_has_shown() -> None:
    start = _start(step=200, loaded_step=100, ran_s=10.5, step_age_s=0.5)  # 10 steps/s
    assert start.progress() == 200
    assert start.expected(50.0) == 205
    assert start.expected(51.0) == 215


def test_at_the_rate_believed_before_it_has_shown_any() -> None:
    start = _start(step=100, loaded_step=100, ran_s=0.2, step_age_s=0.2)
    assert start.expected(50.32) == 110


def test_a_unmanaged_job_goes_on_with_the_clock() -> None:
    assert _start(unmanaged=True, ran_s=2.0).expected(50.5) == 150


def test_a_rank_that_waits_for_those_of_other_nodes_makes_no_progress() -> None:
    start = _start(unmanaged=True, ran_s=10.0)
    start.nodes["b"] = (Rank(rank=1, devices=(0,)),)
    assert start.progress() == 100
    waits = AttemptStatus(job=0, attempt=1, state="starting")
    start.statuses["b"] = waits
    assert (start.progress(), start.expected(51.0)) == (100, 100)
    start.statuses["b"] = msgspec.structs.replace(waits, state="running", ran_s=2.0)
    assert start.progress() == 140
    assert start.expected(51.0) == 160


@pytest.mark.parametrize(
    "held",
    [
        {"state": "stopping", "step": 200, "loaded_step": 100, "ran_s": 10.0, "step_age_s": 0.5},
        {"state": "starting"},
        {
            "step": 200,
            "loaded_step": 100,
            "ran_s": 10.0,
        },  # an agent that does not say how old that is
    ],
)
def test_nothing_is_expected_of_what_does_not_run(held: dict[str, Any]) -> None:
    start = _start(**held)
    assert start.expected(60.0) == start.progress()


def test_nor_much_of_what_is_not_heard_of_and_never_the_last_step() -> None:
    start = _start(step=200, loaded_step=100, ran_s=10.0, step_age_s=0.0)
    assert start.expected(1e6) == 200 + MAX_EXTRAPOLATION_S * 10
    start = _start(step=998, loaded_step=100, ran_s=10.0, step_age_s=0.0)
    assert start.expected(60.0) == TOTAL - 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(False, (False, False)), (True, (True, False)), ("auto", (False, True))],
)
def test_a_node_is_told_from_what_to_start(wanted: object, expected: tuple[bool, bool]) -> None:
    start = _start()
    start.row.spec = msgspec.structs.replace(start.row.spec, prefork=wanted)
    order = assignment(start, "a", 1.0)
    assert (order.prefork, order.prepare) == expected
