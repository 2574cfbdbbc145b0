"""The true state of the jobs of a simulation."""

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.job import Job
from fairlead.model.job_index import JobIndex


@dataclass(frozen=True, slots=True)
class Adopted:
    """A job that was there before the simulation begins, as it is now: family and total steps at the
    batch size in force."""

    job: Job
    steps_done: float
    started: bool  # has it run? Then to start on other devices costs what a restart costs
    owes_s: float = 0.0  # of a start that is under way, still to be spent


class TrueJobs:
    """The true state of every job ever submitted, by order of submission."""

    def __init__(self, slots: int) -> None:
        self.index = JobIndex()  # of jobs in the system
        self.n = 0
        self.kind: Ints = np.zeros(64, np.int64)
        self.total: Floats = np.zeros(64)
        self.last: Floats = np.zeros(64)  # the step at which it really ends
        self.done: Floats = np.zeros(64)
        self.restart_s: Floats = np.zeros(64)
        self.owes_s: Floats = np.zeros(64)  # start-up time still to be spent
        self.started: Bools = np.zeros(64, np.bool_)
        self.bias: Floats = np.ones((64, slots))
        self.ran_in: Ints = np.full(64, -2, np.int64)  # the last round in which it ran
        self.ones: Floats = np.ones(64)  # as long as the others
        self.nothing: Floats = np.zeros(64)

    def add(
        self, job: int, kind: int, total: float, last: float, restart_s: float, bias: Floats
    ) -> None:
        """A job at the end."""
        i = self.n
        if i == len(self.kind):
            for name in ("kind", "total", "last", "done", "restart_s", "owes_s", "started", "bias"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
            self.ran_in = np.append(self.ran_in, np.full(i, -2, np.int64))
            self.ones, self.nothing = np.ones(2 * i), np.zeros(2 * i)
        self.kind[i], self.total[i], self.last[i] = kind, total, last
        self.restart_s[i], self.bias[i] = restart_s, bias
        self.index.add(job, i)
        self.n += 1

    def adopt(self, one: Adopted) -> None:
        """The job at the end is this one."""
        i = self.n - 1
        self.done[i], self.started[i], self.owes_s[i] = one.steps_done, one.started, one.owes_s
