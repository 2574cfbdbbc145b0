"""When the next checkpoint of a job is due."""

from math import inf
from time import monotonic


class SaveSchedule:
    """The newest checkpoint, and when the next one is due; times are monotonic seconds."""

    def __init__(self) -> None:
        self.step = 0  # of the newest checkpoint
        self.save_s = 0.0  # that it took to save
        self._saved_at = monotonic()
        self._retry_at = -inf  # there is no attempt before

    def loaded(self, step: int) -> None:
        """Training goes on from the checkpoint of this step."""
        self.step = step
        self._saved_at = monotonic()

    def saved(self, step: int, save_s: float) -> None:
        """A checkpoint of this step was saved, in so many seconds."""
        self.save_s = save_s
        self.loaded(step)

    def retry_after(self, wait_s: float, interval_s: float) -> None:
        """A checkpoint could not be saved. interval_s: between two of them."""
        self._retry_at = monotonic() + wait_s
        self._saved_at = min(self._saved_at, self._retry_at - interval_s)

    def due_at(self, interval_s: float) -> float:
        """Return when the next one is due, so many seconds after the last."""
        return max(self._retry_at, self._saved_at + interval_s)

    def is_due(self, now: float, interval_s: float, *, requested: bool) -> bool:
        """Return whether one is due. requested: at the next step, whatever the time since the last."""
        return now >= (self._retry_at if requested else self.due_at(interval_s))
