"""The one loop between a backend and the scheduler, for the simulator and for the live cluster."""

from collections.abc import Callable, Sequence
from typing import Protocol

from fairlead.model.commands import Command
from fairlead.model.events import Event
from fairlead.scheduler.core.scheduler import Scheduler


class Backend(Protocol):
    """Owns clock and workers: returns what has happened, and carries commands out."""

    def next(self) -> Event | None:
        """Return the next event; None when there is nothing left to do."""

    def perform(self, command: Command) -> None:
        """Carry a command out."""


class Observer(Protocol):
    """Sees every event and command, in order: the journal is one. Those of users see read-only views of the
    arrays, which hold until the method returns: what is kept must be copied."""

    def event(self, event: Event) -> None:
        """Called before the core handles it."""

    def command(self, command: Command) -> None:
        """Called before the backend performs it."""


def drive(
    scheduler: Scheduler,
    backend: Backend,
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Run until the backend has no more events (True), or until ``stop()`` says so (False)."""
    while not stop():
        event = backend.next()
        if event is None:
            return True
        for observer in observers:
            observer.event(event)
        for command in scheduler.handle(event):
            for observer in observers:
                observer.command(command)
            backend.perform(command)
    return False
