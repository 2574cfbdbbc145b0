"""Configurations, the ways in which jobs run, and what time spent so adds to a linear objective.

A configuration is a slot type for a job alone, or a slot type and a pair of classes.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.policies.solve.share_problem import ShareProblem


@dataclass(frozen=True, slots=True)
class Configurations:
    """Ways to run: on a slot type, alone or in a pair. Those of jobs alone come first."""

    first: Ints  # (configurations,) class
    second: Ints  # (configurations,) class of the partner, -1 = alone; may be the class itself
    slot: Ints  # (configurations,)
    rate: Floats  # (configurations, 2) steps/s of the member of first, and of the member of second

    @property
    def solo_count(self) -> int:
        """Return how many are of one job."""
        return int(np.count_nonzero(self.second < 0))

    def plus(self, other: "Configurations") -> "Configurations":
        """Return these configurations, followed by others."""
        return Configurations(
            np.concatenate([self.first, other.first]),
            np.concatenate([self.second, other.second]),
            np.concatenate([self.slot, other.slot]),
            np.concatenate([self.rate, other.rate]),
        )


@dataclass(frozen=True, slots=True)
class LinearObjective:
    """A linear function of the shares: sum_a (value_c rate_a - cost_slot(a) s_a) y_a, over the members c
    of each configuration a; where value is by class, that is
    sum_c value_c n_c t_c - sum_a cost_slot(a) s_a y_a."""

    value: Floats  # (classes,), or (classes, slots) where it depends on the slot type, per step/s
    cost: Floats  # (slots,) per device


def solo_configurations(problem: ShareProblem) -> Configurations:
    """Every slot type on which a job of a class can run alone, by class."""
    first, slot = np.nonzero(problem.rate > 0)
    rate = np.zeros((len(first), 2))
    rate[:, 0] = problem.rate[first, slot]
    return Configurations(first, np.full(len(first), -1), slot, rate)


def value_by_slot(value: Floats, problem: ShareProblem) -> Floats:
    """(classes, slots) values per step/s; a copy."""
    per_slot = value if value.ndim == 2 else value[:, None]
    return np.broadcast_to(per_slot, problem.rate.shape).copy()


def gain_per_time(
    measure: LinearObjective,
    configurations: Configurations,
    problem: ShareProblem,
    pair_penalty: float,
) -> Floats:
    """(configurations,) what a unit of time adds to a measure, where each device of a pair costs
    ``pair_penalty``."""
    pair = configurations.second >= 0
    other = np.where(pair, configurations.second, 0)
    value = value_by_slot(measure.value, problem)
    gain = value[configurations.first, configurations.slot] * configurations.rate[:, 0]
    gain += np.where(pair, value[other, configurations.slot] * configurations.rate[:, 1], 0.0)
    cost = measure.cost * problem.slot_devices
    gain -= problem.scale[configurations.first] * (cost[configurations.slot] + pair_penalty * pair)
    return np.asarray(gain)
