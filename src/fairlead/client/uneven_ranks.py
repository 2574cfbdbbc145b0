"""What rank 0 makes of the statuses of all ranks, of which some may have come to the end of their data while
others train on: those that have wait for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.client.rank_sync import RankStatus

_TOTALS = (
    "; every rank needs the same number: give each as many batches of every pass (drop_last=True, or a "
    "sampler that pads)"
)


def difference(statuses: Sequence[RankStatus]) -> str:
    """Return in words in what ranks differ that train; "" = in nothing that has to be the same."""
    first, *others = [one for one in statuses if not one.finished] or statuses[:1]
    for field in ("step", "batch_size", "total_steps"):
        mine = getattr(first, field)
        for other in others:
            theirs = getattr(other, field)
            if mine != theirs:
                advice = _TOTALS if field == "total_steps" else ""
                return f"ranks differ in {field} at step {first.step}: {mine}, {theirs}{advice}"
    return ""


def are_uneven(statuses: Sequence[RankStatus]) -> bool:
    """Return whether ranks have come to different steps, or some alone to the end of their data."""
    return any(
        (one.step, one.finished) != (statuses[0].step, statuses[0].finished) for one in statuses
    )


def training_step(statuses: Sequence[RankStatus]) -> int:
    """Return the step of the ranks that train; where none does, of the one that has done most."""
    return max(
        (one.step for one in statuses if not one.finished), default=max(s.step for s in statuses)
    )


class WaitNotice:
    """Tells once that ranks have no more data, and wait for others that have."""

    def __init__(self) -> None:
        self._is_told = False

    def sentence(self, statuses: Sequence[RankStatus]) -> str:
        """Return what is to be told now; "" = nothing."""
        ended = [one for one in statuses if one.finished]
        if self._is_told or not ended or len(ended) == len(statuses):
            return ""
        self._is_told = True
        most = training_step(statuses)
        return (
            f"warning: the data of {len(ended)} of {len(statuses)} ranks have ended, at step "
            f"{min(one.step for one in ended)}, and others are at step {most}: those that have ended wait "
            "until all have; a sampler that pads, or drop_last=True, gives each as many batches"
        )
