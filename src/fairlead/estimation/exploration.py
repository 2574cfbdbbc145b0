"""Exploration: a few jobs with uncertain rates are announced as faster than they are believed to be."""

import numpy as np

from fairlead.estimation.job_table import EstimatedJobs, JobBeliefs
from fairlead.model.arrays import Floats, Ints

EXPLORATION_BUDGET = 1.0  # sigmas that exploration adds
UNCERTAIN_SIGMA = 0.2  # below which there is nothing to explore
EXPLORATION_ROUNDS = 5  # rounds after which the exploration of a slot ends without a measurement


class Exploration:
    """The budget of exploration, and whether any job may be explored with."""

    def __init__(self, share: float) -> None:
        """share: devices that may be explored with in each round."""
        self._share = share
        self._budget = 0.0  # device-rounds
        self._may_explore = False  # whether there is a job that may be explored with

    def next_round(self, jobs: JobBeliefs) -> bool:
        """Count a round that has ended. Return whether beliefs are to be announced anew."""
        waiting = jobs.explored_slot >= 0
        jobs.explored_rounds[waiting] += 1
        self._budget = min(self._budget + self._share, max(1.0, self._share))
        late = bool((jobs.explored_rounds[waiting] >= EXPLORATION_ROUNDS).any())
        return late or (self._may_explore and self._budget >= 1)

    def explore(self, jobs: EstimatedJobs, rate: Floats, sigma: Floats) -> None:
        """Choose jobs as far as the budget goes, the least known first, and raise the rates of all that
        explore, in place. rate: (jobs, slots); sigma: (jobs, slots) of its logarithm."""
        evidence, beliefs = jobs.evidence, jobs.beliefs
        beliefs.explored_slot[beliefs.explored_rounds >= EXPLORATION_ROUNDS] = -1
        open_ = np.where(evidence.cannot | (evidence.weight > 0), 0.0, sigma)
        best = open_.argmax(axis=1)
        most = open_[np.arange(jobs.n), best]
        ready = (beliefs.explored_slot < 0) & (beliefs.explored_rounds < EXPLORATION_ROUNDS)
        ready &= most > UNCERTAIN_SIGMA
        self._may_explore = bool(ready.any())
        ready &= evidence.scale <= self._budget
        for row in np.flatnonzero(ready)[np.argsort(-most[ready], kind="stable")].tolist():
            if evidence.scale[row] <= self._budget:
                self._budget -= float(evidence.scale[row])
                beliefs.explored_slot[row], beliefs.explored_rounds[row] = best[row], 0
        exploring = np.flatnonzero(beliefs.explored_slot >= 0)
        slot = beliefs.explored_slot[exploring]
        rate[exploring, slot] *= np.exp(EXPLORATION_BUDGET * sigma[exploring, slot])

    @staticmethod
    def measured(jobs: JobBeliefs, row: Ints, slot: Ints) -> None:
        """Jobs whose slot has been measured explore it no longer."""
        jobs.explored_slot[row[jobs.explored_slot[row] == slot]] = -1
