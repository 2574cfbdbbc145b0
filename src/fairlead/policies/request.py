"""What a policy is made from, and the type of what makes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fairlead.model.plan import Planner, Policy


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """What a policy is made from: ``NAME[:ARG]``, the run's seed, the mechanism's profile."""

    argument: str | None
    seed: int
    profile: str


PolicyFactory: TypeAlias = Callable[[PolicyRequest], Policy | Planner]
