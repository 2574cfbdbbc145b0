"""Nobody waits for devices that another keeps while others are free."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.cluster.agent.device_claim import NOT_ENDED
from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server import kept_waiters
from fairlead.cluster.server.kept_waiters import KeptWaiters


class Waiting:
    """A job that was given device 0 of node a, which another keeps; node b has a free device of its type."""

    def __init__(self) -> None:
        self.now = 103.0
        keeps = self._attempt(7, stopping="preempted")
        keeps.stop_ordered_s = 100.0
        keeps.statuses["a"] = AttemptStatus(job=7, attempt=1, state="stopping", wait_s=0.0)
        self.waits = self._attempt(8)
        self.waits.record.ordered_s = 100.5
        self.waits.leader = AttemptStatus(job=8, attempt=1, state="starting", reason=NOT_ENDED)
        self.keeps = keeps
        self.rates = {"v100": 1.0}
        self.round: Any = SimpleNamespace(attempts={8: self.waits}, ended={}, started_s=100.0)
        self.bound: dict[int, Any] = {}

    def _attempt(self, job: int, stopping: str = "") -> Any:
        return SimpleNamespace(
            key=(job, 1),
            row=SimpleNamespace(id=job, spec=SimpleNamespace(scale_factors=(1,))),
            record=SimpleNamespace(ordered_s=1.0, devices=(0,), wait_s=-1.0, trained_s=None),
            stopping=stopping,
            stop_ordered_s=None,
            ordered=True,
            lost=False,
            begin_noted=False,
            statuses={},
            leader=None,
            placement=lambda: {"a": (0,)},
            has_left=lambda node: False,
        )

    def could_run_elsewhere(self, here: int = 1, free: int = 1) -> bool:
        def node(name: str, devices: int) -> Any:
            return SimpleNamespace(name=name, accelerator="v100", devices=devices)

        state: Any = SimpleNamespace(
            round=self.round,
            registry=SimpleNamespace(live={7: [self.keeps], 8: [self.waits]}),
            bound_devices=self.bound,
            now_s=lambda: self.now,
            fleet=SimpleNamespace(
                monotonic=lambda: 0.0, nodes={"a": node("a", here), "b": node("b", free)}
            ),
        )
        return KeptWaiters(state, lambda row: self.rates).could_run_elsewhere()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    monkeypatch.setattr(kept_waiters, "usable", lambda node, now: True)
    return Waiting()


def test_who_waits_for_a_kept_device_while_another_is_free_could_run_there(
    waiting: Waiting,
) -> None:
    assert waiting.could_run_elsewhere()


def test_a_device_that_one_keeps_and_another_waits_for_is_taken_once(waiting: Waiting) -> None:
    assert waiting.could_run_elsewhere(here=2, free=0)


def test_it_could_not_without_a_free_device_that_it_can_run_on(waiting: Waiting) -> None:
    assert not waiting.could_run_elsewhere(free=0)
    waiting.rates = {"v100": 0.0, "k80": 1.0}
    assert not waiting.could_run_elsewhere()


def test_a_device_that_may_still_be_left_in_a_moment_is_waited_for(waiting: Waiting) -> None:
    waiting.now = 101.5
    assert not waiting.could_run_elsewhere()


def test_who_was_left_there_by_a_later_decision_ends_no_round_again(waiting: Waiting) -> None:
    waiting.round.started_s = 102.0
    assert not waiting.could_run_elsewhere()


def test_who_is_bound_to_these_devices_goes_nowhere_else(waiting: Waiting) -> None:
    waiting.bound = {8: {("a", 0)}}
    assert not waiting.could_run_elsewhere()


def test_who_has_begun_waits_for_nobody(waiting: Waiting) -> None:
    waiting.waits.statuses["a"] = AttemptStatus(job=8, attempt=1, state="running", wait_s=0.0)
    assert not waiting.could_run_elsewhere()
