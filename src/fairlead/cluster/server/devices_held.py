"""Whether attempts have ever had their devices: whoever had these before may not let go of them."""

from fairlead.cluster.server.attempts import Attempt


def has_had_devices(attempt: Attempt) -> bool:
    """Return whether an attempt has begun on any of its nodes, as far as these have told."""
    record = attempt.record
    known = record.wait_s >= 0 or record.trained_s is not None or attempt.begin_noted
    return known or any(
        one.wait_s >= 0
        or one.ran_s > 0
        or one.loaded_step >= 0
        or one.state == "running"
        or one.exit_code not in (None, 0)
        for one in list(attempt.statuses.values())
    )


def waits_for_devices_of_others(attempt: Attempt) -> bool:
    """Return whether the node of rank 0 says that an attempt cannot begin there yet, and nothing of it has
    begun."""
    leader = attempt.leader
    waits = leader is not None and leader.state == "starting" and bool(leader.reason)
    return waits and not has_had_devices(attempt)


def never_began(attempt: Attempt) -> bool:
    """Return whether an attempt that is over was told to stop before it began: it was no start of its job. Of
    one that was lost, or that a server before this one ordered, nobody knows."""
    unknown = attempt.lost or attempt.is_recovered or not attempt.stopping
    return attempt.ordered and not unknown and not has_had_devices(attempt)
