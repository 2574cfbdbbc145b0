"""The progress of a run."""

from typing import Protocol

from fairlead.model.events import Event
from fairlead.simulator.submissions import Submissions


class Watch(Protocol):
    """Told now and then how far a run has come."""

    def __call__(self, done: float, note: str = "") -> None:
        """done: jobs that have ended."""


class ProgressObserver:
    """Tells a progress bar, at every end of a round."""

    def __init__(self, submissions: Submissions, watch: Watch) -> None:
        self.submissions = submissions
        self.watch = watch

    def event(self, event: Event) -> None:
        """Count the jobs that have ended; of the measured ones, where only some are."""
        self.watch(self.submissions.progress, f"day {event.time_s / 86400:.1f}")

    def command(self, command: object) -> None:
        """Nothing to tell."""
