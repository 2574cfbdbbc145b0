"""What is true in the simulated world, as against what the scheduler believes."""

from dataclasses import dataclass, field

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.arrays import Floats
from fairlead.model.job import Job, RestartCosts


@dataclass(frozen=True, slots=True)
class World:
    """Everything that can go otherwise than planned. All of it is off by default, and seeded."""

    restart_costs: RestartCosts = field(default_factory=RestartCosts)
    rate_noise: float = (
        0.0  # sigma of a lognormal factor with mean 1 on each unit's rate, each round
    )
    rate_bias: float = 0.0  # sigma of a lognormal factor with mean 1 on each job's rates, for good
    mtbf_s: float | None = None  # mean time between failures of a node; None = nodes never fail
    mttr_s: float = 3600.0  # mean time to repair a node
    early_end: float = 0.0  # probability that a job is killed or crashes before its last step
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rate_noise", "rate_bias", "early_end"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise ConfigError(f"{name}: must be a number >= 0, got {value}")
        if self.early_end > 1:
            raise ConfigError(f"early_end: must be a probability, got {self.early_end}")
        if self.mtbf_s is not None and not 0 < self.mtbf_s < np.inf:
            raise ConfigError(f"mtbf_s: must be a number > 0, got {self.mtbf_s}")
        if not 0 < self.mttr_s < np.inf:
            raise ConfigError(f"mttr_s: must be a number > 0, got {self.mttr_s}")

    def last_step(self, job: Job) -> float:
        """The step at which the job ends: its total, or earlier where its owner or a crash ends it."""
        if self.early_end <= 0:
            return job.total_steps
        draw = np.random.default_rng((self.seed, 1, job.id)).random(2)
        return job.total_steps * (draw[1] if draw[0] < self.early_end else 1.0)

    def bias(self, job: Job, slots: int) -> Floats:
        """(slots,) true rate over believed rate, for the whole life of the job."""
        if self.rate_bias <= 0:
            return np.ones(slots)
        rng = np.random.default_rng((self.seed, 2, job.id))
        return _lognormal(rng, self.rate_bias, slots)

    def noise(self, round_: int, units: int) -> Floats:
        """(units,) factor on the rates of one round."""
        rng = np.random.default_rng((self.seed, 3, round_))
        return _lognormal(rng, self.rate_noise, units)

    def node_clock(self, node: int) -> np.random.Generator:
        """The source of one node's failures and repairs."""
        return np.random.default_rng((self.seed, 4, node))


def _lognormal(rng: np.random.Generator, sigma: float, size: int) -> Floats:
    return np.exp(rng.normal(-sigma * sigma / 2, sigma, size))
