"""A start on several nodes, as the backend follows it."""

from typing import Any

import pytest
from tests.cluster.server_parts import AttemptParts, cluster_state

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    AttemptStatus,
    Failure,
    NodeReport,
    Register,
)
from fairlead.cluster.server.attempt_orders import ranks_on
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.store.rows import AttemptRow, JobRow

KEY = (7, 1)


class Server:
    """The parts of a server that follow one start of two ranks, on nodes a (rank 0) and b."""

    def __init__(self) -> None:
        self.noticed: list[str] = []
        self.fleet = Fleet(10.0, 0.01, lambda: 100.0, self.noticed.append)
        self.front = LocalFront(self.fleet)
        state = cluster_state(self.fleet, lambda: 50.0)
        self.registry = state.registry
        self.stopped: list[tuple[Attempt, str]] = []
        self.parts = AttemptParts(state, (self,))
        for name in "ab":
            self.fleet.add(name, "v100", 1)
            self.fleet.register(_register(name))
        spec = JobSpec(command=("x",), total_steps=100, scale_factor=2)
        row = JobRow(
            id=7, name="", tenant="t", user="u", spec=spec, submitted_s=0.0, total_steps=100.0,
            state="running", attempt=1,
        )  # fmt: skip
        self.registry.jobs[7] = row
        attempt = AttemptRow(
            job=7, attempt=1, node="a,b", accelerator="v100", devices=(0, 0), began_s=1.0
        )
        self.start = Attempt(row, attempt, ranks_on({"a": (0,), "b": (0,)}), 1.0, 0.0)
        self.registry.add(self.start)
        self.parts.orders.order(self.start)
        self.fleet.publish()
        self._seq = 0

    def ended(self, attempt: Attempt, failure: str) -> None:
        """An attempt is over and booked."""
        self.stopped.append((attempt, failure))

    def says(self, node: str, *holds: AttemptStatus) -> None:
        """A report of a node that follows its orders."""
        self._seq += 1
        orders = self.front.orders(node, "one").seq
        self.front.report(
            NodeReport(node=node, incarnation="one", seq=self._seq, holds=holds, orders_seq=orders)
        )
        self.parts.intake.apply(node)
        self.fleet.publish()

    def orders(self, node: str) -> tuple[list[int], tuple[tuple[int, int], ...]]:
        """Jobs that a node shall hold, and starts that it shall forget."""
        orders = self.front.orders(node, "one")
        return [a.job for a in orders.desired], orders.forget


def _register(name: str) -> Register:
    return Register(
        protocol=PROTOCOL, version="0", node=name, incarnation="one", host="h", accelerator="v100",
        devices=1, holds=(),
    )  # fmt: skip


def _held(state: str, **more: Any) -> AttemptStatus:
    return AttemptStatus(job=7, attempt=1, state=state, **more)  # type: ignore[arg-type]


def test_where_the_ranks_of_one_node_end_the_others_are_told_to_stop() -> None:
    server = Server()
    server.says("a", _held("running", loaded_step=0, step=5))
    server.says("b", _held("ended", exit_code=137, reason="killed"))
    assert server.orders("a") == ([], ())
    server.says("a", _held("running", loaded_step=0, step=5, address="h:1:2:x"))
    assert server.orders("a") == ([], ()), "and not ordered again"
    assert server.stopped == []
    server.says("a", _held("ended", exit_code=75, loaded_step=0, step=5))
    assert [why for _, why in server.stopped] == ["killed"]
    assert 7 not in server.registry.live


def test_the_time_to_stop_lasts_until_the_last_node_has_ended() -> None:
    server = Server()
    server.start.stop(AttemptEnd.PAUSED)
    late = "killed: did not end within 30 s of being told to stop (paused)"
    killed = Failure(kind="signal", rank=1, exit_code=-9, secondary=True)
    server.says("a", _held("ended", exit_code=75, stop_s=0.25, ended_age_s=30.0))
    server.says("b", _held("ended", exit_code=-9, ended_age_s=0.0, reason=late, failure=killed))
    assert server.start.record.stop_s == pytest.approx(30.25)
    assert server.start.record.why == f"paused; {late}"


def test_a_node_forgets_an_end_only_when_the_start_is_booked() -> None:
    server = Server()
    server.says("b", _held("ended", exit_code=0))
    assert server.orders("b") == ([7], ()), "a server that is restarted now must hear of it again"
    ended = _held("ended", exit_code=0, completed=True, loaded_step=0, step=100)
    server.says("a", ended)
    assert server.stopped[0][0].completed()
    assert server.orders("b") == ([], (KEY,))
    assert server.orders("a") == ([], (KEY,))


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_start_of_which_no_node_knows_is_over(first: str) -> None:
    server = Server()
    for node in (first, "b" if first == "a" else "a"):
        assert server.stopped == []
        server.says(node)
    assert [why for _, why in server.stopped] == ["it was never started"]
