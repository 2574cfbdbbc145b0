"""Objectives over the configurations of elastic jobs. Each is a sum over jobs, so that one solver has them
all (``solve.multiple_choice``)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.policies.elastic.elastic_round import NOTHING, ElasticRound
from fairlead.policies.solve.multiple_choice import MultipleChoice


class ElasticObjective(Protocol):
    """States what is best."""

    def program(self, jobs: ElasticRound) -> MultipleChoice:
        """Return the program whose best answer is the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sia:
    """Sia (SOSP'23, section 3.4): the goodput of a job relative to its slowest configuration, to a power
    below 0, times what it has trained of its life if it is moved; the sum over jobs is least."""

    power: float = -0.5
    idle_cost: float = 1.1  # of a job without devices

    def program(self, jobs: ElasticRound) -> MultipleChoice:
        """See ``ElasticObjective``."""
        cost = _power(jobs.relative() * jobs.restart_factor(), self.power)
        return jobs.program(-cost, np.full(len(cost), -self.idle_cost))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pollux:
    """Pollux (OSDI'21, section 4.2.1) with p = -1: the harmonic mean of the jobs' goodputs relative to
    those with a fair share of the devices. A job without devices counts as if it ran at a thousandth of
    that."""

    idle_cost: float = 1e3

    def program(self, jobs: ElasticRound) -> MultipleChoice:
        """See ``ElasticObjective``."""
        speedup = jobs.goodput / jobs.fair_share() * jobs.restart_factor()
        return jobs.program(-_power(speedup, -1.0), np.full(len(speedup), -self.idle_cost))


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalGoodput:
    """The sum of the jobs' goodputs, each relative to its slowest configuration."""

    def program(self, jobs: ElasticRound) -> MultipleChoice:
        """See ``ElasticObjective``."""
        goodput = jobs.relative() * jobs.restart_factor()
        return jobs.program(goodput, np.zeros(len(goodput)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticSrpt:
    """Shortest remaining processing time, for jobs whose devices help less the more they have.

    As ``Sia``, but a job counts by the inverse root of the time that it has left, and a move by the part
    that it takes of the time for which the new configuration is of use: until the job ends, ``horizon_s``
    at most. So short jobs get more and are not moved shortly before their end. The weights are a compromise
    between those that are optimal for a batch of jobs with equal speed-ups (heSRPT: Berg, Vesilo and
    Harchol-Balter, Performance Evaluation 144, 2020), which leave long jobs nothing, and equal ones.
    """

    power: float = -0.5
    weight_power: float = -0.5
    idle_cost: float = 1.5  # of a job without devices, times its weight
    horizon_s: float = 300.0

    def program(self, jobs: ElasticRound) -> MultipleChoice:
        """See ``ElasticObjective``."""
        relative, known = jobs.relative(), np.isfinite(jobs.remaining_s)
        usual_s = np.median(jobs.remaining_s[known]) if known.any() else self.horizon_s
        remaining_s = np.where(known, jobs.remaining_s, usual_s)
        with np.errstate(divide="ignore"):
            left_s = np.where(known[:, None], remaining_s[:, None] / relative, np.inf)
        restart_s = jobs.restart_s[:, None]
        used_s = np.minimum(left_s + restart_s, self.horizon_s)
        moved = jobs.kept(np.maximum(1 - restart_s / used_s, 0.0))
        weight = np.maximum(remaining_s, 1.0) ** self.weight_power
        cost = _power(relative * moved, self.power) * weight[:, None]
        return jobs.program(-cost, -self.idle_cost * weight)


def _power(value: Floats, exponent: float) -> Floats:
    """A power below zero of what may be zero."""
    return np.asarray(np.maximum(value, NOTHING) ** exponent)


OBJECTIVES: dict[str, Callable[[], ElasticObjective]] = {
    "elastic_srpt": ElasticSrpt,
    "goodput": TotalGoodput,
    "pollux": Pollux,
    "sia": Sia,
}
