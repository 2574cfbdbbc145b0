"""The state of a node, and why: computed from what is known of it, never stored beside it."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairlead.cluster.protocol.node_states import NodeState
from fairlead.cluster.server.live_node import LiveNode
from fairlead.model.duration_text import duration


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A state, and the reason for it as one sentence without a full stop; "" where none is needed."""

    state: NodeState
    reason: str = ""


def condition(node: LiveNode, now: float) -> NodeCondition:
    """The state of a node. now: monotonic seconds of the fleet. What forbids its use for longest wins."""
    if node.agent.revoked:
        how = "" if node.lost else "; " + _silence(node, now)
        return NodeCondition("lost" if node.lost else "suspect", f"its token was revoked{how}")
    if not node.agent.newest:
        return NodeCondition("never seen", "no agent has registered under this name")
    if node.leaving:
        return NodeCondition(
            "drained", "taken out of the cluster file; it is removed when its jobs have left it"
        )
    if node.drained:
        back = ", or to be given back to its engine" if node.agent.ends_s else ""
        reason = f"drained by an administrator{back}"
        is_silent = node.lost or node.suspect or not node.registered
        silent = is_silent and not node.agent.left_s
        return NodeCondition("drained", f"{reason}; {_silence(node, now)}" if silent else reason)
    if node.agent.left_s:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(node.agent.left_s))
        return NodeCondition("offline", f"its agent was ended in order, {at}")
    if node.lost:
        return NodeCondition("lost", _silence(node, now))
    if not node.registered:  # what it was ordered by the server before this one may still run
        return NodeCondition("suspect", _silence(node, now))
    if node.agent.inherited:
        left_s = max(left.until for left in node.agent.inherited.values()) - now
        jobs = len({job for job, _ in node.agent.inherited})
        return NodeCondition(
            "waiting",
            f"another agent has taken its name over; {jobs} job(s) of the one before may still run there "
            f"for up to {max(left_s, 0.0):.0f} s",
        )
    if node.suspect:
        return NodeCondition("suspect", _silence(node, now))
    if node.agent.ending:
        return NodeCondition(
            "offline", "its agent is being ended in order; its jobs save, and go elsewhere"
        )
    health = node.health
    if health.problems or health.cordoned:
        return NodeCondition(
            "unhealthy", "; ".join((*health.problems, health.cordoned)).rstrip("; ")
        )
    if now < health.well_from:
        left_s = health.well_from - now
        return NodeCondition(
            "unhealthy", f"was not well; used again in {left_s:.0f} s if it stays so"
        )
    if now < node.hold.until:
        left_s = node.hold.until - now
        return NodeCondition("waiting", f"{node.hold.reason}; for {left_s:.0f} s more")
    if node.agent.ends_s:
        left_s = max(node.agent.ends_s - time.time(), 0.0)
        return NodeCondition("up", f"is given back in {duration(left_s)}")
    return NodeCondition("up")


def usable(node: LiveNode, now: float) -> bool:
    """Return whether the core may give jobs to a node."""
    return condition(node, now).state == "up"


def lacking_nodes(count: int, types: Iterable[str], usable_devices: Mapping[str, int]) -> str:
    """Return why a job could not run even if no other did; "" = enough nodes are in use. count: devices of
    one type that it needs; types: on which it runs; usable_devices: by type, of nodes in use."""
    types = sorted(types)
    if not types or any(usable_devices.get(name, 0) >= count for name in types):
        return ""
    names = " or ".join(types)
    if count == 1:
        return f"waits for a node: none with {names} may be used now"
    return f"waits for nodes: no {count} devices of {names} may be used now"


def _silence(node: LiveNode, now: float) -> str:
    text = "has not registered since the server was started"
    if node.observed.seen:
        text = f"silent for {max(now - node.observed.seen, 0.0):.0f} s"
    left_s = node.leases.until - now
    return f"{text}; its lease ends in {left_s:.0f} s" if left_s > 0 else text
