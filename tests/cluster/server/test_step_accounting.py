"""What of a job's device time is lost: all that was not for steps that count, and nothing twice."""

from typing import Any

import pytest
from tests.cluster.server_parts import AttemptParts, cluster_state

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.store.rows import JobRow

JOB = 3


class Account:
    """A job without the iterator that starts over each time, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        fleet = Fleet(10.0, 0.01, lambda: self.now, lambda _: None)
        fleet.add("a", "v100", 1)
        state = cluster_state(fleet, lambda: self.now)
        self.parts = AttemptParts(state)
        spec = JobSpec(command=("x",), total_steps=100_000, unmanaged=True)
        self.row = state.registry.jobs[JOB] = JobRow(
            id=JOB, name="", tenant="t", user="u", spec=spec, submitted_s=0.0, total_steps=1e5,
            acknowledged_total=1e5, state="running",
        )  # fmt: skip

    def attempt(self, ran_s: float, grace_s: float, again: int = 0, **more: Any) -> None:
        """It runs, and ignores for its grace that it is to stop. again: steps that it does again."""
        attempt = self.parts.orders.assign(JOB, {"a": (0,)}, "v100", self.now)
        began = AttemptStatus(job=JOB, attempt=attempt.key[1], state="running", wait_s=0.0, **more)
        attempt.statuses["a"] = began
        if again:
            self.parts.steps.count_lost_steps(attempt, float(again))
        attempt.stop(AttemptEnd.PAUSED)
        self.now += ran_s + grace_s
        attempt.statuses["a"] = AttemptStatus(
            job=JOB, attempt=attempt.key[1], state="ended", exit_code=0, ran_s=ran_s, wait_s=0.0,
            stop_s=grace_s, **more,
        )  # fmt: skip
        self.parts.ends.end(attempt)
        self.row.attempt = attempt.key[1]


def test_of_one_that_says_nothing_all_time_is_lost() -> None:
    account = Account()
    for ran_s in (10.0, 30.0, 5.0):
        account.attempt(ran_s, grace_s=8.0)
        assert account.row.run_s > 0
        assert account.row.lost_device_s == pytest.approx(account.row.run_s)


def test_of_one_that_tells_of_its_steps_the_grace_is_not_lost_twice() -> None:
    account = Account()
    account.attempt(10.0, 8.0, loaded_step=0, step=200)
    assert account.row.lost_device_s == pytest.approx(8.0), "what comes of its steps is not known"
    account.attempt(20.0, 8.0, again=200, loaded_step=0, step=400)
    assert account.row.lost_device_s == pytest.approx(18.0 + 8.0)


@pytest.mark.parametrize("heard", [True, False], ids=["silent since", "not heard of yet"])
def test_steps_are_as_old_as_the_word_of_them_when_a_round_ends(heard: bool) -> None:
    account = Account()
    attempt = account.parts.orders.assign(JOB, {"a": (0,)}, "v100", account.now)
    account.row.counted_s = account.now
    if heard:
        attempt.statuses["a"] = AttemptStatus(
            job=JOB, attempt=attempt.key[1], state="running", loaded_step=0, step=50
        )
        account.now += 5.0
        attempt.last_report_s = account.now
    counted_s = account.now
    account.now += 20.0
    account.parts.steps.count(attempt, None, counted=True)
    assert account.row.counted_s == counted_s
