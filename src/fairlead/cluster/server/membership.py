"""Which nodes there are, and which of them may be used."""

import time
from typing import TYPE_CHECKING

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.messages import Register, Welcome
from fairlead.cluster.server.detained import Detained
from fairlead.cluster.server.fleet import LiveNode, has_cleared
from fairlead.cluster.server.node_recovery import NodeRecovery
from fairlead.cluster.server.node_watch import NodeWatch
from fairlead.cluster.server.restored import learn_jobs
from fairlead.cluster.store.rows import NodeRow
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from fairlead.cluster.server.server_loop import ServerLoop


class Membership:
    """Part of the engine, on the driver's thread (through ``ServerLoop.call``)."""

    def __init__(self, engine: "ServerLoop") -> None:
        self.engine = engine
        self.detained = Detained(engine)
        self.recovery = NodeRecovery(engine)
        self.watch = NodeWatch(engine, self.detained, self.recovery)

    def register(self, message: Register) -> Welcome:
        """A node comes up, or back."""
        name, fleet, backend = message.node, self.engine.fleet, self.engine.backend
        self._check_node(message)
        if name in fleet.nodes:
            self._check_alone(fleet.nodes[name], message)
        node = fleet.nodes.get(name) or fleet.add(name, message.accelerator, message.devices)
        if (node.accelerator, node.devices) != (message.accelerator, message.devices) or (
            self.engine.setup is None
            or name not in {n.name for n in self.engine.setup.cluster.nodes}
        ):
            self.engine.rebuild()
        same = message.incarnation in (node.incarnation, node.last_incarnation)
        learn_jobs(self.engine, message)
        backend.hear(name)
        held = {(h.job, h.epoch) for h in message.holds}
        starts = [s for s in backend.book.on_node.get(name, {}).values() if s.key not in held]
        starts = [s for s in starts if s.ordered and name not in s.gone and not same]
        fleet.register(message, {s.key: s.row.spec.longest_grace_s for s in starts})
        over = [s for s in starts if s.key not in node.inherited]
        backend.abandon(name, over, "the agent restarted")
        left = [s for s in starts if s.key in node.inherited]
        backend.doom(left, f"another agent has taken over the name {name!r} of its node", name)
        self.keep_node(node)
        self.watch.settle(node)
        backend.noticed.add(name)
        return Welcome(
            heartbeat_s=fleet.heartbeat_s,
            lease_s=self.engine.options.lease_s,
            rate_bound=self.engine.options.rate_bound,
            orders=node.orders,
            wait_s=self._wait_s(node),
            wall_s=time.time(),
        )

    def _wait_s(self, node: LiveNode) -> float:
        """Seconds until nothing of earlier agents of the node can live."""
        until = max((left.until for left in node.inherited.values()), default=0.0)
        return max(until - self.engine.fleet.monotonic(), 0.0)

    def _check_alone(self, node: LiveNode, message: Register) -> None:
        """Raises ConfigError for another agent than the one that holds the node and is alive. An agent that
        was started anew has the same state directory, hence the same first part of its incarnation."""
        if message.incarnation in node.superseded:
            raise ConfigError(
                f"node {node.name!r}: another agent has registered under this name since"
            )
        theirs, mine = node.incarnation.split(".")[0], message.incarnation.split(".")[0]
        fleet = self.engine.fleet
        if has_cleared(node, message, node.incarnation):
            return
        if node.registered and theirs != mine and fleet.monotonic() - node.seen < fleet.silence_s:
            raise ConfigError(f"node {node.name!r}: another agent has this name, and is alive")

    def _check_node(self, message: Register) -> None:
        """Raises ConfigError for a node that is not as the cluster file has it."""
        if self.engine.options.nodes is None:
            return
        named = {node.name: node for node in self.engine.options.nodes}
        node = named.get(message.node)
        if node is None:
            raise ConfigError(f"node {message.node!r}: is not in the cluster file")
        if (node.accelerator, node.devices) != (message.accelerator, message.devices):
            raise ConfigError(
                f"node {message.node!r}: the cluster file says {node.accelerator}={node.devices}, "
                f"the agent {message.accelerator}={message.devices}"
            )

    def keep_node(self, node: LiveNode) -> None:
        """Have what must outlive the server written with the next commit."""
        row = NodeRow(
            name=node.name,
            accelerator=node.accelerator,
            devices=node.devices,
            host=node.host,
            simulated_devices=node.simulated_devices,
            drained=node.drained,
            incarnation=node.incarnation or node.last_incarnation,
            cordoned=node.cordoned,
            machine=node.machine,
            superseded=tuple(node.superseded),
            inherited=tuple((*start, left.incarnation) for start, left in node.inherited.items()),
        )
        self.engine.write(lambda t: t.put_node(row))

    def drain(self, name: str, drained: bool) -> None:
        """Jobs leave a node, saved, and none comes to it; or it takes jobs again."""
        node = self.engine.fleet.nodes[name]
        node.drained = drained
        if not drained:
            node.cordoned = ""  # whoever takes it back into use takes it back from everybody
            self.recovery.trust(node)
        self.keep_node(node)
        if drained:
            self.engine.backend.disable(name)
        self.watch.settle(node)

    def cordon(self, name: str, reason: str) -> None:
        """Give a node no more jobs, for the node's own sake; those that run there run on. It is put back when
        it has passed a recovery test, or by hand (``uncordon``). reason: a sentence without a full stop."""
        node = self.engine.fleet.nodes[name]
        if node.cordoned != reason:
            node.cordoned = reason
            self.keep_node(node)
            self.watch.settle(node)

    def uncordon(self, name: str) -> None:
        """Whatever the node was cordoned for is over."""
        node = self.engine.fleet.nodes[name]
        if node.cordoned:
            node.cordoned = ""
            self.keep_node(node)
            self.watch.settle(node)

    def remove(self, name: str) -> None:
        """Forget a node that nothing runs on."""
        node = self.engine.fleet.nodes[name]
        if not (node.drained or node.lost) or self.engine.book.on_node.get(name):
            raise ConflictError(f"node {name!r}: is in use; drain it first, and wait for its jobs")
        if len(self.engine.fleet.nodes) == 1:
            raise ConflictError(f"node {name!r}: is the last one of the cluster")
        if self.engine.options.nodes is not None:
            raise ConflictError(f"node {name!r}: is in the cluster file; take it out there")
        self.engine.fleet.remove(name)
        self.engine.backend.lost_nodes.discard(name)
        self.engine.write(lambda t: t.delete_node(name))
        self.engine.rebuild()
