"""When a training loop under a lease polls for what is due; in between, ``next`` costs almost nothing."""

from __future__ import annotations

from math import inf


class PollSchedule:
    """Nothing is polled before ``step`` is reached, nor before the monotonic time ``time``."""

    def __init__(self) -> None:
        self.step = 0
        self.time = 0.0
        self.pass_ends = False  # the code after a pass comes next, and then another pass
        self._check_step = 0  # at which all ranks meet

    def poll_at_once(self) -> None:
        """Poll at the next call of ``next``."""
        self.time = 0.0

    def poll_at_next_step(self) -> None:
        """Poll at the next call of ``next`` that begins a step."""
        self.step = 0

    def end_of_loop(self) -> None:
        """Poll at every call from now on, as the loop is over."""
        self.time = -inf

    def waits_for_ranks(self, step: int, last_step: int) -> bool:
        """Return whether the ranks meet at a later step only; if so, the next poll is at that step."""
        if step >= self._check_step:
            return False
        self.step = min(last_step, self._check_step)
        return True

    def plan(self, time: float, check_step: int, last_step: int) -> None:
        """Poll next at this monotonic time or check step, or when the job is done."""
        self.time, self._check_step = time, check_step
        self.step = min(last_step, check_step)
