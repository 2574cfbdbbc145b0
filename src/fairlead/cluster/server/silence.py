"""What is known of an attempt while a node of it is silent."""

from typing import TYPE_CHECKING

from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import LiveNode

if TYPE_CHECKING:
    from fairlead.cluster.server.server_loop import ServerLoop


def silence(engine: "ServerLoop", start: Attempt) -> str:
    """Since when a node of an attempt has been silent, and how long the job waits for it, as a sentence
    without a full stop; "" where all of them report."""
    now = engine.fleet.monotonic()
    for name in start.nodes:
        node = engine.fleet.nodes.get(name)
        if node is not None and node.seen and (node.suspect or node.lost):
            told = f"node {name} has been silent for {max(now - node.seen, 0.0):.0f} s"
            return f"{told}; {_wait(engine, node, now)}"
        if node is not None and not node.seen:
            return f"node {name} has not reported since the server was started; {_wait(engine, node, now)}"
    return ""


def _wait(engine: "ServerLoop", node: LiveNode, now: float) -> str:
    lease_s = node.lease_until - now
    lease = f"its leases end in {lease_s:.0f} s" if lease_s > 0 else "its leases are over"
    left_s = node.quiet_since + engine.backend.death_s(node) - now
    return f"{lease}, and unless it is back its jobs start elsewhere in {max(left_s, 0.0):.0f} s"
