"""The true state of the jobs of a simulation."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Floats
from fairlead.model.jit_records import Bools1, Floats1, Floats2, Ints1, doubled
from fairlead.model.job import Job
from fairlead.model.job_index import JobIndex
from fairlead.simulator.ground_truth import GroundTruth


@dataclass(frozen=True, slots=True)
class Adopted:
    """A job that was there before the simulation begins, as it is now: family and total steps at the
    batch size in force."""

    job: Job
    steps_done: float
    started: bool  # has it run? Then to start on other devices costs what a restart costs
    owes_s: float = 0.0  # of a start that is under way, still to be spent


class JobArrays(NamedTuple):
    """The true state of jobs as kernels see and change it: (jobs,) each, by order of submission, with room
    for more behind them."""

    table_row: Ints1  # of the throughput table
    total_steps: Floats1
    last_step: Floats1  # at which the job really ends
    steps_done: Floats1
    restart_s: Floats1  # what a start costs
    owed_s: Floats1  # start-up time still to be spent
    started: Bools1
    bias: Floats2  # (jobs, slots) factors of the rates in the table
    ran_in: Ints1  # the last round in which it ran, -2 before


class TrueJobs:
    """The true state of every job ever submitted."""

    def __init__(self, slots: int) -> None:
        self.index = JobIndex()  # of jobs in the system
        self.n = 0
        self.arrays = JobArrays(
            table_row=np.zeros(64, np.int64),
            total_steps=np.zeros(64),
            last_step=np.zeros(64),
            steps_done=np.zeros(64),
            restart_s=np.zeros(64),
            owed_s=np.zeros(64),
            started=np.zeros(64, np.bool_),
            bias=np.zeros((64, slots)),
            ran_in=np.zeros(64, np.int64),
        )

    def add(self, job: Job, *, table_row: int, truth: GroundTruth, bias: Floats) -> None:
        """Add a job at the end. bias: (slots,) factors of its rates."""
        i = self.n
        if i == len(self.arrays.table_row):
            self.arrays = JobArrays(*map(doubled, self.arrays))
        jobs = self.arrays
        jobs.table_row[i] = table_row
        jobs.total_steps[i] = job.total_steps
        jobs.last_step[i] = truth.last_step(job)
        jobs.restart_s[i] = truth.restart_costs.of(job)
        jobs.started[i] = truth.first_starts_cost
        jobs.bias[i] = bias
        jobs.ran_in[i] = -2
        self.index.add(job.id, i)
        self.n += 1

    def adopt(self, one: Adopted) -> None:
        """The job at the end is this one."""
        i, jobs = self.n - 1, self.arrays
        jobs.steps_done[i], jobs.started[i], jobs.owed_s[i] = (
            one.steps_done,
            one.started,
            one.owes_s,
        )
