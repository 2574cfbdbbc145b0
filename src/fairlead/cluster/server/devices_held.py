"""Whether attempts have ever had their devices: whoever had these before may not let go of them."""

from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.attempts import Attempt


def has_begun_on_node(status: AttemptStatus) -> bool:
    """Return whether ranks of an attempt have had their devices on a node, as that says."""
    return (
        status.wait_s >= 0
        or status.ran_s > 0
        or status.loaded_step >= 0
        or status.state == "running"
    )


def has_had_devices(attempt: Attempt) -> bool:
    """Return whether an attempt has begun on any of its nodes, as far as these have told."""
    record = attempt.record
    known = record.wait_s >= 0 or record.trained_s is not None or attempt.begin_noted
    return known or any(
        has_begun_on_node(one) or one.exit_code not in (None, 0)
        for one in list(attempt.statuses.values())
    )


def waits_for_devices_of_others(attempt: Attempt) -> bool:
    """Return whether the node of rank 0 says that an attempt cannot begin there yet, and nothing of it has
    begun."""
    leader = attempt.leader
    waits = leader is not None and leader.state == "starting" and bool(leader.reason)
    return waits and not has_had_devices(attempt)


def never_began(attempt: Attempt) -> bool:
    """Return whether an attempt that is over never had all its devices: it was no start of its job. So it is
    where it was told to stop before it began, and where the last word of a node is that its ranks there
    waited: a gang does nothing without all of its ranks. Else nobody knows of one that was lost, or that a
    server before this one ordered."""
    leader = attempt.leader
    trained = attempt.record.trained_s is not None or (
        leader is not None and leader.loaded_step >= 0
    )
    if not attempt.ordered or trained or attempt.completed() or attempt.failure():
        return False
    has_begun = has_had_devices(attempt)
    if len(attempt.nodes) == 1 and has_begun:
        return False
    told = list(attempt.statuses.items())
    if any(_waited(one) for node, one in told if node not in attempt.had_devices):
        return True
    known = bool(attempt.stopping) and not attempt.lost and not attempt.is_recovered
    return known and not has_begun


def _waited(status: AttemptStatus) -> bool:
    """Return whether ranks on a node had not had their devices by the last word of it, and could not."""
    if has_begun_on_node(status) or status.exit_code not in (None, 0) or status.resumed:
        return False
    if status.state == "starting":
        return bool(status.reason or status.obstacle)
    return status.exit_code is None
