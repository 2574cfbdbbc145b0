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
class JobUnderWay:
    """A job that runs or waits when the simulation begins, as it is then: family and total steps at the
    batch size in force."""

    job: Job
    steps_done: float
    started: bool  # has it run? If so, to start on other devices costs what a restart costs
    start_left_s: float = 0.0  # seconds of a start under way that are still to come


class JobArrays(NamedTuple):
    """The true state of jobs as kernels see and change it: (jobs,) each, by order of submission, with room
    for more behind them."""

    table_row: Ints1  # of the throughput table
    total_steps: Floats1
    last_step: Floats1  # at which the job really ends
    steps_done: Floats1
    restart_s: Floats1  # what a start costs
    start_left_s: Floats1  # seconds of start-up still to come
    started: Bools1
    bias: Floats2  # (jobs, slots) factors of the rates in the table
    last_round: Ints1  # the last round in which it ran, -2 before


class TrueJobs:
    """The true state of every job ever submitted."""

    def __init__(self, slots: int) -> None:
        self.index = JobIndex()  # of jobs in the system
        self.n = 0
        self.elastic: set[int] = set()  # positions of jobs whose number of devices changes
        self.arrays = JobArrays(
            table_row=np.zeros(64, np.int64),
            total_steps=np.zeros(64),
            last_step=np.zeros(64),
            steps_done=np.zeros(64),
            restart_s=np.zeros(64),
            start_left_s=np.zeros(64),
            started=np.zeros(64, np.bool_),
            bias=np.zeros((64, slots)),
            last_round=np.zeros(64, np.int64),
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
        jobs.last_round[i] = -2
        self.index.add(job.id, i)
        if job.devices:
            self.elastic.add(i)
        self.n += 1

    def set_under_way(self, one: JobUnderWay) -> None:
        """Give the job added last what it has done already."""
        i, jobs = self.n - 1, self.arrays
        jobs.steps_done[i], jobs.started[i], jobs.start_left_s[i] = (
            one.steps_done,
            one.started,
            one.start_left_s,
        )
