"""The nodes as the driver knows them: what each shall hold, and what it said last.

Leases are granted by the front (``front.leases``), which this tells of orders once they are durable, and
which tells this what nodes say. A node is lost only when the front confirms it: what this knows of a node's
silence may be old, since the driver may have stood still itself. Shared by the driver's thread and the one
that listens to the front. Times are monotonic seconds, never wall-clock times.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from fairlead.cluster.front.leases import heartbeat_s
from fairlead.cluster.front.messages import (
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
    Assignment,
    AttemptKey,
    AttemptStatus,
    Orders,
    ParkedAttempt,
    Register,
    StartCheck,
)
from fairlead.cluster.protocol.node_states import silence_s, suspect_after_s
from fairlead.cluster.server.live_node import Hold, Inherited, LiveNode

NodeNotices: TypeAlias = (
    PublishedNode | NodeRemoved | LossQuery | PublishedPosition | SchedulingHalted
)
RETURN_S = 3.0  # for agents to register with a server that was started anew: they try every 2 s
RECONNECT_S = 6.0  # for agents to find a front that was started anew
BROKEN_S = 0.5  # for an agent whose connection broke to come back
_encode = msgspec.msgpack.Encoder().encode


def _ignore(message: NodeNotices) -> None:
    del message


class Fleet:
    """See the module."""

    def __init__(
        self,
        lease_s: float,
        rate_bound: float,
        monotonic: Callable[[], float],
        on_change: Callable[[str], None],
        shortest_s: float = 0.0,
        send_to_front: Callable[[NodeNotices], None] = _ignore,
    ) -> None:
        """on_change: called with a node's name, under no lock, when what it holds has changed in kind;
        shortest_s: between two heartbeats of a node; send_to_front: given what the front shall know."""
        self.lease_s = lease_s
        self.rate_bound = rate_bound
        self.monotonic = monotonic
        self.on_change = on_change
        self.shortest_s = shortest_s
        self.nodes: dict[str, LiveNode] = {}
        self.send_to_front = send_to_front
        self.lock = threading.RLock()
        self.hold = Hold()  # of all nodes
        self._seq = 0
        self._silence_counts_from = 0.0  # monotonic; silence before says nothing about nodes
        self._awaited = 0.0  # the same for those never heard of since the server was started
        self._changed: dict[str, None] = {}  # names of nodes, to be published
        self._round_end = (
            0.0  # monotonic; of the round whose successor is not published yet, 0 = none
        )
        # Nodes that the front has given up, and the driver not yet
        self._lost_by_front: set[str] = set()

    def connect(self, send_to_front: Callable[[NodeNotices], None]) -> None:
        """From now on another front is told what it shall know."""
        self.send_to_front = send_to_front

    @property
    def heartbeat_s(self) -> float:
        """Between two reports of a node that has nothing new to say."""
        return heartbeat_s(len(self.nodes), self.shortest_s, self.lease_s)

    @property
    def silence_s(self) -> float:
        """Return the seconds without a report after which a silence is no accident."""
        return silence_s(self.heartbeat_s)

    # --- what the front says -----------------------------------------------------------------------

    def apply_report(self, message: Reported) -> None:
        """A report of a node."""
        with self.lock:
            node = self.nodes.get(message.node)
            if node is None or node.lost or node.agent.incarnation != message.incarnation:
                return
            node.observed.seen = max(node.observed.seen, message.seen)
            node.leases.until = max(node.leases.until, message.lease_until)
            node.leases.granted.update(message.granted)
            if message.seq < node.observed.seq:  # from before the front was started anew
                return
            node.observed.receive(message)
            node.health.receive(message)
            recovered, node.suspect = node.suspect, False
            node.agent.ending = message.ending
            node.agent.left_s = (node.agent.left_s or time.time()) if message.leaving else 0.0
        if message.changed or recovered:
            self.on_change(message.node)

    def apply_renewal(self, message: NodeRenewal) -> None:
        """Take over whether the front has given up a node, and what it has granted it."""
        with self.lock:
            node = self.nodes.get(message.node)
            if node is None:
                return
            if message.anew:
                self._prolong(node, message.lease_until)
                node.agent.settled = max(node.agent.settled, message.registration)
            node.leases.until = max(node.leases.until, message.lease_until)
            if message.registration == node.agent.registration and not node.lost:
                node.observed.seen = max(node.observed.seen, message.seen)
                node.observed.broke = max(node.observed.broke, message.broke)
                node.leases.granted.update(message.granted)
                node.leases.in_force = max(node.leases.in_force, message.orders_seq)
                if message.lost:
                    self._lost_by_front.add(node.name)

    def again(self) -> list[PublishedNode]:
        """All that was published, for a front that was started anew. The one before it may have granted
        leases up to the moment of its death."""
        until = self.monotonic() + self.lease_s * (1 + self.rate_bound)
        self._silence_counts_from = self.monotonic() + RECONNECT_S
        with self.lock:
            for node in self.nodes.values():
                node.leases.in_force = -1
                if node.registered:
                    self._prolong(node, until)
                if (
                    node.desired.sent is not None
                    and node.desired.sent.registration == node.agent.registration
                ):
                    node.leases.granted.update(node.desired.sent.starts)
            return [
                msgspec.structs.replace(
                    n.desired.sent, seen=n.observed.seen, lease_until=n.leases.until, round_end=0.0
                )
                for n in self.nodes.values()
                if n.desired.sent is not None
            ]

    def _prolong(self, node: LiveNode, until: float) -> None:
        """A node may have leases until then. If another agent has taken it over and the front did not know
        that yet, they were those of the one before."""
        later_s = max(until - node.leases.until, 0.0)
        node.leases.until += later_s
        if node.agent.settled < node.agent.registration:
            node.agent.prolong(later_s)

    # --- the driver's calls ------------------------------------------------------------------------

    def add(self, name: str, accelerator: str, devices: int, drained: bool = False) -> LiveNode:
        """A node by configuration, or from an earlier run of the server."""
        with self.lock:
            node = LiveNode(name, accelerator, devices, drained=drained)
            node.hold = self.hold
            self.nodes[name] = node
            self._changed[name] = None
            return node

    def hold_all(self, hold: Hold) -> None:
        """Give no node a job until then."""
        with self.lock:
            self.hold = hold
            for node in self.nodes.values():
                node.hold = hold

    @property
    def is_on_hold(self) -> bool:
        """Return whether it is too early to give any node a job."""
        return self.monotonic() < self.hold.until

    def remove(self, name: str) -> None:
        """Forget a node."""
        with self.lock:
            del self.nodes[name]
            self._changed[name] = None

    def register(
        self, message: Register, may_run: Mapping[AttemptKey, float] | None = None
    ) -> list[AttemptKey]:
        """A node comes up. Returns the starts that it no longer holds of those that it held.

        may_run: the starts that were ordered of it, each with its seconds of grace. If another incarnation
        had the node before, they may run on until its leases and their grace are over, and are ``inherited``
        until then; unless the new one has made sure on the same machine that nothing of the old one lives,
        or no lease was ever granted for them: without one nothing is started."""
        with self.lock:
            node = self.nodes[message.node]
            before = node.agent.newest
            if before not in ("", message.incarnation):
                self._supersede(node, before, may_run or {})
            node.agent.drop_cleared(message)
            node.agent.machine = message.machine
            node.accelerator, node.devices = message.accelerator, message.devices
            node.host, node.simulated_devices = message.host, message.simulated_devices
            node.runs_as = message.runs_as
            node.agent.incarnation, node.agent.ending = message.incarnation, message.ending
            node.agent.registration += 1
            node.agent.ends_s = time.time() + message.ends_in_s if message.ends_in_s >= 0 else 0.0
            node.observed.seq = node.observed.followed = -1
            node.lost = node.suspect = False
            node.observed.seen, node.agent.left_s = self.monotonic(), 0.0
            known = set(node.observed.holds)
            node.observed.register(message)
            self._lost_by_front.discard(node.name)
            self._changed[node.name] = None
            return sorted(known - set(node.observed.holds))

    def _supersede(self, node: LiveNode, before: str, may_run: Mapping[AttemptKey, float]) -> None:
        """Supersede the incarnation ``before``: its orders are not the new one's business.
        Once published, it can renew nothing any more; the front then says what it has renewed until then."""
        node.agent.supersede(before)
        ends = max(node.leases.until, 0.0) + self.silence_s
        for key, grace_s in may_run.items():
            if key in node.leases.granted and key not in node.agent.inherited:
                node.agent.inherited[key] = Inherited(before, ends + grace_s)
        node.leases.granted.clear()
        node.desired.clear()
        self._renew_orders(node)

    def drop_expired(self, name: str) -> list[AttemptKey]:
        """Inherited starts that cannot live any more; they are so no longer."""
        with self.lock:
            return self.nodes[name].agent.drop_expired(self.monotonic())

    def mark_changed(self, name: str) -> None:
        """The front shall hear of a node, with the next publication."""
        with self.lock:
            self._changed[name] = None

    def desire(self, name: str, assignment: Assignment) -> None:
        """The node shall hold this, from the next publication on. One that is forgotten holds nothing."""
        with self.lock:
            node = self.nodes.get(name)
            if node is None:
                return
            if (assignment.job, assignment.attempt) in node.agent.inherited:
                return  # the node has another agent now, which must not begin it again
            node.desired.desire(assignment)
            self._changed[name] = None

    def revoke(self, name: str, job: int, attempt: int, reason: str) -> None:
        """The node shall no longer hold this, from the next publication on."""
        with self.lock:
            node = self.nodes.get(name)
            if node is not None and node.desired.revoke(job, attempt, reason):
                self._changed[name] = None

    def forget(self, name: str, key: AttemptKey) -> None:
        """The end of this attempt is booked."""
        with self.lock:
            node = self.nodes.get(name)
            if node is not None and key in node.observed.holds:
                node.leases.granted.discard(key)
                node.desired.forget_end(key)
                self._changed[name] = None

    def publish(self) -> set[str]:
        """Tell the front what has changed since then, which is durable by now. Returns names of nodes."""
        if not self._changed:
            return set()
        with self.lock:
            names, self._changed = list(self._changed), {}
        for name in names:
            with self.lock:  # for each anew: reports of other nodes are taken in between
                node = self.nodes.get(name)
                if node is None:
                    self.send_to_front(NodeRemoved(node=name))
                else:
                    self._publish(node)
        self._round_end = 0.0
        return set(names)

    def round_ended(self) -> None:
        """Note that a round has ended: what is published next follows from that."""
        self._round_end = self.monotonic()

    @property
    def is_deciding(self) -> bool:
        """Return whether a round has ended whose successor is not published yet."""
        return bool(self._round_end)

    @property
    def unpublished(self) -> bool:
        """Return whether the front has yet to be sent what has changed of some nodes."""
        return bool(self._changed)

    def _publish(self, node: LiveNode) -> None:
        pushed = node.desired.changed
        if node.desired.changed or node.desired.forgets:
            self._renew_orders(node)
        orders = node.desired.published
        node.desired.sent = PublishedNode(
            node=node.name,
            incarnation=node.agent.incarnation,
            registration=node.agent.registration,
            lost=node.lost,
            orders=PublishedOrders(
                seq=orders.seq,
                desired=msgspec.Raw(_encode(orders.desired)),
                forget=msgspec.Raw(_encode(orders.forget)),
                reasons=msgspec.Raw(_encode(orders.reasons)),
                unpark=msgspec.Raw(_encode(orders.unpark)),
                check=node.desired.check,
            ),
            starts=tuple((a.job, a.attempt) for a in orders.desired),
            push=pushed,
            round_end=self._round_end if pushed else 0.0,
            seen=node.observed.seen,
            lease_until=node.leases.until,
            token_hash=node.agent.token_hash,
            revoked=node.agent.revoked,
        )
        self.send_to_front(node.desired.sent)

    def _renew_orders(self, node: LiveNode) -> None:
        self._seq += 1
        node.desired.renew(self._seq, node.observed.holds)

    def set_order_seq(self, seq: int) -> None:
        """Number orders from here on: above those of every earlier run of the server."""
        self._seq = seq

    def orders(self, name: str) -> Orders:
        """The orders of a node as published last, without leases."""
        with self.lock:
            return self.nodes[name].desired.published

    def status(self, name: str, key: AttemptKey) -> AttemptStatus | None:
        """Return the last status of an attempt of a job from the node; None = there is none."""
        return self.holds(name).get(key)

    def report_age_s(self, name: str) -> float:
        """Seconds since the node was heard of last; 0 where it never was."""
        node = self.nodes.get(name)
        seen = 0.0 if node is None else node.observed.seen
        return max(self.monotonic() - seen, 0.0) if seen else 0.0

    def holds(self, name: str) -> Mapping[AttemptKey, AttemptStatus]:
        """Return key -> status of what the node said last it holds; a later report is another mapping."""
        with self.lock:
            node = self.nodes.get(name)
            return {} if node is None else node.observed.holds

    def parked(self, name: str) -> Mapping[AttemptKey, ParkedAttempt]:
        """Return what the node said last that is parked there."""
        with self.lock:
            return self.nodes[name].observed.parked

    def unpark(self, name: str, keys: set[AttemptKey]) -> None:
        """These, of all that is parked on the node, are of no use any more."""
        with self.lock:
            node = self.nodes[name]
            if node.desired.unpark != keys:
                node.desired.unpark, node.desired.forgets = keys, True
                self._changed[name] = None

    def ended(self, name: str) -> list[AttemptKey]:
        """The starts of which the node says that they have ended."""
        return [key for key, status in self.holds(name).items() if status.state == "ended"]

    def will_never_begin(self, name: str, key: AttemptKey) -> bool:
        """Return whether the node follows the newest orders and does not hold the attempt. Then it never
        will: it holds at once what it is about to begin, and never begins again what it has begun before."""
        with self.lock:
            node = self.nodes.get(name)
            if node is None:
                return True
            if key in node.agent.inherited:
                return False
            follows = not node.desired.changed and node.observed.followed >= node.desired.decisive
            return follows and key not in node.observed.holds

    def ask_check(self, name: str, check: StartCheck | None) -> None:
        """The node shall make a test start; None: it need not."""
        with self.lock:
            self.nodes[name].desired.check = check
            self._changed[name] = None

    def cannot_begin(self, name: str, key: AttemptKey) -> bool:
        """Return whether an attempt whose order was withdrawn is known not to run, now or later. Nothing
        starts without a lease, and the front grants one only for orders that it knows. The front is asked
        until it confirms."""
        with self.lock:
            node = self.nodes.get(name)
            if node is None:
                return True
            wanted = {
                (a.job, a.attempt)
                for a in (*node.desired.published.desired, *node.desired.desired.values())
            }
            if key in wanted or key in node.leases.granted or name in self._changed:
                return False
            if node.leases.in_force >= node.desired.published.seq:
                return True
            self.send_to_front(
                LossQuery(node=name, registration=node.agent.registration, timeout_s=math.inf)
            )
            return False

    def reset_silence(self) -> None:
        """Until now, what nodes said may not have been heard here: silence counts anew."""
        self._silence_counts_from = max(self._silence_counts_from, self.monotonic())

    def await_reports(self, seconds: float) -> None:
        """Agents get so long to find this server, before the silence of their nodes counts."""
        self._awaited = self.monotonic() + seconds

    def silent_for_s(self, node: LiveNode) -> float:
        """Seconds for which a node could have been heard, and was not; below 0 while that is too early."""
        return self.monotonic() - (node.observed.seen or self._awaited)

    def front_lost(self) -> None:
        """Nodes are not heard until there is a front again, and agents have found it."""
        self._silence_counts_from = math.inf

    def find_suspects(self) -> None:
        """Mark nodes that have been silent for two heartbeats, or whose connection broke."""
        now = self.monotonic()
        limit_s = suspect_after_s(self.heartbeat_s)
        for node in list(self.nodes.values()):
            last_s = max(node.observed.seen, self._silence_counts_from)
            broke = node.observed.broke > last_s and now - node.observed.broke > BROKEN_S
            silent = broke or now - last_s > limit_s
            if silent and node.registered and not node.agent.left_s:  # else its silence is in order
                node.suspect = True

    def mark_lost(self, name: str) -> None:
        """The node is lost: it holds nothing that counts, and must register to come back."""
        with self.lock:
            node = self.nodes[name]
            node.lost = True
            node.observed.clear()
            node.desired.clear()
            node.leases.granted.clear()
            node.agent.inherited.clear()
            self._lost_by_front.discard(name)
            node.desired.changed = True
            self._changed.pop(name, None)
            self._publish(node)  # at once: what it had is given up

    def silent(self, timeout_s: Callable[[LiveNode], float]) -> list[str]:
        """Nodes that the front has given up since the last call: not heard of for longer than their
        patience, and without a lease in force. To be lost by the caller. Those that seem so are asked for.
        patience_s: seconds behind the end of the leases until the last rank must be dead."""
        now = self.monotonic()
        with self.lock:
            found, self._lost_by_front = sorted(self._lost_by_front), set()
            for name in found:
                self.nodes[name].lost = True
        for node in list(self.nodes.values()):
            if node.lost or now <= node.idle_since:  # mostly so
                continue
            if not node.observed.seen and now <= self._awaited:
                continue
            limit_s = timeout_s(node)
            if now - limit_s > node.idle_since:
                self.send_to_front(
                    LossQuery(
                        node=node.name, registration=node.agent.registration, timeout_s=limit_s
                    )
                )
        return found
