"""The progress of attempts now, as their nodes said last: between the ends of rounds nothing of that is
booked."""

from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.server.attempt_statuses import merge_known
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.server.fleet import Fleet


def latest_status(fleet: Fleet, attempt: Attempt) -> AttemptStatus | None:
    """Return the last status from an attempt's first node; its progress may not be taken over yet."""
    status, before = fleet.status(attempt.first_node, attempt.key), attempt.leader
    if status is None or before is None:
        return status or before
    return merge_known(status, before)


def unheard(fleet: Fleet, attempt: Attempt) -> bool:
    """Return whether its first node has not reported since the server was started."""
    node = fleet.nodes.get(attempt.first_node)
    return node is not None and not node.observed.seen


def steps_by_now(fleet: Fleet, attempt: Attempt) -> float:
    """Steps of the job done by now: those that the attempt has told of, else what its run time is worth. A
    node that is silent for too long may no longer run it: nothing more is counted then."""
    return attempt.done_as_of(latest_status(fleet, attempt), _age_s(fleet, attempt))


def is_overdue(fleet: Fleet, attempt: Attempt) -> bool:
    """Whether it has run by now for longer than all steps of its job take, which tells of none."""
    return attempt.is_overdue(latest_status(fleet, attempt), _age_s(fleet, attempt))


def _age_s(fleet: Fleet, attempt: Attempt) -> float:
    return min(fleet.report_age_s(attempt.first_node), fleet.silence_s)
