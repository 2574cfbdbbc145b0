"""Statuses of attempts as nodes report them, and what follows from these."""

from msgspec.structs import replace

from fairlead.cluster.protocol.messages import AttemptStatus
from fairlead.cluster.protocol.plausible import MAX_RATE

MIN_TRAINED_S = 1.0  # of training, for an attempt to have a rate of its own


def merge_known(status: AttemptStatus, before: AttemptStatus) -> AttemptStatus:
    """Return the status from a node, with what its agent no longer knows: one that was started anew has not
    seen what the one before it told."""
    if status.loaded_step >= 0 or before.loaded_step < 0:
        return status
    names = (
        "step",
        "loaded_step",
        "lost_steps",
        "wait_s",
        "start_s",
        "load_s",
        "ran_s",
        "step_age_s",
        "trained_s",
        "saving_s",
    )
    known = {name: getattr(before, name) for name in names}
    return replace(status, saved_step=max(status.saved_step, before.saved_step), **known)


def measured_rate(status: AttemptStatus, since: tuple[float, float] | None = None) -> float | None:
    """steps/s of an attempt so far while it trained, as rank 0's node tells; None = not known. What it has
    done since it told of its steps last is not counted, neither is the time, nor that of saving and stopping.
    since: step and seconds trained from which on it counts."""
    step, before_s = since or (float(status.loaded_step), 0.0)
    trained_s = steps_took_s(status) - before_s
    if status.loaded_step < 0 or trained_s <= MIN_TRAINED_S:
        return None
    rate = (status.step - step) / trained_s
    return rate if 0 <= rate <= MAX_RATE else None  # else it is not true


def steps_took_s(status: AttemptStatus) -> float:
    """Seconds that the steps told of last have taken, since training began. What came after them is not
    training yet: a step that goes on, a save, the stop."""
    if status.trained_s >= 0:
        return status.trained_s
    age_s = status.step_age_s if status.state == "running" else 0.0
    return max(status.ran_s - max(age_s, 0.0), 0.0)
