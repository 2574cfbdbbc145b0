"""Observers and functions from outside."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fairlead.errors import SimulationError
from fairlead.model.commands import Command
from fairlead.model.events import Event
from fairlead.model.third_party import read_only, third_party_call
from fairlead.scheduler.driver import Observer

P = ParamSpec("P")
T = TypeVar("T")


def guarded(name: str, function: Callable[P, T]) -> Callable[P, T]:
    """The function; whatever it raises becomes a SimulationError that names it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with third_party_call(name, SimulationError):
            return function(*args, **kwargs)

    return call


class GuardedObserver:
    """An observer from outside: it sees read-only views, and its errors name it and the time."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._name = type(observer).__name__

    def event(self, event: Event) -> None:
        """Show the event. Raises SimulationError."""
        with third_party_call(self._where(event), SimulationError):
            self.observer.event(read_only(event))

    def command(self, command: Command) -> None:
        """Show the command. Raises SimulationError."""
        with third_party_call(self._where(command), SimulationError):
            self.observer.command(read_only(command))

    def _where(self, seen: Event | Command) -> str:
        return f"observer {self._name} at {seen.time_s:.0f} s ({type(seen).__name__})"
