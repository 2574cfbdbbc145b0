"""Settings of the mechanism, and the profiles: Fairlead's own, and those that imitate a release."""

from dataclasses import dataclass, field, fields, replace
from numbers import Integral

from fairlead.scheduler.mechanism.gavel_reference import switches as gavel_release
from fairlead.scheduler.mechanism.gavel_reference.switches import GavelSwitches
from fairlead.scheduler.mechanism.shockwave_reference import switches as shockwave_release
from fairlead.scheduler.mechanism.shockwave_reference.switches import ShockwaveSwitches


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """Settings of the mechanism. docs/profiles.md has the effect of each."""

    name: str
    round_s: float = 360.0
    solve_interval_s: float = 0.0  # least time between solves
    scattered: bool = (
        True  # know of scattered rates; if not, there is one slot per accelerator type
    )
    payback_period_s: float = (
        3600.0  # run time within which a move that consolidates a job must pay off
    )
    preemption_hysteresis: float = 40.0  # a start must be worth this many times what it costs
    deadline_margin_rounds: float = (
        1.0  # rounds by which policies see deadlines earlier than they are
    )
    max_failures: int = 5  # failed attempts in a row that drop a job
    fluid: bool = False  # no rounds: every job progresses at its shares all the time
    gavel: GavelSwitches = field(default_factory=GavelSwitches)
    shockwave: ShockwaveSwitches = field(default_factory=ShockwaveSwitches)

    def __post_init__(self) -> None:
        """Convert ints to the floats that they stand for: a journal reads floats, and a replay must agree."""
        for name in _FLOATS:
            if isinstance(value := getattr(self, name), Integral):
                object.__setattr__(self, name, float(value))

    @property
    def imitates_simulator(self) -> bool:
        """Return whether a released simulator is imitated, in which time is not that of real nodes."""
        return self.gavel.place_by_device_id or self.shockwave.released_world


_FLOATS = tuple(one.name for one in fields(MechanismSettings) if one.type is float)
DEFAULT = MechanismSettings("default")
GAVEL = MechanismSettings(
    "gavel",
    solve_interval_s=1920.0,
    scattered=False,
    preemption_hysteresis=0.0,
    deadline_margin_rounds=0.0,
    gavel=gavel_release.RELEASE,
)
SHOCKWAVE = replace(
    GAVEL,
    name="shockwave",
    round_s=120.0,
    solve_interval_s=1000.0,
    shockwave=shockwave_release.RELEASE,
)


def fluid(profile: MechanismSettings) -> MechanismSettings:
    """Return the profile without rounds: no interval between solves, no accounts."""
    return replace(
        profile,
        fluid=True,
        solve_interval_s=0.0,
        deadline_margin_rounds=0.0,
        preemption_hysteresis=0.0,
        gavel=replace(profile.gavel, reset_accounts=False, all_pairs=False),
    )


PROFILES = {profile.name: profile for profile in (DEFAULT, GAVEL, SHOCKWAVE)}
