"""The options of a simulation, besides trace, cluster and policy, and checks of them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fairlead.errors import ConfigError
from fairlead.model.job import RestartCosts
from fairlead.model.limits import MAX_JOBS, MAX_NUMBER, MAX_SECONDS, check_seed, is_duration
from fairlead.model.throughputs import Throughputs
from fairlead.scheduler.mechanism.round_length import AUTO, MIN_ROUND_S
from fairlead.scheduler.mechanism.settings import PROFILES, MechanismSettings, fluid
from fairlead.simulator.ground_truth import GroundTruth
from fairlead.simulator.user_estimates import UserEstimates


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Everything about a simulation besides trace, cluster and policy; each has its default.

    throughputs: the table of rates, or its path; "builtin" = the catalogue. profile: "default", "gavel" or
    "shockwave", or settings of the mechanism. round_s: the longest that a round lasts, in seconds; "auto" =
    the shortest of which starts take at most 2 %; None = the profile's.
    seed: of all that is random but the ground truth. preemption_hysteresis: a start
    must be worth this many times what it costs; None = the profile's. measured_jobs: (s, e)
    measures jobs s .. e-1 by order of submission, and stops when they have ended; None = all jobs.
    stop_at_s: stop at this time; None = at the end. ground_truth: what is otherwise than planned; None =
    nothing. solve_s: simulated seconds that a solve takes. assumed_costs: of restarts, in seconds, as the
    scheduler believes; None = those of the ground truth. estimator: of rates ("oracle" = the table's).
    user_estimates: what users say of their jobs' rates; None = nothing. ideal: no rounds, jobs progress at
    their shares all the time. solve_interval_s: the least time between two solves, in seconds; None = the
    profile's.
    """

    throughputs: Throughputs | str | Path = "builtin"
    profile: str | MechanismSettings = "default"
    round_s: float | Literal["auto"] | None = None
    seed: int = 0
    preemption_hysteresis: float | None = None
    measured_jobs: tuple[int, int] | None = None
    stop_at_s: float | None = None
    ground_truth: GroundTruth | None = None
    solve_s: float = 0.0
    assumed_costs: RestartCosts | None = None
    estimator: str = "oracle"
    user_estimates: UserEstimates | None = None
    ideal: bool = False
    solve_interval_s: float | None = None


def _named_profile(options: SimulationOptions) -> MechanismSettings:
    if isinstance(options.profile, MechanismSettings):
        return options.profile
    if options.profile in PROFILES:
        return PROFILES[options.profile]
    names = ", ".join(sorted(PROFILES))
    raise ConfigError(f"profile {options.profile!r} is not known (choose from {names})")


def settings_of(options: SimulationOptions) -> MechanismSettings:
    """The mechanism's settings: those of the profile, with what the options give in place of them."""
    profile = _named_profile(options)
    if isinstance(options.round_s, float | int):
        profile = replace(profile, round_s=options.round_s)
    if options.solve_interval_s is not None:
        profile = replace(profile, solve_interval_s=options.solve_interval_s)
    if options.ideal:
        return fluid(profile)
    hysteresis = options.preemption_hysteresis
    return profile if hysteresis is None else replace(profile, preemption_hysteresis=hysteresis)


def check_options(options: SimulationOptions, n_jobs: int | None) -> None:
    """ConfigError names what is out of its bounds. n_jobs: of the trace; None where nobody can tell."""
    check_seed(options.seed)
    round_s = options.round_s
    if round_s not in (None, AUTO) and not (
        isinstance(round_s, float | int) and MIN_ROUND_S <= round_s <= MAX_SECONDS
    ):
        raise ConfigError(
            f"round (round_s): must be from 10 to {MAX_SECONDS:g} seconds, got {round_s}"
        )
    if options.stop_at_s is not None and not options.stop_at_s > 0:
        raise ConfigError(
            f"stop-at (stop_at_s): must be a number of seconds > 0, got {options.stop_at_s}"
        )
    if not is_duration(options.solve_s):
        raise ConfigError(
            f"solve time (solve_s): must be from 0 to {MAX_SECONDS:g} seconds, got {options.solve_s}"
        )
    hysteresis = options.preemption_hysteresis
    if hysteresis is not None and not 0 <= hysteresis <= MAX_NUMBER:
        raise ConfigError(
            "preemption hysteresis (preemption_hysteresis): must be a number from 0 to "
            f"{MAX_NUMBER:g}, got {hysteresis}"
        )
    interval_s = options.solve_interval_s
    if interval_s is not None and not is_duration(interval_s):
        raise ConfigError(
            f"solve interval (solve_interval_s): must be from 0 to {MAX_SECONDS:g} seconds, got {interval_s}"
        )
    if options.ideal:
        _check_ideal(options)
    if options.measured_jobs is None:
        return
    first, stop = options.measured_jobs
    if stop > MAX_JOBS:
        raise ConfigError(f"window {first}:{stop}: at most {MAX_JOBS} jobs (measured_jobs)")
    if not 0 <= first < stop:
        raise ConfigError(f"window {first}:{stop}: must be S:E with 0 <= S < E (measured_jobs)")
    if n_jobs is not None and stop > n_jobs:
        raise ConfigError(
            f"window {first}:{stop}: only {n_jobs} jobs of the trace can run here (measured_jobs)"
        )


def _check_ideal(options: SimulationOptions) -> None:
    """Refuse options about rounds and starts for a run without them."""
    ground_truth = options.ground_truth or GroundTruth()
    given = {
        "a length of rounds": options.round_s is not None,
        "preemption_hysteresis": options.preemption_hysteresis is not None,
        "a solve interval": options.solve_interval_s is not None,
        "a time for solves": options.solve_s > 0,
        "restart costs": ground_truth.restart_costs != RestartCosts(),
        "resume costs": ground_truth.resume_costs is not None,
        "noise or bias of rates": ground_truth.rate_noise > 0 or ground_truth.rate_bias > 0,
        "early ends": ground_truth.early_termination > 0,
        "the world of Shockwave's release": _named_profile(options).shockwave.released_world,
    }
    for name, there in given.items():
        if there:
            raise ConfigError(f"the ideal has no rounds and no starts: it does not go with {name}")
