"""A real engine, on a thread and a store of its own, with nodes that a test plays by hand."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from fairlead.cli.replay import replay
from fairlead.cluster.protocol.access import Caller, TokenKind
from fairlead.cluster.protocol.api_models import Comparison, JobView, NodeView, WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import (
    PROTOCOL,
    AttemptStatus,
    NodeReport,
    Orders,
    Register,
    Welcome,
)
from fairlead.cluster.server.local_front import LocalFront
from fairlead.cluster.server.options import live_options
from fairlead.cluster.server.runtime_options import RuntimeOptions
from fairlead.cluster.server.service import Service
from fairlead.cluster.server.tenant_limits import NO_LIMITS, TenantLimits
from fairlead.cluster.server.webhook import Webhook
from fairlead.errors import StaleError

ADMIN = Caller(user="admin", tenant="t", role="admin")
LEASE_S = 1.0
HEARTBEAT_S = 0.2
WAIT_S = 180.0
_Result = TypeVar("_Result")


class PlayedNode:
    """A node that begins what it is ordered, and says so as often as a test lets it."""

    def __init__(self, cluster: "EngineNodes", name: str, incarnation: str, devices: int) -> None:
        self.cluster = cluster
        self.name, self.incarnation, self.devices = name, incarnation, devices
        self.statuses: dict[tuple[int, int], AttemptStatus] = {}
        self.leased: set[tuple[int, int]] = set()  # starts that were ever granted a lease
        self.seq = 0
        self.follows = -1  # the orders that it knows
        self.ending = False  # its agent was told to end

    def register(self, token: TokenKind = "own", **more: Any) -> Welcome:
        self.follows = -1
        message = Register(
            protocol=PROTOCOL, version="0", node=self.name, incarnation=self.incarnation,
            host="h", accelerator="v100", devices=self.devices, simulated_devices=True,
            holds=self.holds(), ending=self.ending, **more,
        )  # fmt: skip
        return self.cluster.service.register(message, token).result(WAIT_S)

    def holds(self) -> tuple[AttemptStatus, ...]:
        """What it holds; by the order that the server has given for it, where a test names no other."""
        return tuple(
            status if status.order_id else replace(status, order_id=self._order_id(*key))
            for key, status in self.statuses.items()
        )

    def _order_id(self, job: int, attempt: int) -> str:
        rows = self.cluster.service.store.attempts(job)
        return next((row.order_id for row in rows if row.attempt == attempt), "")

    def report(self, **more: Any) -> Orders:
        """Say what is held, and follow the orders that come back."""
        orders = self.say(**more)
        self.follows = orders.seq
        wanted = {(a.job, a.attempt) for a in orders.desired}
        new = set() if self.ending else wanted - self.statuses.keys()
        for job, attempt in new:
            self.statuses[job, attempt] = AttemptStatus(job=job, attempt=attempt, state="starting")
        for key in [key for key in self.statuses if key not in wanted]:
            self.end(*key, exit_code=0, reason="agent leaves" if self.ending else "")
        for key in orders.forget:
            self.statuses.pop(key, None)
        return orders

    def say(self, **more: Any) -> Orders:
        """Report what is held, and no more."""
        self.seq += 1
        orders = self.cluster.front.report(
            NodeReport(
                node=self.name, incarnation=self.incarnation, seq=self.seq,
                holds=self.holds(), orders_seq=self.follows, ending=self.ending, **more,
            )
        )  # fmt: skip
        self.leased |= {(a.job, a.attempt) for a in orders.desired if a.job in orders.leases}
        return orders

    def end(self, job: int, attempt: int, **more: Any) -> None:
        self.statuses[job, attempt] = AttemptStatus(job=job, attempt=attempt, state="ended", **more)

    def run(self, job: int, attempt: int, **more: Any) -> None:
        self.statuses[job, attempt] = AttemptStatus(
            job=job, attempt=attempt, state="running", **more
        )

    def stopping(self, job: int, attempt: int, **more: Any) -> None:
        self.statuses[job, attempt] = AttemptStatus(
            job=job, attempt=attempt, state="stopping", **more
        )

    @property
    def jobs(self) -> set[int]:
        return {job for (job, _), held in self.statuses.items() if held.state != "ended"}


class EngineNodes:
    """The service, and the nodes that a test plays."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.front = LocalFront(service.engine.state.fleet)
        self.nodes: list[PlayedNode] = []  # that report while a test waits
        self._ahead_s = 0.0  # of the fleet's clock, over that of the machine

    def node(self, name: str, incarnation: str = "one.1", devices: int = 1) -> PlayedNode:
        played = PlayedNode(self, name, incarnation, devices)
        self.nodes.append(played)
        return played

    def silence(self, node: PlayedNode) -> None:
        """The node says nothing from now on."""
        self.nodes.remove(node)

    def do(self, do: Callable[[], _Result]) -> _Result:
        """On the driver's thread."""
        return self.service.engine.call(do).result(WAIT_S)

    def submit(self, **more: Any) -> int:
        given = {
            "command": ("x",),
            "total_steps": 1_000_000,
            "rates": {"v100": 1.0},
            "grace_s": 0.5,
        }
        return self.service.submit(ADMIN, [JobSpec(**(given | more))])[0]  # type: ignore[arg-type]

    def job(self, job: int) -> JobView:
        return self.service.job(ADMIN, job)

    def view(self, name: str) -> NodeView:
        return next(node for node in self.service.nodes(ADMIN) if node.name == name)

    def begin(self, node: PlayedNode, job: int) -> None:
        """Let the newest attempt of a job on a node train."""

        def leased() -> list[tuple[int, int]]:
            return [key for key in node.leased & node.statuses.keys() if key[0] == job]

        job, attempt = self.until(leased)[0]
        node.run(job, attempt, loaded_step=0, step=5, saved_step=0)
        node.say()

    def until_silence_tells(self, holds: Callable[[], Any]) -> Any:
        """As ``until``, for what leases and silence bring about: their clock runs ahead meanwhile, in steps
        in which no node that reports becomes suspect."""
        self.service.engine.state.fleet.monotonic = lambda: time.monotonic() + self._ahead_s

        def later() -> Any:
            self._ahead_s += HEARTBEAT_S
            return holds()

        return self.until(later)

    def until(self, holds: Callable[[], Any], what: str = "it") -> Any:
        """Let the nodes report until something holds."""
        end = time.monotonic() + WAIT_S
        while not (found := holds()):
            assert time.monotonic() < end, f"{what} did not come about"
            for node in self.nodes:
                try:
                    node.report()
                except StaleError:
                    node.register()
            time.sleep(0.02)
        return found


def compared(cluster: EngineNodes, question: WhatIf, caller: Caller = ADMIN) -> Comparison:
    """The answer to a what-if question, while the nodes live."""
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(cluster.service.what_if, caller, question)
        cluster.until(asked.done)
        return asked.result()


@contextmanager
def engine_nodes(
    directory: Path,
    round_s: float = 1.0,
    lease_s: float = LEASE_S,
    early_round_end: bool = False,
    policy: str = "las",
    checkpoints: Path | None = None,
    ignored_witnesses: tuple[str, ...] = (),
    cluster_file: Path | None = None,
    tenant_limits: TenantLimits = NO_LIMITS,
    webhook: Webhook | None = None,
) -> Iterator[EngineNodes]:
    """The engine runs beside the block."""
    options = live_options(
        cluster_file,
        policy,
        "default",
        round_s,
        "builtin",
        0,
        lease_s,
        HEARTBEAT_S,
        30.0,
        early_round_end=early_round_end,
        checkpoints=checkpoints,
        ignored_witnesses=ignored_witnesses,
        runtime=RuntimeOptions(
            tenant_jobs=tenant_limits.open_jobs,
            tenant_jobs_per_minute=tenant_limits.jobs_per_minute,
            tenant_bytes_per_minute=tenant_limits.bytes_per_minute,
            tenant_grace=tenant_limits.grace_s,
            user_changes_per_minute=tenant_limits.changes_per_minute,
        ),
        webhook=webhook,
    )
    service = Service(directory, options)
    cluster = EngineNodes(service)
    service.start()
    try:
        yield cluster
    finally:
        service.stop()
    replay(directory)  # whatever was done to nodes, the core can be led to the same decisions again


@contextmanager
def busy_driver(cluster: EngineNodes) -> Iterator[Callable[[], None]]:
    """The driver's thread does nothing else than to wait for the end of the block, or until what this gives
    is called."""
    begun, over = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        over.wait(WAIT_S)

    answer = cluster.service.engine.call(wait)
    assert begun.wait(WAIT_S)
    try:
        yield over.set
    finally:
        over.set()
        answer.result(WAIT_S)
