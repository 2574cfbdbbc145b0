"""The named differences between the mechanisms of Gavel's and Shockwave's releases and our own."""

from dataclasses import dataclass, replace
from math import inf


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """Switches of the mechanism. docs/profiles.md tells what each is worth."""

    name: str
    round_s: float = 360.0
    solve_interval_s: float = 0.0  # least time between solves
    solve_on_adaptation: bool = True  # solve again when a job has changed its batch size
    settle_on_adaptation: bool = (
        True  # then bring isolated times up to date; if not, steps of two sizes get mixed
    )
    reset_accounts: bool = False  # forget time received at each solve, instead of carrying it on
    type_by_type: bool = False  # fill one accelerator type after the other, not the most owed first
    type_order: tuple[str, ...] = ()  # the order in which types are filled; the rest follow by name
    allow_undersized: bool = (
        False  # let shares be given on types with fewer devices than a job needs
    )
    place_unallocated: bool = True  # run jobs that arrived after the last solve
    place_by_device_id: bool = False  # place by device number, not on the fewest servers
    scattered: bool = True  # know of spread rates; if not, there is one slot per accelerator type
    horizon_s: float = 3600.0  # a move for a better place must pay off in so much run time
    charge_idle_gaps: bool = False  # charge the idle time before a round to the jobs in it
    whole_steps: bool = False  # steps per round are cut to integers and split over devices
    preemption_hysteresis: float = 40.0  # a start must be worth this many times what it costs
    early_rounds: float = 1.0  # policies see deadlines so much earlier: shares become whole rounds
    all_pairs: bool = False  # keep every pair of jobs as a job group, not only those with a share
    weighted_isolation: bool = (
        True  # a job's isolated part of the cluster goes by weight, not by head
    )
    overtime: float = inf  # a job is ended after so many times the running time that it states
    charge_startup: bool = True  # time that a start takes counts as received
    clear_when_stalled: bool = True  # solve as if for the first time after nothing ran
    released_world: bool = False  # simulate the world of Shockwave's release, not the default one
    max_failures: int = 5  # failed attempts in a row that drop a job
    fluid: bool = False  # no rounds: every job progresses at its shares all the time


DEFAULT = MechanismSettings("default")
GAVEL = MechanismSettings(
    "gavel",
    solve_interval_s=1920.0,
    reset_accounts=True,
    type_by_type=True,
    type_order=("v100", "p100", "k80"),
    allow_undersized=True,
    place_unallocated=False,
    place_by_device_id=True,
    scattered=False,
    charge_idle_gaps=True,
    whole_steps=True,
    preemption_hysteresis=0.0,
    early_rounds=0.0,
    all_pairs=True,
    weighted_isolation=False,
)
SHOCKWAVE = replace(
    GAVEL,
    name="shockwave",
    round_s=120.0,
    solve_interval_s=1000.0,
    solve_on_adaptation=False,
    settle_on_adaptation=False,
    overtime=1.5,
    charge_startup=False,
    clear_when_stalled=False,
    released_world=True,
)


def fluid(profile: MechanismSettings) -> MechanismSettings:
    """The same without rounds: nothing to wait for before a solve, no accounts to keep."""
    return replace(
        profile,
        fluid=True,
        solve_interval_s=0.0,
        reset_accounts=False,
        early_rounds=0.0,
        all_pairs=False,
        preemption_hysteresis=0.0,
    )


PROFILES = {profile.name: profile for profile in (DEFAULT, GAVEL, SHOCKWAVE)}
