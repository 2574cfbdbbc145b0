"""The truth of the simulated world, as against what the scheduler believes."""

from dataclasses import dataclass, field

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.argument_checks import (
    BOOLEAN,
    NUMBER,
    WHOLE_NUMBER,
    check_fields,
    instance_of,
    or_none,
)
from fairlead.model.arrays import Floats
from fairlead.model.job import Job, RestartCosts
from fairlead.model.limits import MAX_SECONDS, check_seed


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Everything that can go otherwise than planned. All of it is off by default, and seeded."""

    restart_costs: RestartCosts = field(default_factory=RestartCosts)
    rate_noise: float = (
        0.0  # sigma of a lognormal factor with mean 1 on each job group's rate, each round
    )
    rate_bias: float = 0.0  # sigma of a lognormal factor with mean 1 on each job's rates, for good
    mtbf_s: float | None = None  # mean time between failures of a node; None = nodes never fail
    mttr_s: float = 3600.0  # mean time to repair a node
    early_termination: float = (
        0.0  # probability that a job is killed or crashes before its last step
    )
    seed: int = 0
    resume_costs: RestartCosts | None = (
        None  # of a start on the servers where the job ran last; None = as any other start
    )
    first_starts_cost: bool = False  # as much as restarts; papers have them free

    def __post_init__(self) -> None:
        check_fields(self, _TYPES)
        for name in ("rate_noise", "rate_bias", "early_termination"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) <= 2)
        _check("early_termination", self.early_termination, self.early_termination <= 1)
        if self.mtbf_s is not None:
            _check("mtbf_s", self.mtbf_s, 1 <= self.mtbf_s <= MAX_SECONDS)
        _check("mttr_s", self.mttr_s, 1 <= self.mttr_s <= MAX_SECONDS)
        check_seed(self.seed)

    def last_step(self, job: Job) -> float:
        """The step at which the job ends: its total, or earlier where its owner or a crash ends it."""
        if self.early_termination <= 0:
            return job.total_steps
        uniforms = np.random.default_rng((self.seed, 1, job.id)).random(2)
        return job.total_steps * (uniforms[1] if uniforms[0] < self.early_termination else 1.0)

    def bias(self, job: Job, slots: int) -> Floats:
        """(slots,) true rate over believed rate, for the whole life of the job."""
        if self.rate_bias <= 0:
            return np.ones(slots)
        rng = np.random.default_rng((self.seed, 2, job.id))
        return _lognormal(rng, self.rate_bias, slots)

    def noise(self, round_: int, groups: int) -> Floats:
        """(groups,) factor on the rates of one round."""
        rng = np.random.default_rng((self.seed, 3, round_))
        return _lognormal(rng, self.rate_noise, groups)

    def node_clock(self, node: int) -> np.random.Generator:
        """The source of one node's failures and repairs."""
        return np.random.default_rng((self.seed, 4, node))


_TYPES = {
    "restart_costs": (instance_of(RestartCosts), "RestartCosts"),
    "resume_costs": or_none((instance_of(RestartCosts), "RestartCosts")),
    "rate_noise": NUMBER,
    "rate_bias": NUMBER,
    "mtbf_s": or_none(NUMBER),
    "mttr_s": NUMBER,
    "early_termination": NUMBER,
    "seed": WHOLE_NUMBER,
    "first_starts_cost": BOOLEAN,
}
_REQUIREMENTS = {
    "rate_noise": "rate noise must be a number from 0 to 2",
    "rate_bias": "rate bias must be a number from 0 to 2",
    "early_termination": "the probability of an early end must be from 0 to 1",
    "mtbf_s": f"the mean time between failures must be from 1 to {MAX_SECONDS:g} s",
    "mttr_s": f"the mean time to repair must be from 1 to {MAX_SECONDS:g} s",
}


def _check(name: str, value: float, holds: bool) -> None:
    if not (holds and value < np.inf):
        raise ConfigError(f"{_REQUIREMENTS[name]}, got {value} ({name})")


def _lognormal(rng: np.random.Generator, sigma: float, size: int) -> Floats:
    return np.exp(rng.normal(-sigma * sigma / 2, sigma, size))
