"""The nodes as the server knows them: what each holds, what each shall hold, and until when it may.

Shared by two threads: agents' calls come in on the one that serves the network, decisions are published by
the driver's. Every method takes the lock for a moment only, so a lease is renewed however long a decision
takes. Times are monotonic seconds of this process, never wall-clock times.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from fairlead.errors import StaleError
from fairlead.live.protocol import Assignment, Held, Orders, Register, Report

Start: TypeAlias = tuple[int, int]  # (job, epoch): one start of a job
RENEWALS = 250.0  # reports a second, of all nodes, that heartbeats alone shall bring at most
REMEMBERED = 16  # incarnations of a node that are known to be superseded
DEAF_S = 1.0  # a node that does not answer for so long holds up the others no more
_NONE = Orders(seq=0, wanted=())


def _wake_nobody(names: list[str]) -> None:
    del names


@dataclass(frozen=True, slots=True)
class Inherited:
    """A start of an earlier incarnation of a node that may still run there."""

    incarnation: str
    until: float  # monotonic; nothing of it lives behind that


@dataclass(slots=True)
class LiveNode:
    """A node. ``seen`` and ``lease_until`` are 0 before the first report to this server."""

    name: str
    accelerator: str
    devices: int
    host: str = ""
    fake: bool = False
    drained: bool = False
    lost: bool = False
    suspect: bool = False  # silent for longer than it should be
    problems: tuple[str, ...] = ()  # what its agent's own checks find, a sentence each
    cordoned: str = ""  # why the server itself gives it no jobs; "" = it does
    waits_until: float = 0.0  # monotonic; before, what is not known here may still run on it
    waits_for: str = ""  # why that is so
    state_since: float = 0.0  # monotonic; in the state that was noted last
    noted: str = ""  # that state
    incarnation: str = ""  # "" = has not registered with this server
    last_incarnation: str = ""  # known from an earlier run of the server
    machine: str = ""  # the kernel and process table of that incarnation; "" = not known
    superseded: dict[str, None] = field(default_factory=dict)  # earlier incarnations, oldest first
    inherited: dict[Start, Inherited] = field(default_factory=dict)
    granted: set[Start] = field(default_factory=set)  # starts that ever got a lease
    seq: int = -1  # of its newest report
    seen: float = 0.0
    lease_until: float = 0.0  # every lease that it was granted is over by then
    holds: dict[Start, Held] = field(default_factory=dict)
    orders: Orders = _NONE  # as published
    followed: int = -1  # the newest orders that it says it follows
    # The driver's alone, until it publishes them:
    wanted: dict[int, Assignment] = field(default_factory=dict)
    forget: set[Start] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)
    changed: bool = False

    @property
    def quiet_since(self) -> float:
        """Since when it has neither been heard of nor had a lease."""
        return max(self.seen, self.lease_until)

    @property
    def registered(self) -> bool:
        """Has it spoken to this server, and is it not lost?"""
        return bool(self.incarnation) and not self.lost


class Fleet:
    """See the module. ``wake`` is called with the names of nodes whose orders were published."""

    def __init__(
        self,
        lease_s: float,
        rate_bound: float,
        monotonic: Callable[[], float],
        notice: Callable[[str], None],
        shortest_s: float = 0.0,
    ) -> None:
        """notice: called with a node's name, under no lock, when what it holds has changed in kind;
        shortest_s: between two heartbeats of a node."""
        self.lease_s = lease_s
        self.rate_bound = rate_bound
        self.monotonic = monotonic
        self.notice = notice
        self.shortest_s = shortest_s
        self.nodes: dict[str, LiveNode] = {}
        self.wake: Callable[[list[str]], None] = _wake_nobody
        self._lock = threading.Lock()
        self.hold_until = 0.0  # monotonic; no node is given a job before
        self.hold_reason = ""
        self._seq = 0
        self._changed: dict[str, None] = {}  # in the order in which they are to be told
        self._told: dict[str, float] = {}  # node -> when, of those that have not answered yet

    @property
    def heartbeat_s(self) -> float:
        """Between two reports of a node that has nothing new to say. Longer where there are many nodes, so
        that the server's time goes to what is new; a lease always sees four of them."""
        return max(self.shortest_s, min(len(self.nodes) / RENEWALS, self.lease_s / 4))

    @property
    def silence_s(self) -> float:
        """Without a report for so long is no accident."""
        return 4 * self.heartbeat_s + 1.0

    # --- agents' calls -----------------------------------------------------------------------------

    def report(self, message: Report) -> Orders:
        """Take note of what a node holds; its orders, with its leases renewed."""
        with self._lock:
            node = self._known(message.node, message.incarnation)
            now = self.monotonic()
            node.seen = now
            if message.seq <= node.seq:  # late or doubled: nothing new, and nothing to renew
                return node.orders
            node.seq = message.seq
            follows = message.orders_seq > node.followed
            node.followed = max(node.followed, message.orders_seq)
            if node.followed >= node.orders.seq:
                self._told.pop(node.name, None)
            changed = self._take(node, message.holds) or follows
            leases = {
                a.job: self.lease_s for a in node.orders.wanted if (a.job, a.epoch) in node.holds
            }
            if leases:
                node.granted.update((a.job, a.epoch) for a in node.orders.wanted if a.job in leases)
                node.lease_until = now + self.lease_s * (1 + self.rate_bound)
            orders = msgspec.structs.replace(
                node.orders, leases=leases, heartbeat_s=self.heartbeat_s
            )
        if changed:
            self.notice(message.node)
        return orders

    def orders(self, name: str, incarnation: str) -> Orders:
        """The orders of a node as published last, without leases."""
        with self._lock:
            return self._known(name, incarnation).orders

    def _known(self, name: str, incarnation: str) -> LiveNode:
        node = self.nodes.get(name)
        if node is None or node.lost or node.incarnation != incarnation:
            raise StaleError(f"node {name!r}: register again")
        return node

    def _take(self, node: LiveNode, holds: Iterable[Held]) -> bool:
        """Store what the node holds; is there more to it than progress?"""
        now = {(held.job, held.epoch): held for held in holds}
        changed = now.keys() != node.holds.keys()
        for start, held in now.items():
            before = node.holds.get(start)
            changed = changed or before is None or _kind(before) != _kind(held)
        node.holds = now
        return changed

    # --- the driver's calls ------------------------------------------------------------------------

    def add(self, name: str, accelerator: str, devices: int, drained: bool = False) -> LiveNode:
        """A node by configuration, or from an earlier run of the server."""
        with self._lock:
            node = LiveNode(name, accelerator, devices, drained=drained)
            node.waits_until, node.waits_for = self.hold_until, self.hold_reason
            self.nodes[name] = node
            return node

    def hold(self, until: float, reason: str) -> None:
        """Give no node a job before this monotonic time."""
        with self._lock:
            self.hold_until, self.hold_reason = until, reason
            for node in self.nodes.values():
                node.waits_until, node.waits_for = until, reason

    @property
    def is_held(self) -> bool:
        """Is it too early to give any node a job?"""
        return self.monotonic() < self.hold_until

    def remove(self, name: str) -> None:
        """Forget a node."""
        with self._lock:
            del self.nodes[name]

    def register(
        self, message: Register, may_run: Mapping[Start, float] | None = None
    ) -> list[Start]:
        """A node comes up. Returns the starts that it no longer holds of those that it held.

        may_run: the starts that were ordered of it, each with its seconds of grace. If another incarnation
        had the node before, they may run on until its leases and their grace are over, and are ``inherited``
        until then; unless the new one has made sure on the same machine that nothing of the old one lives,
        or no lease was ever granted for them: without one nothing is started."""
        with self._lock:
            node = self.nodes[message.node]
            before = node.incarnation or node.last_incarnation
            if before not in ("", message.incarnation):
                self._supersede(node, before, may_run or {})
            for start, left in list(node.inherited.items()):
                if has_cleared(node, message, left.incarnation):
                    del node.inherited[start]
            node.machine = message.machine
            node.accelerator, node.devices = message.accelerator, message.devices
            node.host, node.fake = message.host, message.fake
            node.incarnation = message.incarnation
            node.seq, node.followed, node.lost = -1, -1, False
            node.seen = self.monotonic()
            held = set(node.holds)
            self._take(node, message.holds)
            return sorted(held - set(node.holds))

    def _supersede(self, node: LiveNode, before: str, may_run: Mapping[Start, float]) -> None:
        """The incarnation ``before`` can renew nothing any more, and what it was ordered is not the new one's
        business."""
        node.superseded[before] = None
        while len(node.superseded) > REMEMBERED:
            del node.superseded[next(iter(node.superseded))]
        ends = max(node.lease_until, 0.0) + self.silence_s
        for start, grace_s in may_run.items():
            if start in node.granted and start not in node.inherited:
                node.inherited[start] = Inherited(before, ends + grace_s)
        node.granted.clear()
        node.wanted, node.forget, node.reasons = {}, set(), {}
        self._publish(node)

    def outlived(self, name: str) -> list[Start]:
        """Inherited starts that cannot live any more; they are so no longer."""
        with self._lock:
            node, now = self.nodes[name], self.monotonic()
            over = [start for start, left in node.inherited.items() if now > left.until]
            for start in over:
                del node.inherited[start]
            return over

    def want(self, name: str, assignment: Assignment) -> None:
        """The node shall hold this, from the next publication on."""
        with self._lock:
            node = self.nodes[name]
            if (assignment.job, assignment.epoch) in node.inherited:
                return  # the node has another agent now, which must not begin it again
            node.wanted[assignment.job] = assignment
            node.reasons.pop(assignment.job, None)
            self._change(node)

    def unwant(self, name: str, job: int, epoch: int, reason: str) -> None:
        """The node shall no longer hold this, from the next publication on."""
        with self._lock:
            node = self.nodes.get(name)
            if node is None or job not in node.wanted or node.wanted[job].epoch != epoch:
                return
            del node.wanted[job]
            node.reasons[job] = reason
            self._change(node)

    def forget(self, name: str, start: Start) -> None:
        """The end of this start is booked."""
        with self._lock:
            node = self.nodes.get(name)
            if node is not None and start in node.holds:
                node.forget.add(start)
                self._change(node)

    def publish(self, told: int | None = None, at_once: int | None = None) -> bool:
        """Make what was wanted and unwanted since then the orders of nodes. Were there any?

        Every node that is told reports soon what came of it. Where a new round has orders for a thousand
        nodes, they are told in turns, those first that have waited longest: of ``at_once`` nodes at most,
        and not while ``told`` have not answered, so that the leases of the others are renewed in between.
        Devices lose nothing by it: jobs run on until told."""
        if not self._changed:
            return False
        now = self.monotonic()
        names = list(itertools.islice(self._changed, self._room(told, now, at_once)))
        for name in names:
            del self._changed[name]
            with self._lock:  # for each anew: reports of other nodes are answered in between
                if name in self.nodes:
                    self._publish(self.nodes[name])
                    self._told[name] = now
        if names:
            self.wake(names)
        return bool(names)

    def _room(self, told: int | None, now: float, at_once: int | None) -> int | None:
        """How many more nodes may be told."""
        if told is None:
            return at_once
        with self._lock:
            for name in [n for n, at in self._told.items() if now - at > DEAF_S]:
                del self._told[name]
            room = max(told - len(self._told), 0)
        return room if at_once is None else min(room, at_once)

    @property
    def unpublished(self) -> bool:
        """Are there nodes with new orders that they have not been told of?"""
        return bool(self._changed)

    def _change(self, node: LiveNode) -> None:
        node.changed = True
        self._changed[node.name] = None

    def _publish(self, node: LiveNode) -> None:
        node.changed = False
        self._seq += 1
        node.forget &= node.holds.keys()
        held = {job for job, _ in node.holds}
        node.reasons = {job: why for job, why in node.reasons.items() if job in held}
        node.orders = Orders(
            seq=self._seq,
            wanted=tuple(node.wanted.values()),
            forget=tuple(node.forget),
            reasons=dict(node.reasons),
        )

    def count_from(self, seq: int) -> None:
        """Number orders from here on: above those of every earlier run of the server."""
        self._seq = seq

    def held(self, name: str, start: Start) -> Held | None:
        """What the node said last of a start of a job."""
        with self._lock:
            node = self.nodes.get(name)
            return None if node is None else node.holds.get(start)

    def ended(self, name: str) -> list[Start]:
        """The starts of which the node says that they have ended."""
        with self._lock:
            node = self.nodes.get(name)
            holds = {} if node is None else node.holds
            return [key for key, held in holds.items() if held.state == "ended"]

    def never_began(self, name: str, start: Start) -> bool:
        """Does the node follow the newest orders and not hold the start? Then it never will: what it wants
        to begin it holds at once, and what it has begun before it does not begin again."""
        with self._lock:
            node = self.nodes.get(name)
            if node is None:
                return True
            if start in node.inherited:
                return False
            follows = not node.changed and node.followed >= node.orders.seq
            return follows and start not in node.holds

    def lose(self, name: str) -> None:
        """The node is lost: it holds nothing that counts, and must register to come back."""
        with self._lock:
            node = self.nodes[name]
            node.lost = True
            node.holds, node.wanted, node.forget, node.reasons = {}, {}, set(), {}
            node.granted.clear()
            node.inherited.clear()
            self._publish(node)  # at once: what it had is given up

    def pardon(self, seconds: float) -> None:
        """Silence in so many seconds just past is nobody's fault but the server's own."""
        with self._lock:
            now = self.monotonic()
            for node in self.nodes.values():
                node.seen = min(now, max(node.seen, node.lease_until) + seconds)

    def silent(self, patience_s: Callable[[LiveNode], float]) -> list[str]:
        """Nodes not heard of for longer than their patience and without a lease in force; from here on
        no lease of theirs is renewed. To be lost by the caller.
        patience_s: seconds behind the end of the leases until the last rank must be dead."""
        now = self.monotonic()
        quiet = [n for n in list(self.nodes.values()) if not n.lost and now > n.quiet_since]
        found = []
        for node in quiet:  # mostly none
            since = now - patience_s(node)
            with self._lock:
                node.lost = since > node.quiet_since
            if node.lost:
                found.append(node.name)
        return found


def has_cleared(node: LiveNode, message: Register, incarnation: str) -> bool:
    """Has the agent that registers made sure that nothing of this incarnation of the node lives? It can only
    where it sees the processes: on the machine on which that one registered."""
    same_machine = node.machine == message.machine != ""
    return same_machine and incarnation in message.cleared


def _kind(held: Held) -> tuple[object, ...]:
    """What of a start the driver must hear of at once; the rest is progress."""
    return (
        held.state,
        held.loaded_step >= 0,
        held.address,
        held.batch,
        held.completed,
        held.finishing,
    )
