"""What is told of an attempt that was told to stop, and of which something still lives."""

from fairlead.cluster.server.attempts import Attempt
from fairlead.model.duration_text import duration


def place(attempt: Attempt) -> str:
    """Its devices, in words."""
    record = attempt.record
    return f"{len(record.devices)} x {record.accelerator} of {record.node}"


def stop_ordered_ago(attempt: Attempt, now_s: float) -> str:
    """When it was told to stop, in words; "" where that is not known. now_s: the cluster's time."""
    ordered_s = attempt.stop_ordered_s
    return "" if ordered_s is None else f"told to stop {duration(max(now_s - ordered_s, 0.0))} ago"


def being_stopped(attempt: Attempt, now_s: float) -> str:
    """That an attempt is being stopped, and what it holds, for the list of jobs. Without a full stop."""
    parts = [f"attempt {attempt.record.attempt} is being stopped ({attempt.stopping})"]
    parts += filter(None, [stop_ordered_ago(attempt, now_s)])
    return f"{', '.join(parts)}, and holds {place(attempt)} until it has ended"


def being_moved(attempt: Attempt, following: Attempt, now_s: float) -> str:
    """The same, and where the job goes on. following: the attempt that begins when this one has ended."""
    return f"{being_stopped(attempt, now_s)}; then the job goes on on {place(following)}"
