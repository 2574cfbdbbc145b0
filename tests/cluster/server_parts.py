"""The parts of a server that follow attempts, without a driver's thread: a test plays core and nodes."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairlead.cluster.protocol.messages import PROTOCOL, Register
from fairlead.cluster.server.attempt_ends import AttemptEnds
from fairlead.cluster.server.attempt_orders import AttemptOrders
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.clock import Clock
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.server.kept_devices import KeptDevices
from fairlead.cluster.server.live_round import LiveRound
from fairlead.cluster.server.node_watch import NodeWatch
from fairlead.cluster.server.options import LiveOptions
from fairlead.cluster.server.parked import ParkedPrograms
from fairlead.cluster.server.report_intake import ReportIntake
from fairlead.cluster.server.round_clock import CapacityChecks, RoundClock
from fairlead.cluster.server.round_report import RoundReporter
from fairlead.cluster.server.standbys import Standbys
from fairlead.cluster.server.step_accounting import StepAccounting
from fairlead.cluster.store.rows import JobRow
from fairlead.cluster.store.store import Store
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.settings import DEFAULT


def cluster_state(fleet: Fleet, now_s: Callable[[], float], **options: Any) -> ClusterState:
    """Of a cluster whose store is not there. now_s: the cluster's time."""
    table: Throughputs = SimpleNamespace()  # type: ignore[assignment]
    clock = Clock(lambda: "a boot", now_s, now_s)
    clock.from_meta(None, now_s())
    return ClusterState(
        options=LiveOptions("las_aware", DEFAULT, table, **options),
        store=Store(Path("nowhere"), 2),
        clock=clock,
        registry=JobRegistry(),
        fleet=fleet,
    )


class _Listener:
    """In the place of retries, costs and obstacles: nothing is done."""

    def began(self, attempt: Attempt) -> None: ...
    def runs(self, attempt: Attempt) -> None: ...

    def saved(self, attempt: Attempt) -> None: ...

    def trains(self, attempt: Attempt) -> None: ...
    def ended(self, attempt: Attempt, failure: str) -> None: ...
    def obstructed(self, node: str, job: int, obstacle: str) -> None: ...
    def poll(self, now: float) -> None: ...
    def hold(self, now: float) -> None: ...
    def tell(self) -> None: ...

    def learned(self, current: LiveRound, now: float) -> None: ...

    def is_applied(self) -> bool:
        return False

    def rates(self, row: JobRow) -> dict[str, float]:
        del row
        return {"v100": 1.0}


class _Nodes(NodeWatch):
    """Nodes are as the test says."""

    def poll(self) -> None:
        """Nothing is noticed."""

    def close(self) -> None:
        """None is suspect."""


def add_node(fleet: Fleet, name: str, devices: int = 1, **more: Any) -> None:
    """A node comes up, with devices of type v100. more: of what its agent says."""
    if name not in fleet.nodes:
        fleet.add(name, "v100", devices)
    fleet.register(
        Register(
            protocol=PROTOCOL, version="0", node=name, incarnation=f"{name}.1", host="h",
            accelerator="v100", devices=devices, **more,
        )
    )  # fmt: skip


class AttemptParts:
    """See the module."""

    def __init__(self, state: ClusterState, told: tuple[Any, ...] = ()) -> None:
        """told: listeners to attempts that end."""
        nobody: Any = _Listener()
        self.steps = StepAccounting(state, lambda _: None)
        self.orders = AttemptOrders(state, steps=self.steps, rates=nobody, listener=nobody)
        self.ends = AttemptEnds(state, steps=self.steps, orders=self.orders, listeners=told)
        self.standbys = Standbys(state, self.orders)
        self.intake = ReportIntake(
            state,
            steps=self.steps,
            orders=self.orders,
            ends=self.ends,
            standbys=self.standbys,
            training=nobody,
            obstacles=nobody,
        )
        nothing: Any = None
        self.nodes = _Nodes(
            state,
            service=nothing,
            pinning=nothing,
            intake=self.intake,
            ends=self.ends,
            standbys=self.standbys,
            programs=ParkedPrograms(state, self.steps),
        )
        self.clock = RoundClock(
            state,
            reporter=RoundReporter(state, self.steps, KeptDevices(state)),
            steps=self.steps,
            nodes=self.nodes,
            costs=nobody,
            binder=nobody,
            retries=nobody,
            capacity=CapacityChecks(for_waiting=lambda: False, for_misplaced=lambda: False),
            precede=lambda: None,
        )
