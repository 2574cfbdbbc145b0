"""The request for a policy, and the type of the factories that answer it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fairlead.model.plan import Planner, Policy


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A request for a policy: its ``NAME[:ARG]``, the run's seed, the mechanism's profile."""

    argument: str | None
    seed: int
    profile: str


PolicyFactory: TypeAlias = Callable[[PolicyRequest], Policy | Planner]
