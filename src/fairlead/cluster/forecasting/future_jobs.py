"""Jobs that are expected to be submitted, as forecasts have them."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from fairlead.cluster.forecasting.arrivals import History
from fairlead.cluster.forecasting.fluid_forecast import FluidJobs, hysteresis
from fairlead.model.job import Arrival, Job
from fairlead.scheduler.core.scheduler import Scheduler


class FutureJobs:
    """Jobs that are expected: of kinds that the scheduler knows, with ids above all others."""

    def __init__(
        self,
        scheduler: Scheduler,
        history: History,
        add_jobs: Sequence[Job],
        now_s: float,
        seed: int,
    ) -> None:
        """add_jobs: that are asked about."""
        self._table, self._seed, self._now_s = scheduler.data.throughputs, seed, now_s
        self._history = history
        self._most = float(scheduler.data.capacity.max(initial=0.0))
        known = [
            *scheduler.data.ledger.jobs.id.tolist(),
            *scheduler.data.paused_jobs.jobs.id.tolist(),
        ]
        seen = [job.id for _, batch in history.batches for job in batch]
        self.first_id = 1 + max([-1, *known, *seen, *(job.id for job in add_jobs)])

    def arrivals(self) -> Iterator[Arrival]:
        """By time; none where no job of the history could run here, for the stream of them has no end."""
        past = (job for _, batch in self._history.batches for job in batch)
        if not any(map(self._can_run, past)):
            return
        for one in self._history.expected(self._now_s, self._seed, self.first_id):
            if self._can_run(one.job):
                yield one

    def _can_run(self, job: Job) -> bool:
        """Return whether the table knows the job's type, on each number of devices that it may have, and a
        type has enough devices that work."""
        numbers = job.devices or (job.scale_factor,)
        job_types = [job.job_type.with_scale_factor(number) for number in numbers]
        known = all(self._table.row(job_type) is not None for job_type in job_types)
        return known and min(numbers) <= self._most

    def fluid(self, s: Scheduler, most: int) -> FluidJobs:
        """Return the jobs after the scheduler's time, at most so many."""
        later = (one for one in self.arrivals() if one.time_s > s.data.now_s)
        found = list(itertools.islice(later, most))
        rows = [s.data.throughputs.row(one.job.job_type) or 0 for one in found]
        steps = s.data.throughputs.rate[np.array(rows, np.int64)]
        rate = np.zeros((len(found), len(s.data.capacity)))
        for slot, type_ in enumerate(s.data.running.topology.accelerator_of_slot.tolist()):
            rate[:, type_] = np.maximum(rate[:, type_], steps[:, slot])
        return FluidJobs(
            job=np.array([one.job.id for one in found], np.int64),
            left=np.array([one.job.total_steps for one in found], np.float64),
            rate=rate,
            scale=np.array([one.job.scale_factor for one in found], np.int64),
            weight=np.array([one.job.weight for one in found], np.float64),
            share=np.zeros_like(rate),
            running_on=np.full(len(found), -1),
            arrive_s=np.array([one.time_s - s.data.now_s for one in found], np.float64),
            kept_s=np.full(len(found), hysteresis(s) * s.data.options.restart_costs.default_s),
        )
