"""Observers and admission rules by name: entry points of installed packages.

The value of an entry point in the group ``fairlead.observers`` or ``fairlead.admission`` is a callable
without arguments that returns the object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.errors import ConfigError
from fairlead.scheduler.driver import Observer
from fairlead.scheduler.placement.rule import PlacementRule
from fairlead.scheduler.plugins import check_methods, find_placement, make_plugin
from fairlead.simulator.admission import AdmissionRule
from fairlead.simulator.simulation_input import PluginNames
from fairlead.simulator.third_party import GuardedObserver

OBSERVERS = "fairlead.observers"
ADMISSION = "fairlead.admission"


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """Objects that a run gets from third parties."""

    placement: PlacementRule | None = None  # None: that of the profile
    admission: AdmissionRule | None = None
    observers: Sequence[Observer] = ()


def find_plugins(names: PluginNames) -> Plugins:
    """The objects behind the names. Raises ConfigError."""
    return Plugins(
        placement=find_placement(names.placement),
        admission=find_admission(names.admission),
        observers=find_observers(names.observers),
    )


def find_observers(given: Sequence[Observer | str]) -> list[Observer]:
    """The observers, those given by name made by their entry points, each with a guard: what they see is
    read-only. Raises ConfigError."""
    if isinstance(given, str):
        raise ConfigError(
            f"observers: expected a list of observers or of their names, got {given!r}"
        )
    found: list[Observer] = []
    for one in given:
        made = make_plugin(OBSERVERS, one) if isinstance(one, str) else one
        check_methods("observer", made, ("event", "command"))
        found.append(GuardedObserver(made))
    return found


def find_admission(given: AdmissionRule | str | None) -> AdmissionRule | None:
    """The admission rule, made by its entry point where it is given by name. Raises ConfigError."""
    if given is None:
        return None
    made: Any = make_plugin(ADMISSION, given) if isinstance(given, str) else given
    check_methods("admission", made, ("admit",))
    rule: AdmissionRule = made
    return rule
