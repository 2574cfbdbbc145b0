"""The state of a training loop, and the ways in which it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class LoopState:
    """The states of a training loop between two steps."""

    running: bool = False  # a step is under way
    begun: bool = False  # a step was asked for
    no_more: bool = False  # complete() was called, or the data have ended
    at_end: bool = False


class Ending(NamedTuple):
    """The ways in which a loop ends: with all steps done, or stopped for a reason."""

    completed: bool
    reason: str
