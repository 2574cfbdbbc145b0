"""Objects that other packages contribute, by the names of their entry points.

The value of an entry point is a callable without arguments that returns the object.
"""

import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fairlead.errors import ConfigError, FairleadWarning
from fairlead.model.third_party import third_party_call
from fairlead.scheduler.placement.rule import BUILT_IN, PlacementRule

PLACEMENT = "fairlead.placement"


def find_placement(given: PlacementRule | str | None) -> PlacementRule | None:
    """The rule of placement; of a name, a built-in one or that of an entry point in the group
    ``fairlead.placement``. Raises ConfigError."""
    if given is None:
        return None
    if isinstance(given, str) and given in BUILT_IN:
        if any(point.name == given for point in entry_points(group=PLACEMENT)):
            warnings.warn(
                f"placement {given!r} is the built-in one; the entry point of this name is not used: "
                "it needs another name",
                FairleadWarning,
                stacklevel=2,
            )
        return BUILT_IN[given]
    made: Any = make_plugin(PLACEMENT, given) if isinstance(given, str) else given
    check_methods("placement", made, ("place",))
    if not isinstance(getattr(made, "name", None), str) or not made.name:
        raise ConfigError(f"placement {type(made).__name__}: has no attribute 'name', a text")
    rule: PlacementRule = made
    return rule


def check_made(what: str, made: object) -> None:
    """ConfigError for a class in place of an object."""
    if isinstance(made, type):
        raise ConfigError(f"{what} {made.__name__}: expected an object, got the class itself")


def check_methods(what: str, made: object, methods: tuple[str, ...]) -> None:
    """ConfigError unless an object has these methods."""
    check_made(what, made)
    for method in methods:
        if not callable(getattr(made, method, None)):
            raise ConfigError(
                f"{what} {type(made).__name__}: has no method {method!r}; it needs {', '.join(methods)}"
            )


def make_plugin(group: str, name: str) -> Any:
    """The object of an entry point. Raises ConfigError where there is none, or it cannot be loaded."""
    points = {point.name: point for point in entry_points(group=group)}
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise ConfigError(f"{name!r}: no such entry point in the group {group} (there are {known})")
    maker = _load(points[name])
    with third_party_call(f"{name!r}: entry point {points[name].value!r}", ConfigError):
        return maker()


def _load(point: EntryPoint) -> Any:
    with third_party_call(f"{point.name!r}: entry point {point.value!r}", ConfigError):
        try:
            return point.load()
        except (ImportError, AttributeError) as problem:
            raise ConfigError(
                f"{point.name!r}: entry point {point.value!r} cannot be loaded ({problem})"
            ) from None
