"""Nodes in and out of service: what the core may use, and what of a node is kept."""

import logging

from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_node import LiveNode
from fairlead.cluster.server.node_condition import condition
from fairlead.cluster.server.node_recovery import NodeRecovery
from fairlead.cluster.store.rows import NodeRow

_log = logging.getLogger(__name__)


class NodeService:
    """On the driver's thread."""

    def __init__(self, state: ClusterState, recovery: NodeRecovery) -> None:
        self._state = state
        self.recovery = recovery
        self._left: set[str] = set()  # nodes whose agents are noted to have ended in order

    def keep(self, node: LiveNode) -> None:
        """Have what must outlive the server written with the next commit."""
        row = NodeRow(
            name=node.name,
            accelerator=node.accelerator,
            devices=node.devices,
            host=node.host,
            simulated_devices=node.simulated_devices,
            runs_as=node.runs_as,
            drained=node.drained,
            incarnation=node.agent.newest,
            cordoned=node.health.cordoned,
            machine=node.agent.machine,
            left_s=node.agent.left_s,
            superseded=tuple(node.agent.superseded),
            inherited=tuple((*key, left.incarnation) for key, left in node.agent.inherited.items()),
            token_hash=node.agent.token_hash,
            revoked=node.agent.revoked,
            ends_s=node.agent.ends_s,
        )
        self._state.write(lambda t: t.put_node(row))

    def drain(self, name: str, drained: bool) -> None:
        """Jobs leave a node, saved, and none comes to it; or it takes jobs again."""
        node = self._state.fleet.nodes[name]
        node.drained = drained
        if not drained:
            node.health.cordoned = ""  # whoever takes it back into use takes it back from everybody
            node.agent.revoked = False
            self._state.fleet.mark_changed(name)
            self.recovery.trust(node)
        self.keep(node)
        if drained:
            self._state.disable(name)
        self.settle(node)

    def cordon(self, name: str, reason: str) -> None:
        """Give a node no more jobs, for the node's own sake; those that run there run on. It is put back when
        it has passed a recovery test, or by hand (``uncordon``). reason: a sentence without a full stop."""
        node = self._state.fleet.nodes[name]
        if node.health.cordoned != reason:
            node.health.cordoned = reason
            self.keep(node)
            self.settle(node)

    def uncordon(self, name: str) -> None:
        """Whatever the node was cordoned for is over."""
        node = self._state.fleet.nodes[name]
        if node.health.cordoned:
            node.health.cordoned = ""
            self.keep(node)
            self.settle(node)

    def settle(self, node: LiveNode, deciding: bool = False) -> None:
        """Note the state of a node, and let the core use it or not, as that says. Of one that has just become
        suspect the core is told when it decides, so that a hiccup costs nothing; at once if it is silent for
        too long for that, or was given a job that it cannot have begun."""
        if self.recovery.poll(node):
            node.health.cordoned = ""
            self.keep(node)
        self._note_leaving(node)
        state = self._state
        now = state.fleet.monotonic()
        current = condition(node, now)
        if current.state != node.health.noted:
            node.health.noted, node.health.state_since = current.state, now
            state.changed_nodes.add(node.name)
            why = f": {current.reason}" if current.reason else ""
            _log.info("node %s is %s%s", node.name, current.state, why)
            if current.state == "up":
                state.drop_reasons(node.name)
        if current.state == "up":
            state.enable(node.name)
        elif (node.registered or node.suspect) and (
            current.state != "suspect" or deciding or self._must_report(node)
        ):
            state.disable(node.name)  # of a lost one it has been told

    def _note_leaving(self, node: LiveNode) -> None:
        """An agent that ended in order is known to have done so also by the server after this one."""
        if not node.agent.left_s:
            self._left.discard(node.name)
        elif node.name not in self._left:
            self._left.add(node.name)
            self.keep(node)

    def obstructed(self, node: str, job: int, obstacle: str) -> None:
        """A node says what of it keeps an attempt from beginning there; "" = nothing any more."""
        self._state.changed_nodes.add(node)
        if obstacle:
            _log.warning("node %s cannot start job %d: %s", node, job, obstacle)

    def _must_report(self, node: LiveNode) -> bool:
        """Return whether the core must hear of a suspect node before its next decision."""
        silent_s = self._state.fleet.silent_for_s(node)
        if self._state.round is None or silent_s > self._state.fleet.silence_s:
            return True
        if silent_s < 0:  # its agent may just be about to register
            return False
        attempts = self._state.registry.on_node.get(node.name, {}).items()
        return any(a.ordered and key not in node.leases.granted for key, a in attempts)
