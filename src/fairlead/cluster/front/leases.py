"""The leases of all nodes: who holds them, what each shall hold, and until when it may.

The front alone grants leases, so it alone can say that a node has none. Everything here is called on one
thread. Times are monotonic seconds, which all processes of a machine share; never wall-clock times.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import msgspec

from fairlead.cluster.front.messages import (
    NIL,
    LossQuery,
    NodeRemoved,
    NodeRenewal,
    PublishedNode,
    PublishedOrders,
    PublishedPosition,
    Reported,
    SchedulingHalted,
)
from fairlead.cluster.protocol.messages import (
    AttemptKey,
    AttemptStatus,
    NodeReport,
    Register,
)
from fairlead.errors import StaleError

RENEWALS = 250.0  # reports a second, of all nodes, that heartbeats alone shall bring at most
NEWS = 1000.0  # reports a second, of all nodes, that news shall bring at most
NO_ORDERS = PublishedOrders()
# Without a look for so long: this process itself was away (frozen, swapped out)
FRONT_STALL_S = 2.0
MAX_OLD = (
    3  # reports older than one before, after which an agent registers again: before its leases end
)
WARN_S = 600.0  # between two warnings of that, of a node
_log = logging.getLogger(__name__)


def heartbeat_s(nodes: int, shortest_s: float, lease_s: float) -> float:
    """Between two reports of a node that has nothing new to say. Longer where there are many nodes, so
    that the server's time goes to what is new; a lease always sees four of them."""
    return max(shortest_s, min(nodes / RENEWALS, lease_s / 4))


@dataclass(slots=True)
class LeasedNode:
    """A node. ``seen`` and ``lease_until`` are 0 before the first report to this server."""

    name: str
    incarnation: str = ""
    registration: int = -1
    lost: bool = False
    orders: PublishedOrders = NO_ORDERS
    starts: frozenset[AttemptKey] = frozenset()  # wanted
    seq: int = -1  # of its newest report
    followed: int = -1  # the newest orders that it says it follows
    awaited: tuple[int, float] | None = None  # orders of a round, not followed yet, and its end
    answered: int = -1  # the newest orders that went out with the answer to a report
    seen: float = 0.0
    lease_until: float = 0.0  # every lease that it was granted is over by then
    granted: set[AttemptKey] = field(default_factory=set)  # starts that ever got a lease
    statuses: tuple[AttemptStatus, ...] = ()  # all that it holds, as it said last
    # What it said last of problems, of test starts, and of its agent's end
    health: tuple[object, ...] = ((), (), 0)
    # Reports older than one before: since when they are counted, how many were newer than each other, the
    # last one, and when that may be told again
    old_since: float = -inf
    old: int = 0
    old_seq: int = -1
    warn_from: float = -inf
    contested: int = 0  # registrations of another incarnation that are being decided
    holds: dict[AttemptKey, tuple[object, ...]] = field(default_factory=dict)  # without progress

    @property
    def idle_since(self) -> float:
        """Return since when the node has neither reported nor had a lease."""
        return max(self.seen, self.lease_until)


class LeaseTable:
    """See the module. ``text`` is called with the names of nodes that have orders worth pushing."""

    def __init__(
        self,
        lease_s: float,
        rate_bound: float,
        monotonic: Callable[[], float],
        forward: Callable[[Reported | NodeRenewal], None],
        shortest_s: float = 0.0,
    ) -> None:
        """forward: is given what the driver should hear of; shortest_s: between heartbeats of a node."""
        self.lease_s = lease_s
        self.rate_bound = rate_bound
        self.monotonic = monotonic
        self.forward = forward
        self.shortest_s = shortest_s
        self.nodes: dict[str, LeasedNode] = {}
        self.on_orders: Callable[[str], None] = _ignore
        self.is_pushing: Callable[[], bool] = bool  # do nodes wait to be told of orders?
        self.followed_s: Callable[[float], object] = _ignore_seconds  # from a round's end
        self.halted = ""  # why all stays as it is on every node; "" = it need not
        self.halted_run = ""  # of the server that did
        self._position = NIL  # of the state, as agents shall remember it
        self._looked = monotonic()

    @property
    def heartbeat_s(self) -> float:
        """Between two reports of a node that has nothing new to say."""
        return heartbeat_s(len(self.nodes), self.shortest_s, self.lease_s)

    # --- what agents say ---------------------------------------------------------------------------

    def report(self, message: NodeReport) -> PublishedOrders:
        """The orders of a node, with its leases renewed. Raises StaleError."""
        self.poll()
        if self.halted:
            return self._as_it_is(message)
        node = self.known(message.node, message.incarnation)
        now = self.monotonic()
        node.seen = now
        if message.seq <= node.seq:  # late or doubled: nothing new, and nothing to renew
            self._note_old(node, message.seq)
            return node.orders
        node.seq = message.seq
        follows = message.orders_seq > node.followed
        node.followed = max(node.followed, message.orders_seq)
        if node.awaited is not None and node.followed >= node.awaited[0]:
            self.followed_s(now - node.awaited[1])
            node.awaited = None
        node.answered = node.orders.seq
        changed = self._take(node, message.holds) or follows or message.leaving
        health = (
            message.health_known,
            message.problems,
            message.dead,
            message.checked,
            message.ending,
            tuple((one.job, one.attempt) for one in message.parked),
        )
        changed, node.health = changed or health != node.health, health
        leases = self._renew(node)
        if leases:
            until = now + self.lease_s * (1 + self.rate_bound)
            node.lease_until = max(node.lease_until, until)  # an agent shortens none
        self.forward(
            Reported(
                node=node.name,
                incarnation=node.incarnation,
                seq=node.seq,
                followed=node.followed,
                seen=now,
                lease_until=node.lease_until,
                changed=changed,
                granted=tuple(node.granted),
                problems=message.problems,
                dead=message.dead,
                checked=message.checked,
                check_problem=message.check_problem,
                health_known=message.health_known,
                ending=message.ending,
                leaving=message.leaving,
                report=msgspec.Raw(msgspec.msgpack.encode(message)),
            )
        )
        return msgspec.structs.replace(
            node.orders,
            leases=leases,
            heartbeat_s=self.heartbeat_s,
            gap_s=self._gap_s(),
            position=self._position,
        )

    def _note_old(self, node: LeasedNode, seq: int) -> None:
        """A report is older than one that came before. Raises StaleError where they go on coming, and are
        newer than each other: then this is the agent, which counts on by ones, and what came before was said
        by another in its name, or by itself before its clock or memory was set back."""
        now = self.monotonic()
        if now - node.old_since > MAX_OLD * 2 * max(self.heartbeat_s, 1.0):
            node.old_since, node.old = now, 0
        node.old += seq > node.old_seq
        node.old_seq = seq
        if node.old < MAX_OLD:
            return
        node.old = 0
        if now >= node.warn_from:
            node.warn_from = now + WARN_S
            _log.warning(
                "node %s: its agent's reports are older than one that came before, so it registers again; if "
                "nobody has started a second agent of this name, its token is known to somebody: "
                "fairlead revoke-node %s",
                node.name,
                node.name,
            )
        raise StaleError(
            f"node {node.name!r}: reports of it are older than another: register again"
        )

    def _as_it_is(self, message: NodeReport) -> PublishedOrders:
        """Leases for all that a node runs, also what this server does not know, and no other orders. The
        agent takes none for what has lost its lease."""
        leases = {leased.job: self.lease_s for leased in message.holds if leased.state != "ended"}
        return PublishedOrders(
            halted=self.halted,
            halted_run=self.halted_run,
            leases=leases,
            heartbeat_s=self.heartbeat_s,
        )

    def _gap_s(self) -> float:
        """Between two reports with news of a node's own. While others wait for orders these go first, or in a
        cluster of thousands of nodes their reports would hold up the orders."""
        return min(len(self.nodes) / NEWS, self.heartbeat_s / (1 if self.is_pushing() else 4))

    def _renew(self, node: LeasedNode) -> dict[int, float]:
        """Job -> seconds of its lease. While another agent registers under the name, whoever decides on that
        knows what was ever granted: nothing is granted for the first time."""
        leased = [start for start in node.starts if start in node.holds]
        if node.contested:
            leased = [start for start in leased if start in node.granted]
        node.granted.update(leased)
        return {job: self.lease_s for job, _ in leased}

    def begin_contest(self, message: Register) -> bool:
        """An agent registers. Returns whether the node is another one's, until ``end_contest``."""
        node = self.nodes.get(message.node)
        if node is None or not node.incarnation or node.incarnation == message.incarnation:
            return False
        node.contested += 1
        return True

    def end_contest(self, name: str) -> None:
        """That is decided."""
        node = self.nodes.get(name)
        if node is not None:
            node.contested = max(node.contested - 1, 0)

    def known(self, name: str, incarnation: str) -> LeasedNode:
        """The node, if this is its incarnation. Raises StaleError."""
        node = self.nodes.get(name)
        if node is None or node.lost or not incarnation or node.incarnation != incarnation:
            raise StaleError(f"node {name!r}: register again")
        return node

    def _take(self, node: LeasedNode, holds: tuple[AttemptStatus, ...]) -> bool:
        """Store what the node holds. Returns whether more than progress has changed."""
        node.statuses = holds
        before, node.holds = node.holds, {(h.job, h.attempt): _without_progress(h) for h in holds}
        return before != node.holds

    # --- what the driver says ----------------------------------------------------------------------

    def publish(self, state: PublishedNode) -> NodeRenewal | None:
        """The node as the driver has it. Returns what it was granted before a new registration."""
        node = self.nodes.get(state.node)
        if node is None:
            node = self.nodes[state.node] = LeasedNode(state.node)
        anew = state.registration > node.registration
        if anew:
            if node.incarnation != state.incarnation:
                node.granted.clear()
            node.registration, node.incarnation = state.registration, state.incarnation
            node.seq, node.followed, node.answered, node.lost = -1, -1, -1, False
            node.holds = {}
        node.lost = node.lost or state.lost  # until it registers again
        node.seen = max(node.seen, state.seen)
        node.lease_until = max(node.lease_until, state.lease_until)
        newer = state.orders.seq > node.orders.seq
        node.orders, node.starts = state.orders, frozenset(state.starts)
        if newer and state.round_end:
            node.awaited = state.orders.seq, state.round_end
        node.granted &= node.starts | node.holds.keys()
        if newer and state.push:
            self.on_orders(node.name)
        return _renewal(node, anew=True) if anew else None

    def disconnected(self, name: str, incarnation: str) -> None:
        """A stream of orders to an agent broke; one that lives comes back at once."""
        node = self.nodes.get(name)
        if node is not None and node.incarnation == incarnation and not node.lost:
            self.forward(_renewal(node, broke=self.monotonic()))

    def move(self, message: PublishedPosition) -> None:
        """The state has come so far."""
        self._position = msgspec.Raw(msgspec.msgpack.encode(message.position))

    def halt(self, message: SchedulingHalted) -> None:
        """Agents are given no orders any more but to leave all as it is."""
        self.halted, self.halted_run = message.reason, message.run_id

    def remove(self, message: NodeRemoved) -> None:
        """Forget a node."""
        self.nodes.pop(message.node, None)

    def ask_loss(self, asked: LossQuery) -> NodeRenewal | None:
        """Decide whether the driver may give up this node; if so, its lease is not renewed any more. Returns
        None if the node has registered again or is not there."""
        self.poll()
        node = self.nodes.get(asked.node)
        if node is None or node.registration != asked.registration:
            return None
        node.lost = node.lost or self.monotonic() - asked.timeout_s > node.idle_since
        return _renewal(node)

    # --- time --------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Called often. Where that was not so, this process stood still: the silence was its own."""
        now = self.monotonic()
        away_s, self._looked = now - self._looked, now
        if away_s > FRONT_STALL_S:
            self.extend_deadlines(away_s)

    def extend_deadlines(self, seconds: float) -> None:
        """Silence in so many seconds just past is no node's fault."""
        now = self.monotonic()
        for node in self.nodes.values():
            node.seen = min(now, node.idle_since + seconds)


def _without_progress(leased: AttemptStatus) -> tuple[object, ...]:
    """Return the parts of an attempt's status of which the driver must hear at once."""
    return (
        leased.state,
        leased.state == "starting" and bool(leased.reason),  # it waits for another to leave
        leased.loaded_step >= 0,
        leased.address,
        leased.batch,
        leased.completed,
        leased.finishing,
        leased.released,
        leased.directory_problem,
        leased.stall,
        leased.stacks,
    )


def _renewal(node: LeasedNode, anew: bool = False, broke: float = 0.0) -> NodeRenewal:
    return NodeRenewal(
        node=node.name,
        registration=node.registration,
        lost=node.lost,
        seen=node.seen,
        lease_until=node.lease_until,
        anew=anew,
        broke=broke,
        orders_seq=node.orders.seq,
        granted=tuple(node.granted),
    )


def _ignore(name: str) -> None:
    del name


def _ignore_seconds(seconds: float) -> None:
    del seconds
