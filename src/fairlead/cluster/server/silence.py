"""Words about an attempt while a node of it is silent, and for how long its ranks may live."""

from collections.abc import Sequence

from fairlead.cluster.server.attempts import Attempt, holder
from fairlead.cluster.server.cluster_state import ClusterState
from fairlead.cluster.server.live_node import LiveNode


def silence(state: ClusterState, attempt: Attempt) -> str:
    """Since when a node of an attempt has been silent, and how long the job waits for it, as a sentence
    without a full stop; "" where all of them report."""
    now = state.fleet.monotonic()
    for name in attempt.nodes:
        node = state.fleet.nodes.get(name)
        if node is not None and node.observed.seen and (node.suspect or node.lost):
            text = f"node {name} has been silent for {max(now - node.observed.seen, 0.0):.0f} s"
            return f"{text}; {_wait(state, node, now)}"
        if node is not None and not node.observed.seen:
            text = f"node {name} has not registered since the server was started"
            return f"{text}; {_wait(state, node, now)}"
    return ""


def silence_of_stopping(state: ClusterState, attempts: Sequence[Attempt]) -> str:
    """Return a sentence on the silence of an attempt that was told to stop, of which it is unknown whether it
    has heard of that; "" if there is none. attempts: of one job with devices, oldest first."""
    holds = holder(attempts)
    return silence(state, holds) if holds is not None and holds.stopping else ""


def _wait(state: ClusterState, node: LiveNode, now: float) -> str:
    lease_s = node.leases.until - now
    lease = f"its leases end in {lease_s:.0f} s" if lease_s > 0 else "its leases are over"
    if state.commit_error:  # no node can register, and no job can start
        return f"{lease}, and nothing can be written down"
    left_s = node.idle_since + rank_lifetime_s(state, node) - now
    return f"{lease}, and unless it is back its jobs start elsewhere in {max(left_s, 0.0):.0f} s"


def rank_lifetime_s(state: ClusterState, node: LiveNode) -> float:
    """Seconds behind the end of its leases after which no rank of a silent node lives."""
    attempts = state.registry.on_node.get(node.name, {}).values()
    grace_s = max((a.row.spec.longest_grace_s for a in attempts), default=0.0)
    return state.fleet.silence_s + grace_s
