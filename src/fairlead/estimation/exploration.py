"""Exploration: a few jobs of which too little is known are shown better than they are believed to be."""

import numpy as np

from fairlead.estimation.job_table import EstimatedJobs
from fairlead.model.arrays import Floats

EXPLORATION_BUDGET = 1.0  # sigmas that exploration adds
UNCERTAIN_SIGMA = 0.2  # below which there is nothing to explore
EXPLORATION_ROUNDS = 5  # rounds after which exploration that nobody took up ends


class Exploration:
    """How much may be explored with, and whether there is anything to explore."""

    def __init__(self, share: float) -> None:
        """share: devices that may be explored with in each round."""
        self._share = share
        self._budget = 0.0  # device-rounds
        self._uncertain = False  # whether there is a job that may be explored with

    def next_round(self, jobs: EstimatedJobs) -> bool:
        """A round is over, which explorers have waited; whether beliefs are to be said anew."""
        waiting = jobs.dare >= 0
        jobs.dared[waiting] += 1
        self._budget = min(self._budget + self._share, max(1.0, self._share))
        late = bool((jobs.dared[waiting] >= EXPLORATION_ROUNDS).any())
        return late or (self._uncertain and self._budget >= 1)

    def explore(self, jobs: EstimatedJobs, rate: Floats, sigma: Floats) -> None:
        """Choose jobs as far as the budget goes, the least known first, and raise the rates of all that
        explore, in place. rate: (jobs, slots); sigma: (jobs, slots) of its logarithm."""
        jobs.dare[jobs.dared >= EXPLORATION_ROUNDS] = -1
        open_ = np.where(jobs.cannot | (jobs.weight > 0), 0.0, sigma)
        best = open_.argmax(axis=1)
        most = open_[np.arange(jobs.n), best]
        ready = (jobs.dare < 0) & (jobs.dared < EXPLORATION_ROUNDS) & (most > UNCERTAIN_SIGMA)
        self._uncertain = bool(ready.any())
        ready &= jobs.scale <= self._budget
        for row in np.flatnonzero(ready)[np.argsort(-most[ready], kind="stable")].tolist():
            if jobs.scale[row] <= self._budget:
                self._budget -= float(jobs.scale[row])
                jobs.dare[row], jobs.dared[row] = best[row], 0
        bold = np.flatnonzero(jobs.dare >= 0)
        slot = jobs.dare[bold]
        rate[bold, slot] *= np.exp(EXPLORATION_BUDGET * sigma[bold, slot])
