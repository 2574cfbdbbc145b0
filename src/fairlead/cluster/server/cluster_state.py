"""The state of a live cluster: the one record that all parts of the driver's process read and change."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from fairlead.cluster.front.metrics import Counters
from fairlead.cluster.protocol.deadlines import missed
from fairlead.cluster.server.clock import Clock
from fairlead.cluster.server.decided_shares import DecidedShares
from fairlead.cluster.server.fleet import Fleet
from fairlead.cluster.server.job_registry import JobRegistry
from fairlead.cluster.server.live_round import LiveRound
from fairlead.cluster.server.options import LiveOptions
from fairlead.cluster.store.rows import JobRow
from fairlead.cluster.store.store import Store, Transaction
from fairlead.model.arrays import Floats
from fairlead.model.cluster import Cluster
from fairlead.model.events import Event, NodeLost, NodeRecovered
from fairlead.scheduler.core.bound_jobs import DevicePositions
from fairlead.scheduler.core.scheduler import Scheduler
from fairlead.scheduler.mechanism.round_length import shortest_round_s
from fairlead.scheduler.setup import Setup

EARLY = 36  # a round may end after this part of it, where devices are free and jobs wait
GUESSED_RESTART_S = 1.0  # that a start costs, for the length of automatic rounds, until it is known


@dataclass(slots=True)
class ClusterState:
    """Changed by the driver's thread alone; other threads read single values, each whole by itself."""

    options: LiveOptions
    store: Store
    clock: Clock
    registry: JobRegistry
    fleet: Fleet
    counters: Counters = field(default_factory=Counters)
    # The core, and what was decided:
    policy: str = ""
    scheduler: Scheduler | None = None
    setup: Setup | None = None
    ready: bool = False  # whether there is a core to be driven
    rebuild_due: bool = False  # nodes or policy have changed since the core was made
    decided: DecidedShares = field(default_factory=DecidedShares)
    learned_rates: dict[int, Floats] = field(default_factory=dict)  # job -> (slots,) steps/s alone
    decide_s: float | None = None  # that the last decision took
    # Rounds and solves:
    round: LiveRound | None = None
    round_s: float = field(init=False)  # that rounds last from now on
    solving: bool = False
    capacity_changed: bool = (
        False  # whether jobs or devices may have become free since it was asked
    )
    # What is about to happen:
    events: deque[Event] = field(default_factory=deque)  # to be told to the core
    writes: list[Callable[[Transaction], None]] = field(
        default_factory=list
    )  # with the next commit
    changed_nodes: set[str] = field(default_factory=set)  # of which something else is to be shown
    # Nodes and jobs:
    lost_nodes: set[str] = field(default_factory=set)  # out of service, as the core has been told
    next_job: int = 0
    checkpoints: str = ""  # directory for those of jobs submitted from now on
    known_roots: set[str] = field(default_factory=set)  # such directories that jobs have used
    order_origin: str = ""  # first part of the ids of orders: see ``protocol.messages.OrderId``
    ended_counts: dict[str, int] = field(default_factory=dict)  # state -> jobs that ended in it
    note_end: Callable[[JobRow], None] = lambda _: None  # told of each job that ends
    # The journal:
    commit_error: str = ""  # why nothing can be made durable just now
    halted: str = ""  # why nothing is scheduled, accepted or ended any more by this server
    journal_records: int = 0  # in all segments
    segment_records: int = 0  # in the newest segment

    def __post_init__(self) -> None:
        """Rounds last as long as the options say; automatic ones, until something is known, as long as what a
        start is taken to cost makes them."""
        options = self.options
        restart_s = GUESSED_RESTART_S if options.restart_s is None else options.restart_s
        automatic = options.automatic_round
        self.round_s = shortest_round_s(restart_s) if automatic else options.profile.round_s

    @property
    def early_s(self) -> float:
        """Seconds after which a round may end early, where devices are free and jobs wait."""
        return self.round_s / EARLY if self.options.early_round_end else float("inf")

    @property
    def cluster(self) -> Cluster:
        """The nodes as the core knows them. There must be a core."""
        assert self.setup is not None
        return self.setup.cluster

    @property
    def bound_devices(self) -> Mapping[int, DevicePositions]:
        """Job -> devices to which it is bound, as the core has been told (``DevicesBound``)."""
        return {} if self.scheduler is None else self.scheduler.data.bound_jobs.devices

    def now_s(self) -> float:
        """The cluster's time."""
        return self.clock.now_s()

    def emit(self, event: Event) -> None:
        """Tell the core of something, after all that it is to be told before."""
        self.events.append(event)

    def write(self, change: Callable[[Transaction], None]) -> None:
        """Have something more written with the next commit."""
        self.writes.append(change)

    def disable(self, node: str) -> None:
        """The core may no longer use a node."""
        if node not in self.lost_nodes:
            self.lost_nodes.add(node)
            self.emit(NodeLost(self.now_s(), node))

    def enable(self, node: str) -> None:
        """The core may use a node again."""
        if node in self.lost_nodes:
            self.lost_nodes.discard(node)
            self.capacity_changed = True
            self.emit(NodeRecovered(self.now_s(), node))

    def remove_node(self, node: str) -> None:
        """Forget a node that nothing runs on."""
        self.disable(node)  # there may be none left for which the core is made anew
        self.fleet.remove(node)
        self.lost_nodes.discard(node)
        self.write(lambda t: t.delete_node(node))
        self.rebuild_due = True

    def drop_reasons(self, node: str) -> None:
        """Whatever was the matter with a node is so no longer."""
        for row in self.registry.jobs.values():
            if row.reason_node == node:
                row.reason = row.reason_node = ""
                self.registry.dirty_jobs.add(row.id)

    def close_job(self, row: JobRow) -> None:
        """A job has ended, as its row says."""
        ended_s, deadline_s = row.ended_s, row.deadline_s
        if ended_s is not None and deadline_s is not None:
            self.counters.deadlines_missed.inc(missed(row.state, deadline_s - ended_s))
        self.registry.ended.append(row.id)
        self.note_end(row)
        self.registry.close(row.id)

    def count_ended(self, states: Collection[str]) -> None:
        """So many jobs have ended in these states."""
        for state in states:
            self.ended_counts[state] = self.ended_counts.get(state, 0) + 1
