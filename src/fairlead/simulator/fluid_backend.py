"""The ideal that rounds come near to: every job progresses at its shares, all the time.

There are no rounds, hence no devices to choose and no starts. Core, planner and policy are those of any
other simulation, under a profile without rounds (``fairlead.scheduler.mechanism.settings.fluid``):
shares are solved
for whenever jobs come or end and devices fail or are back, and hold until then. Source: Gavel (OSDI'20),
figure 13, whose release has this as an option that does not work.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.allocation import Allocation
from fairlead.model.allocation_sums import throughput
from fairlead.model.arrays import Floats, Ints
from fairlead.model.events import (
    Event,
    ProgressCorrected,
    Solved,
)
from fairlead.model.job import Job
from fairlead.model.pair_rates import pair_table
from fairlead.model.snapshot import Snapshot
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.backend import SimBackend


@dataclass(slots=True)
class _Flow:
    """The shares in force. Arrays are (jobs,)."""

    from_s: float
    reported_s: float  # up to when progress has been told
    jobs: Ints  # ids
    index: Ints  # positions among all jobs
    done: Floats  # steps at from_s
    rate: Floats  # steps/s
    finish_s: Floats  # inf = not at these shares


class FluidBackend(SimBackend):
    """A backend in which jobs flow. It takes the arguments of ``SimBackend``; of its world only failures
    of nodes count, for the rest is about rounds and starts.

    Progress is told as ``ProgressCorrected`` of all jobs, before anything else that happens at that time.
    """

    _flow: _Flow | None = None
    _table: Throughputs | None = None  # the true rates, with the columns of allocations

    def _add(self, job: Job) -> None:
        super()._add(job)
        if self.rounds.stages.used:
            raise ConfigError(
                f"job {job.id}: it changes its batch size, which the ideal without rounds does not know"
            )

    def _ahead(self) -> tuple[float, float, float, float]:
        node_s, arrival_s, answer_s, _ = super()._ahead()
        flow = self._flow
        ends_s = np.inf if flow is None else float(flow.finish_s.min(initial=np.inf))
        return node_s, arrival_s, answer_s, ends_s

    def _earliest(self) -> Event | None:
        first = min(self._ahead())
        if self.stop_at_s is not None:
            first = min(first, self.stop_at_s)
        if self._flow is not None and self._flow.reported_s < first < np.inf:
            return self._end_round(first)
        return super()._earliest()

    def _end_round(self, time_s: float) -> Event:
        """Return the end of the round, with the work done by then."""
        flow = self._flow
        assert flow is not None
        flow.reported_s = time_s
        total = self.rounds.jobs.arrays.total_steps[flow.index]
        done = np.minimum(flow.done + flow.rate * (time_s - flow.from_s), total)
        done[flow.finish_s <= time_s] = total[flow.finish_s <= time_s]
        self.rounds.jobs.arrays.steps_done[flow.index] = done
        return ProgressCorrected(time_s, flow.jobs, done)

    def _answer(self) -> Solved:
        assert self._problem is not None
        snapshot = self._problem.snapshot
        event = super()._answer()
        assert event.allocation is not None
        self._flow = self._flowing(snapshot, event.allocation)
        return event

    def _flowing(self, snapshot: Snapshot, made: Allocation) -> _Flow | None:
        """Jobs at these shares, from now on; None where there is no job."""
        if not len(snapshot.jobs):
            return None
        jobs = snapshot.jobs.copy()
        index = self.rounds.jobs.index.find(jobs[:, None])[:, 0]
        rate = self._rate(snapshot, made, self.rounds.jobs.arrays.table_row[index])
        done = self.rounds.jobs.arrays.steps_done[index]
        left = self.rounds.jobs.arrays.total_steps[index] - done
        lasts_s = np.divide(left, rate, out=np.full(len(jobs), np.inf), where=rate > 0)
        if rate.any():
            self._stalled = False
        return _Flow(
            from_s=self.now_s,
            reported_s=self.now_s,
            jobs=jobs,
            index=index,
            done=done,
            rate=rate,
            finish_s=self.now_s + lasts_s,
        )

    def _rate(self, snapshot: Snapshot, made: Allocation, job_type: Ints) -> Floats:
        """(jobs,) true steps/s. job_type: (jobs,) rows of the true table."""
        if self._table is None or self._table.slots != snapshot.slots:
            self._table = self.rounds.throughputs.columns(snapshot.slots)
        table = self._table
        return throughput(
            snapshot.jobs,
            np.ascontiguousarray(made.job_groups),
            np.ascontiguousarray(made.share),
            table.rate[job_type],
            job_type,
            pair_table(table.pair_rates),
        )
