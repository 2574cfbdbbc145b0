"""The states of nodes as time passes: noted when they change, and acted on."""

import logging
from typing import TYPE_CHECKING

from fairlead.live.fleet import LiveNode
from fairlead.live.node_states import condition
from fairlead.live.restored import release

if TYPE_CHECKING:
    from fairlead.live.engine import Engine

_log = logging.getLogger(__name__)


class NodeWatch:
    """Part of the engine, on the driver's thread."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine

    def look(self) -> None:
        """Note what time alone has changed. Called twice a second."""
        release(self.engine)
        for node in list(self.engine.fleet.nodes.values()):
            if node.inherited:
                self._outlive(node)
            self.settle(node)

    def _outlive(self, node: LiveNode) -> None:
        """Book the starts of earlier agents of a node that are over by now."""
        over = self.engine.fleet.outlived(node.name)
        if over:
            mine = self.engine.book.on_node.get(node.name, {})
            starts = [mine[key] for key in over if key in mine]
            self.engine.backend.abandon(node.name, starts, "its agent was replaced by another one")
            self.engine.membership.keep_node(node)

    def settle(self, node: LiveNode) -> None:
        """Note the state of a node, and let the core use it or not, as that says."""
        now, backend = self.engine.fleet.monotonic(), self.engine.backend
        current = condition(node, now)
        if current.state != node.noted:
            node.noted, node.state_since = current.state, now
            self.engine.showcase.touch(node.name)
            why = f": {current.reason}" if current.reason else ""
            _log.info("node %s is %s%s", node.name, current.state, why)
        if current.state == "up":
            backend.put_back(node.name)
        elif (
            node.registered
        ):  # of one that has not come back yet the core has been told, or will be
            backend.take_out(node.name)
