"""The differences of Gavel's released simulator from Fairlead, a switch for each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GavelSwitches:
    """Differences of Gavel's mechanism; the defaults are Fairlead's behaviour. docs/profiles.md has the
    effect of each."""

    reset_accounts: bool = False  # forget time received at each solve, instead of carrying it on
    type_by_type: bool = False  # fill one accelerator type after the other, not the most owed first
    type_order: tuple[str, ...] = ()  # the order in which types are filled; the rest follow by name
    allow_undersized: bool = (
        False  # let shares be given on types with fewer devices than a job needs
    )
    place_unallocated: bool = True  # run jobs that arrived after the last solve
    place_by_device_id: bool = False  # place by device number, not on the fewest servers
    charge_idle_gaps: bool = False  # charge the idle time before a round to the jobs in it
    whole_steps: bool = False  # steps per round are cut to integers and split over devices
    all_pairs: bool = False  # keep every pair of jobs as a job group, not only those with a share
    weighted_isolation: bool = (
        True  # a job's isolated part of the cluster goes by weight, not by head
    )


RELEASE = GavelSwitches(
    reset_accounts=True,
    type_by_type=True,
    type_order=("v100", "p100", "k80"),
    allow_undersized=True,
    place_unallocated=False,
    place_by_device_id=True,
    charge_idle_gaps=True,
    whole_steps=True,
    all_pairs=True,
    weighted_isolation=False,
)
