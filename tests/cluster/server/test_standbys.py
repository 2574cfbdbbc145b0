"""When the attempt that a standby waits for is told to stop, and what becomes of the standby."""

from dataclasses import dataclass, field

import pytest
from tests.cluster.server_parts import AttemptParts, add_node, cluster_state

from fairlead.cluster.protocol.attempt_end import AttemptEnd
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    Assignment,
    AttemptStatus,
    NodeReport,
)
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.server.standbys import LIMIT_S
from fairlead.cluster.store.rows import JobRow

JOB = 7
HERE, THERE = ("a", "b"), ("c", "d")
ADDRESS = "h:1:2:secret"


@dataclass
class Clock:
    """The time of the cluster, as a test sets it."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Nodes:
    """Four nodes of a device, and a job that trains on some of the first two."""

    ranks: int = 1
    standby: bool = True
    clock: Clock = field(default_factory=Clock)
    seq: int = 0

    def __post_init__(self) -> None:
        self.fleet = Fleet(10.0, 0.01, self.clock, lambda _: None)
        self.front = LocalFront(self.fleet)
        self.state = cluster_state(self.fleet, self.clock)
        self.parts = AttemptParts(self.state)
        spec = JobSpec(command=("x",), total_steps=100, standby=self.standby)
        self.row = JobRow(
            id=JOB, name="", tenant="t", user="u", spec=spec, submitted_s=0.0, total_steps=100.0,
            acknowledged_total=100.0, state="running",
        )  # fmt: skip
        self.state.registry.jobs[JOB] = self.row
        for name in (*HERE, *THERE):
            add_node(self.fleet, name, simulated_devices=True)
        self.fleet.publish()
        self.source = self.assign(HERE)
        for node in HERE[: self.ranks]:
            step = 5 if node == HERE[0] else -1
            self.report(node, 1, state="running", step=step, loaded_step=min(step, 0))

    def assign(self, nodes: tuple[str, ...]) -> Attempt:
        placement: dict[str, tuple[int, ...]] = dict.fromkeys(nodes[: self.ranks], (0,))
        return self.parts.orders.assign(JOB, placement, "v100", self.clock())

    def move(self, taken: tuple[str, ...] = ()) -> Attempt:
        """A round begins in which the job is to run there, and others on these nodes."""
        attempt = self.assign(THERE)
        devices = {(node, 0) for node in (*attempt.nodes, *taken)}
        self.parts.standbys.begin({JOB: attempt}, devices)
        return attempt

    def report(self, node: str, attempt: int, **said: object) -> None:
        self.fleet.publish()
        self.seq += 1
        order = next((a.order_id for a in self.held(node) if a.attempt == attempt), "")
        order = order or self.order_ids[attempt]
        status = AttemptStatus(job=JOB, attempt=attempt, order_id=order, **said)  # type: ignore[arg-type]
        self.front.report(
            NodeReport(node=node, incarnation=f"{node}.1", seq=self.seq, holds=(status,))
        )
        self.parts.intake.apply(node)

    @property
    def order_ids(self) -> dict[int, str]:
        live = self.state.registry.live.get(JOB, [])
        return {one.record.attempt: one.record.order_id for one in live}

    def held(self, node: str) -> tuple[Assignment, ...]:
        self.fleet.publish()
        return self.fleet.orders(node).desired

    def standbys(self, *nodes: str) -> list[bool | None]:
        """Whether what each node shall hold of the job is a standby; None = it shall hold nothing."""
        found = [self.held(node) for node in nodes]
        return [held[0].standby if held else None for held in found]


def test_the_attempt_before_it_goes_on_until_the_standby_is_ready() -> None:
    nodes = Nodes()
    attempt = nodes.move()
    assert nodes.standbys("a", "c") == [False, True]
    nodes.report("c", 2, state="starting")
    assert nodes.standbys("a", "c") == [False, True]
    assert not nodes.source.stopping
    nodes.report("c", 2, state="starting", stands_by=True)
    assert nodes.standbys("a", "c") == [None, True], "it is over first"
    assert (nodes.source.stopping, attempt.ordered) == ("moved", False)
    nodes.report("a", 1, state="ended", exit_code=0, step=9, loaded_step=0, saved_step=9)
    assert nodes.standbys("a", "c") == [None, False]
    assert (attempt.ordered, attempt.from_step) == (True, 9)


def test_of_a_gang_all_nodes_are_prepared() -> None:
    nodes = Nodes(ranks=2)
    nodes.move()
    assert nodes.standbys("a", "b", "c", "d") == [False, False, True, True]
    nodes.report("c", 2, state="starting", address=ADDRESS)
    assert [held.master for held in (*nodes.held("c"), *nodes.held("d"))] == ["", ADDRESS]
    nodes.report("c", 2, state="starting", address=ADDRESS, stands_by=True)
    assert nodes.standbys("a", "b", "c", "d") == [None, None, True, True]
    for node in HERE:
        nodes.report(node, 1, state="ended", exit_code=0)
    assert nodes.standbys("c", "d") == [False, False]


def test_nobody_waits_for_a_standby_of_another_job() -> None:
    nodes = Nodes()
    nodes.move(taken=("a",))
    assert nodes.standbys("a", "c") == [None, True]


def test_a_late_standby_is_not_waited_for() -> None:
    nodes = Nodes()
    nodes.move()
    nodes.clock.now_s += LIMIT_S - 1
    nodes.parts.standbys.poll()
    assert nodes.standbys("a", "c") == [False, True]
    nodes.clock.now_s += 1
    nodes.parts.standbys.poll()
    assert nodes.standbys("a", "c") == [None, True]


def test_a_job_that_fails_meanwhile_is_not_begun_elsewhere() -> None:
    nodes = Nodes()
    nodes.move()
    nodes.report("a", 1, state="ended", exit_code=1, step=9, loaded_step=0, reason="a mistake")
    assert nodes.standbys("a", "c") == [None, None]
    assert nodes.state.registry.live == {}
    assert nodes.row.failures == 1


def test_a_standby_that_has_ended_is_replaced_by_a_start_that_waits() -> None:
    nodes = Nodes()
    nodes.move()
    nodes.report("c", 2, state="ended", exit_code=1, reason="killed")
    assert nodes.standbys("a", "c") == [None, None]
    nodes.report("a", 1, state="ended", exit_code=0, step=9, loaded_step=0, saved_step=9)
    assert nodes.standbys("c") == [False]
    assert [held.attempt for held in nodes.held("c")] == [3]
    assert nodes.row.failures == 0


@pytest.mark.parametrize("why", ["not asked", "does not train", "finishes", "one node"])
def test_a_job_may_have_no_standby(why: str) -> None:
    nodes = Nodes(standby=why != "not asked")
    if why == "does not train":
        nodes.source.statuses.clear()
    if why == "finishes":
        nodes.report("a", 1, state="running", step=100, loaded_step=0, finishing=True)
    if why == "one node":
        attempt = nodes.parts.orders.assign(JOB, {"a": (0,), "c": (0,)}, "v100", 100.0)
    else:
        attempt = nodes.assign(THERE)
    assert not attempt.standby
    assert nodes.standbys("a", "c") == [None, None]


def test_the_time_of_a_standby_is_not_the_jobs() -> None:
    nodes = Nodes()
    nodes.move()
    nodes.report("c", 2, state="starting", stands_by=True, wait_s=3.0, start_s=4.0)
    before_s = nodes.row.overhead_s
    nodes.clock.now_s += 20.0
    nodes.parts.orders.stop(JOB, AttemptEnd.PAUSED)
    assert nodes.row.overhead_s == before_s
    assert [row.wait_s for row in nodes.state.registry.dirty_attempts.values()] == [-1.0, -1.0]


def test_a_job_that_is_to_stay_after_all_goes_on() -> None:
    nodes = Nodes()
    nodes.move()
    nodes.report("c", 2, state="starting")
    assert nodes.assign(HERE) is nodes.source
    assert not nodes.source.stopping
    assert nodes.standbys("a", "c") == [False, None]
    assert nodes.state.registry.live[JOB] == [nodes.source]
