"""When a loop under a lease looks what is due; in between, ``next`` has next to nothing to do."""

from __future__ import annotations

from math import inf


class PollSchedule:
    """Nothing is looked at before ``step`` is reached, nor before the monotonic time ``time``."""

    def __init__(self) -> None:
        self.step = 0
        self.time = 0.0
        self.pass_ends = False  # the code after a pass comes next, and then another pass
        self._check_step = 0  # at which all ranks meet

    def at_once(self) -> None:
        """Look when ``next`` is called again."""
        self.time = 0.0

    def at_next_step(self) -> None:
        """The same, for what begins with a step."""
        self.step = 0

    def end_of_loop(self) -> None:
        """The loop is over: from now on ``next`` always looks."""
        self.time = -inf

    def waits_for_ranks(self, step: int, last_step: int) -> bool:
        """Whether the other ranks are met at a later step only; the next look is then."""
        if step >= self._check_step:
            return False
        self.step = min(last_step, self._check_step)
        return True

    def plan(self, time: float, check_step: int, last_step: int) -> None:
        """The next look is at this time or check step, or when the job is done."""
        self.time, self._check_step = time, check_step
        self.step = min(last_step, check_step)
