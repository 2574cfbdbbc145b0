"""The states of nodes as time passes: noted when they change, and acted on."""

import logging
from typing import TYPE_CHECKING

from fairlead.cluster.protocol.node_states import condition
from fairlead.cluster.server.detained import Detained
from fairlead.cluster.server.fleet import LiveNode
from fairlead.cluster.server.node_recovery import NodeRecovery
from fairlead.cluster.server.restored import release

if TYPE_CHECKING:
    from fairlead.cluster.server.server_loop import ServerLoop

AWAY_S = 2.0  # without a look for so long: the driver stood still, and has heard nobody
_log = logging.getLogger(__name__)


class NodeWatch:
    """Part of the engine, on the driver's thread."""

    def __init__(self, engine: "ServerLoop", detained: Detained, recovery: NodeRecovery) -> None:
        self.engine = engine
        self.detained = detained
        self.recovery = recovery
        self._looked = 0.0  # monotonic

    def look(self) -> None:
        """Note what time alone has changed. Called twice a second."""
        release(self.engine)
        fleet = self.engine.fleet
        now = fleet.monotonic()
        away_s, self._looked = now - self._looked, now
        if away_s > AWAY_S:
            fleet.excuse_silence()
        fleet.find_suspects()
        for node in list(fleet.nodes.values()):
            if node.inherited:
                self._outlive(node)
            self.settle(node)
        self.detained.update()

    def close(self) -> None:
        """Before a decision: the core shall use no node that is suspect by now."""
        for node in list(self.engine.fleet.nodes.values()):
            self.settle(node, deciding=True)
        self.detained.update()

    def _outlive(self, node: LiveNode) -> None:
        """Book the starts of earlier agents of a node that are over by now."""
        over = self.engine.fleet.outlived(node.name)
        if over:
            mine = self.engine.book.on_node.get(node.name, {})
            starts = [mine[key] for key in over if key in mine]
            reason = f"another agent has taken over the name {node.name!r} of its node"
            self.engine.backend.abandon(node.name, starts, reason)
            self.engine.membership.keep_node(node)

    def settle(self, node: LiveNode, deciding: bool = False) -> None:
        """Note the state of a node, and let the core use it or not, as that says. Of one that has just become
        suspect the core is told when it decides, so that a hiccup costs nothing; at once if it is silent for
        too long for that, or was given a job that it cannot have begun."""
        self.recovery.look(node)
        now, backend = self.engine.fleet.monotonic(), self.engine.backend
        current = condition(node, now)
        if current.state != node.noted:
            node.noted, node.state_since = current.state, now
            self.engine.showcase.touch(node.name)
            why = f": {current.reason}" if current.reason else ""
            _log.info("node %s is %s%s", node.name, current.state, why)
            if current.state == "up":
                backend.forget_reasons(node.name)
        if current.state == "up":
            backend.put_back(node.name)
        elif node.registered and (
            current.state != "suspect" or deciding or self._presses(node, now)
        ):
            backend.disable(node.name)  # of a lost one it has been told

    def obstructed(self, name: str, job: int, obstacle: str) -> None:
        """A node says what of it keeps a start from beginning there; "" = nothing any more."""
        self.engine.showcase.touch(name)
        if obstacle:
            _log.warning("node %s cannot start job %d: %s", name, job, obstacle)

    def _presses(self, node: LiveNode, now: float) -> bool:
        """Must the core hear of a suspect node before its next decision?"""
        if self.engine.backend.round is None or now - node.seen > self.engine.fleet.silence_s:
            return True
        starts = self.engine.book.on_node.get(node.name, {}).items()
        return any(s.ordered and key not in node.granted for key, s in starts)
