"""Statuses of attempts as nodes report them, and what follows from these."""

import signal
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from fairlead.cluster.protocol.attempt_end import UNEVENLY
from fairlead.cluster.protocol.messages import AttemptStatus, Failure
from fairlead.cluster.protocol.plausible import MAX_RATE

PLACES = "; rank"  # behind it a sentence says where ranks stand
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


def all_ran_s(leader: AttemptStatus, more_s: float, others: Sequence[AttemptStatus]) -> float:
    """Seconds for which all ranks of an attempt have run that have something to do. more_s: since the node of
    rank 0 said this; others: what the other nodes said. A rank that has begun waits for those on other nodes,
    and makes no progress; one that has come to its end is not waited for."""
    ran_s = [(leader.ran_s + more_s, leader), *((one.ran_s, one) for one in others)]
    working = [seconds for seconds, one in ran_s if not one.is_through]
    return min(working) if working else max(seconds for seconds, _ in ran_s)


def joined(sentences: Iterable[str]) -> str:
    """One sentence of those of several nodes: what they say alike is said once, then where ranks stand."""
    first, *others = [one for one in sentences if one] or [""]
    places = [place for one in others if (place := one[one.find(PLACES) + 2 :]) and PLACES in one]
    rest = [one for one in others if PLACES not in one and one != first]
    return "; ".join([first, *places, *rest])


def left_unevenly(statuses: Iterable[AttemptStatus]) -> str:
    """Return which ranks have left their loops by themselves first and last, where that was not at the same
    step; "" = it was, as far as is known."""
    left = sorted((step, rank) for one in statuses for rank, step in one.left_loops)
    if not left or left[0][0] == left[-1][0]:
        return ""
    (least, first), (most, last) = left[0], left[-1]
    return f"{UNEVENLY}rank {first} at step {least}, rank {last} at step {most}"


def was_killed(failure: Failure | None) -> bool:
    """Return whether a rank was killed."""
    return failure is not None and failure.exit_code == -signal.SIGKILL


def follows(failure: Failure | None) -> bool:
    """Return whether a rank failed for another one's end."""
    return failure is not None and failure.secondary


def died(statuses: Iterable[AttemptStatus]) -> str:
    """With what processes of an attempt ended in place of a save, after they were told to stop; "" = none
    did."""
    for status in statuses:
        one = status.failure
        if one is not None and one.kind in ("exit", "signal") and not one.secondary:
            lost = status.step > max(status.saved_step, 0)
            return status.reason + "; its work was not saved" * lost
    return ""
