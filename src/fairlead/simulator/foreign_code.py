"""What is called of others in a run: it gets nothing that it can spoil, and its errors name it."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fairlead.errors import FairleadError, SimulationError
from fairlead.model.commands import Command
from fairlead.model.events import Event
from fairlead.scheduler.driver import Observer

T = TypeVar("T")


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Whatever is raised within, unless it is Fairlead's own, becomes a SimulationError of one sentence:
    where, what, and the line of code."""
    try:
        yield
    except FairleadError:
        raise
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        sentence = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise SimulationError(f"{where}: {sentence} ({last.filename}:{last.lineno})") from problem


def read_only(record: T) -> T:
    """The same record with views of its arrays, and of those of records in it, that cannot be written to."""
    if isinstance(record, np.ndarray):
        view: Any = record.view()
        view.flags.writeable = False
        return view  # type: ignore[no-any-return]
    if not is_dataclass(record) or isinstance(record, type):
        return record
    views = {
        field.name: read_only(value)
        for field in fields(record)
        if isinstance(value := getattr(record, field.name), np.ndarray) or is_dataclass(value)
    }
    changed = {name: view for name, view in views.items() if view is not getattr(record, name)}
    return replace(record, **changed) if changed else record


class GuardedObserver:
    """An observer from outside: it sees read-only views, and its errors name it and the time."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._name = type(observer).__name__

    def event(self, event: Event) -> None:
        """Show the event. Raises SimulationError."""
        with naming(self._where(event)):
            self.observer.event(read_only(event))

    def command(self, command: Command) -> None:
        """Show the command. Raises SimulationError."""
        with naming(self._where(command)):
            self.observer.command(read_only(command))

    def _where(self, seen: Event | Command) -> str:
        return f"observer {self._name} at {seen.time_s:.0f} s ({type(seen).__name__})"
