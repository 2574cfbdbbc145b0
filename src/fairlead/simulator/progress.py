"""How far a run has come."""

from typing import Protocol

from fairlead.model.events import Event
from fairlead.simulator.backend import SimBackend


class Watch(Protocol):
    """Told now and then how far a run has come."""

    def __call__(self, done: float, note: str = "") -> None:
        """done: jobs that have ended."""


class ProgressObserver:
    """Tells a progress bar, at every end of a round."""

    def __init__(self, backend: SimBackend, watch: Watch) -> None:
        self.backend = backend
        self.watch = watch

    def event(self, event: Event) -> None:
        """How many jobs have ended; of the measured ones, where only some are."""
        measured = self.backend.measured_jobs
        done = self.backend.ended
        if measured is not None:
            done = measured.stop - measured.first - self.backend.measured_left
        self.watch(done, f"day {event.time_s / 86400:.1f}")

    def command(self, command: object) -> None:
        """Nothing to tell."""
