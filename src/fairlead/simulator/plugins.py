"""Observers and admission rules by name: entry points of installed packages.

The value of an entry point in the group ``fairlead.observers`` or ``fairlead.admission`` is a callable
without arguments that returns the object.
"""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fairlead.errors import ConfigError
from fairlead.scheduler.driver import Observer
from fairlead.simulator.admission import Admission

OBSERVERS = "fairlead.observers"
ADMISSION = "fairlead.admission"


def find_observers(given: Sequence[Observer | str]) -> list[Observer]:
    """The observers, those given by name made by their entry points. Raises ConfigError."""
    found: list[Observer] = []
    for one in given:
        made = _make(OBSERVERS, one) if isinstance(one, str) else one
        _check("observer", made, ("event", "command"))
        found.append(made)
    return found


def find_admission(given: Admission | str | None) -> Admission | None:
    """The admission rule, made by its entry point where it is given by name. Raises ConfigError."""
    if given is None:
        return None
    made: Any = _make(ADMISSION, given) if isinstance(given, str) else given
    _check("admission", made, ("admit",))
    rule: Admission = made
    return rule


def _check(what: str, made: object, methods: tuple[str, ...]) -> None:
    for method in methods:
        if not callable(getattr(made, method, None)):
            raise ConfigError(
                f"{what} {type(made).__name__}: has no method {method!r}; it needs {', '.join(methods)}"
            )


def _make(group: str, name: str) -> Any:
    points = {point.name: point for point in entry_points(group=group)}
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise ConfigError(f"{name!r}: no such entry point in the group {group} (there are {known})")
    return _load(points[name])()


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as problem:
        raise ConfigError(
            f"{point.name!r}: entry point {point.value!r} cannot be loaded ({problem})"
        ) from None
