"""The reason why jobs that run keep their devices from one that waits with a share of the time: a
sentence."""

import math
from collections.abc import Collection
from typing import Protocol

from fairlead.cluster.server.decided_shares import DecidedShares
from fairlead.cluster.server.live_round import LiveRound
from fairlead.model.duration_text import duration


class Decided(Protocol):
    """The part of the cluster's state that is read here."""

    @property
    def decided(self) -> DecidedShares:
        """Return the shares that were decided last."""

    @property
    def round(self) -> LiveRound | None:
        """That is in force."""

    def now_s(self) -> float:
        """The cluster's time."""


def why_not_preempted(state: Decided, job: int) -> str:
    """By how much what a waiting job is owed must grow, and about when that will be; "" where preemption
    hysteresis has no part in it."""
    decided, now_s = state.decided, state.now_s()
    preemption, turn = decided.preemption, decided.preemption_time(job)
    if preemption is None or turn is None:
        return ""
    where = decided.slots[turn.slot].accelerator
    rule = (
        "Jobs that run keep their devices until another is owed "
        f"{preemption.hysteresis:g} times what a start costs more than they are (preemption hysteresis)"
    )
    if math.isinf(turn.at_s):
        return f"{rule}, and those on {where} are about to be done or are left alone for now."
    if state.round is not None and turn.at_s <= state.round.end_s:
        return f"{rule}: of {where} it is owed enough to be preferred at the next decision."
    return (
        f"{rule}: of {where} it is owed {duration(turn.owed_s)}, and is preferred when that is "
        f"{duration(turn.needed_s)}, in about {duration(turn.at_s - now_s)} if nothing changes."
    )


def why_not_on_own_devices(state: Decided, job: int, holders: Collection[int]) -> str:
    """A clause on when a job goes on that is bound to devices of these jobs, or begins anew on others."""
    turn = state.decided.bound_time(job, holders)
    if turn is None:
        return (
            "others leave them once it is owed what a start of theirs costs; it begins anew on other "
            "devices once it is owed more than it would lose by that"
        )
    others = (
        "others keep them for now"
        if math.isinf(turn.others_s)
        else f"others leave them once it is owed {duration(turn.others_s)}, what a start of theirs costs, "
        "with the work that they would lose"
    )
    left_s = max(turn.at_s - state.now_s(), 0.0)
    enough = (
        f"and enough in about {duration(left_s)} if nothing changes"
        if left_s > 0
        else "which is enough; it goes on with the next decision for which nobody on such devices is owed "
        "as much"
    )
    return (
        f"{others}; it begins anew on other devices once it is owed {duration(turn.anew_s)}, what it would "
        f"lose by that. It is owed {duration(turn.owed_s)}, {enough}"
    )
