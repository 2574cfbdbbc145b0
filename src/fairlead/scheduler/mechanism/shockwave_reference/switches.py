"""The differences of Shockwave's released simulator from Gavel's, a switch for each."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ShockwaveSwitches:
    """Differences of Shockwave's mechanism; the defaults are Fairlead's behaviour. docs/profiles.md has the
    effect of each."""

    solve_on_adaptation: bool = True  # solve again when a job has changed its batch size
    settle_on_adaptation: bool = (
        True  # then bring isolated times up to date; if not, steps of two sizes get mixed
    )
    overtime: float = inf  # a job is ended after so many times the running time that it states
    charge_startup: bool = True  # time that a start takes counts as received
    clear_when_stalled: bool = True  # solve as if for the first time after nothing ran
    released_world: bool = False  # simulate the world of Shockwave's release, not the default one


RELEASE = ShockwaveSwitches(
    solve_on_adaptation=False,
    settle_on_adaptation=False,
    overtime=1.5,
    charge_startup=False,
    clear_when_stalled=False,
    released_world=True,
)
