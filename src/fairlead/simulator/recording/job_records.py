"""The records of each job while a run goes on."""

import numpy as np

from fairlead.model.arrays import Floats, Ints
from fairlead.model.commands import EndJobs
from fairlead.model.events import JobsSubmitted, RequirementsChanged
from fairlead.model.job import Job
from fairlead.model.job_index import JobIndex
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.recording.fair_time import IsolatedTime, TargetRunTime
from fairlead.simulator.recording.job_columns import JobColumns
from fairlead.simulator.recording.recorder_kernels import EndedJobs, end_jobs


class JobRecords:
    """Jobs by order of submission. Those in the system are also found by their ids."""

    def __init__(self, throughputs: Throughputs) -> None:
        """throughputs: one column per accelerator type."""
        self.throughputs = throughputs
        self.jobs: list[Job] = []
        self.columns = JobColumns(len(throughputs.slots))
        self.index = JobIndex()  # of jobs in the system
        self.isolated = IsolatedTime(self.columns, self.index)
        self.targets = TargetRunTime(self.columns, self.index)

    def submit(self, event: JobsSubmitted, round_: int) -> None:
        """Jobs come. round_: the first that they may run in."""
        for job in event.jobs:
            row = self.throughputs.row(job.job_type)
            assert row is not None
            self.index.add(job.id, len(self.jobs))
            self.jobs.append(job)
            rate = self.throughputs.rate[row]
            self.columns.add(event.time_s, job.scale_factor, rate, job.total_steps, round_)

    def adapt(self, event: RequirementsChanged, capacity: Floats) -> None:
        """Jobs go on at other batch sizes. capacity: (slots,) devices that work."""
        col = self.columns.arrays
        i = self.index.find(event.jobs[:, None])[:, 0]
        there = np.flatnonzero(i >= 0)
        i = i[there]
        self.isolated.add(i)
        for job, batch in zip(i.tolist(), event.batch[there].tolist(), strict=True):
            row = self.throughputs.row(self.jobs[job].job_type.with_batch_size(batch))
            assert row is not None
            col.rate[job] = self.throughputs.rate[row]
        col.total_steps[i] = event.total_steps[there]
        col.steps_done[i] = col.steps_then[i] = event.steps_done[there]
        known = i[col.isolated_rate[i] > 0]
        col.isolated_rate[known] = self.isolated.rate(known, capacity)

    def end(self, command: EndJobs, round_: int) -> None:
        """Jobs leave. round_: the first that they no longer run in."""
        i = np.array([self.index.pop(job) for job in command.jobs.tolist()], np.int64)
        end_jobs(i, EndedJobs(command.end, command.end_s, round_), self.columns.ends)
        self.isolated.add(i)
        self.targets.add(i, command.end_s)

    def close(self, now_s: float) -> None:
        """The run is over: count the target run time of jobs in the system."""
        there = self.index.row_of_id()
        self.targets.add(there, np.full(len(there), now_s))

    def rounds_of_jobs(self, rounds: int) -> tuple[Ints, Ints]:
        """(jobs,) the first round that each job might have run in, and the one after the last. rounds: of
        the run."""
        col, n = self.columns.arrays, self.columns.n
        end = np.where(col.end[:n] > 0, col.end_round[:n], rounds)
        return col.first_round[:n], end
