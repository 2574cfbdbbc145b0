"""The ways in which attempts of jobs end. The reason, for people, is told apart from that."""

from enum import StrEnum

from fairlead.cluster.protocol.messages import AGENT_LEAVES, EXPIRED, ORPHANED, SPAWNER_STALLED


class AttemptEnd(StrEnum):
    """The way in which an attempt ended, or is to end."""

    COMPLETED = "completed"
    FAILED = "failed"
    NODE_LOST = "node lost"
    LEASE_EXPIRED = "lease expired"
    AGENT_LEFT = "agent left"
    ORPHANED = "orphaned"  # the process that owned its ranks died, or stood still
    RESTORED = "restored"  # the cluster began anew from a backup, or without its newest commits
    PREEMPTED = "preempted"
    MOVED = "moved"  # to other devices
    RESIZED = "resized"  # its job, which is elastic, goes on with another number of devices
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    KILLED = "killed"
    STOPPED = "stopped"  # for another reason, as of its node

    @classmethod
    def without_place(cls, state: str) -> "AttemptEnd":
        """Return how an attempt is to end that has no place in the round in force. state: of its job."""
        decided = (cls.PAUSED, cls.COMPLETED, cls.CANCELLED, cls.DROPPED, cls.KILLED)
        return next((end for end in decided if end == state), cls.PREEMPTED)


BY_ITSELF = "ended by itself at step "
"""How the reason begins of a completed attempt whose job needed fewer steps than announced."""
UNEVENLY = "left its loops at different steps: "
"""How the reason begins of a completed attempt of which ranks did fewer steps than others."""
END_OF_AGENT_REASON = {
    EXPIRED: AttemptEnd.LEASE_EXPIRED,
    AGENT_LEAVES: AttemptEnd.AGENT_LEFT,
    ORPHANED: AttemptEnd.ORPHANED,
    SPAWNER_STALLED: AttemptEnd.ORPHANED,
}
"""Reasons that agents give for attempts which they end on their own account -> how these end."""
LOST_ENDS = frozenset((AttemptEnd.NODE_LOST, AttemptEnd.RESTORED, *END_OF_AGENT_REASON.values()))
"""Ends that nobody has decided on."""
PREEMPTIONS = frozenset(
    (AttemptEnd.PREEMPTED, AttemptEnd.MOVED, AttemptEnd.RESIZED)
)  # by a round's decision
