"""The size of a job: its batch size and total steps, which the script or the scheduler may change."""

from __future__ import annotations

from fairlead.client.arguments import whole_number
from fairlead.client.checkpoint import Manifest
from fairlead.client.rank_environment import RankEnvironment, print_to_log

UNREACHABLE_STEP = 1 << 62  # a step that no job reaches


class JobSize:
    """Batch size (samples per step, 0 = not known) and total steps (of all starts, None = not known). Raises
    ConfigError for what is no such number."""

    def __init__(self, total_steps: int | None, batch_size: int) -> None:
        self.total_steps = (
            None if total_steps is None else whole_number("total_steps", total_steps, 0)
        )
        self.batch_size = whole_number("batch_size", batch_size, 0)
        self.is_adapted = False  # by the job itself, in this start or in one before
        self._next: tuple[int, int] | None = (
            None  # batch size and total steps from the next step on
        )

    @property
    def last_step(self) -> int:
        """The step at which the job is done."""
        return UNREACHABLE_STEP if self.total_steps is None else self.total_steps

    def adapt(self, batch_size: int, total_steps: int, done: int) -> None:
        """Ask for another size from the next step on. done: steps, the one under way included. Raises
        ConfigError where the size is none."""
        self._next = (
            whole_number("adapt: batch_size", batch_size, 1),
            whole_number("adapt: total_steps", total_steps, done),
        )

    def change(self) -> tuple[int, int] | None:
        """Take over what was asked for: the new batch size and total steps, None = nothing was."""
        if self._next is None:
            return None
        (self.batch_size, self.total_steps), self._next = self._next, None
        self.is_adapted = True
        return self.batch_size, self.total_steps

    def settle(
        self, environment: RankEnvironment, saved: Manifest | None
    ) -> tuple[int, int] | None:
        """Take the size to go on with: the checkpoint's where the job has changed it; else the scheduler's,
        unless it speaks of a change that this start does not know of (any more).
        What the scheduler has to be told, None: it knows."""
        if saved is not None and saved.adapted:
            self.is_adapted = True
            self.batch_size, self.total_steps = saved.batch_size, saved.total_steps
            return self.batch_size, self.total_steps
        if environment.batch and self.total_steps is not None and self.batch_size:
            return self.batch_size, self.total_steps
        self.batch_size = environment.batch or self.batch_size
        self.total_steps = environment.total_steps or self.total_steps
        return None

    def warn_of_total(self, own_total: int | None) -> None:
        """Print a warning to the job's log if its script has another number of steps. own_total: that; None =
        it has none."""
        total = self.total_steps
        if self.is_adapted or None in (own_total, total) or own_total == total:
            return
        print_to_log(
            f"warning: the job was submitted with {total} steps, its script has {own_total}: it ends when "
            f"{total} are done, or its data end"
        )
