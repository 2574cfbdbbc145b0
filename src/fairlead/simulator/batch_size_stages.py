"""Jobs change their batch size in the default world: as their profile says, and at once.

A job's progress is counted in steps of the batch size in force. Where it crosses into the next stage of its
schedule within a round, it goes on at the rate of the new batch size from there on; the steps of that round
are still counted in the old ones. The change is reported at the end of the round. A packed pair runs the
whole round at the rates of its beginning. The part of a job that is done is never changed by a change.
"""

from typing import NamedTuple

import numpy as np

from fairlead.errors import SimulationError
from fairlead.model.adaptation import Adaptation, steps_per_epoch
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Floats1, Ints1, doubled
from fairlead.model.job import Job
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.true_jobs import JobArrays


class StageTable(NamedTuple):
    """The stages of jobs for kernels, by position in (stages,) arrays. Jobs that never change have none."""

    stage_begin: Ints1  # (jobs,) first stage
    stage_stop: Ints1  # (jobs,) stage after the last, 0 = the job has no stages
    current: Ints1  # (jobs,) stage in force
    first_epoch: Floats1  # (stages,)
    batch_size: Ints1  # (stages,)
    table_row: Ints1  # (stages,) of the throughput table
    steps_per_epoch: Floats1  # (stages,)


_EPOCH_TOLERANCE = 1e-9  # epochs before its beginning at which a stage counts as reached


class BatchSizeStages:
    """The stages of every job ever submitted, by order of submission."""

    def __init__(self, throughputs: Throughputs) -> None:
        self.throughputs = throughputs
        self.jobs = 0
        self.used = False  # has any job several stages?
        self._stages = 0
        self.table = StageTable(
            stage_begin=np.zeros(64, np.int64),
            stage_stop=np.zeros(64, np.int64),
            current=np.zeros(64, np.int64),
            first_epoch=np.zeros(64),
            batch_size=np.zeros(64, np.int64),
            table_row=np.zeros(64, np.int64),
            steps_per_epoch=np.zeros(64),
        )

    def batch(self, jobs: Ints) -> Ints:
        """(jobs,) batch size in force of jobs that have stages; jobs: positions."""
        return self.table.batch_size[self.table.current[jobs]]

    def add(self, job: Job, by_profile: bool = True, steps_done: float = 0.0) -> None:
        """Add a job at the end. by_profile: if not, it goes by other rules than its profile; steps_done: at
        the batch size of its family, where it has begun before. It has no stages either where that is not the
        batch size of the stage which it has then reached: it goes its own way."""
        if self.jobs == len(self.table.stage_begin):
            self._double("stage_begin", "stage_stop", "current")
        adaptation = job.adaptation if by_profile else None
        stage = 0 if adaptation is None else _stage(job, adaptation, steps_done)
        if adaptation is not None and len(adaptation.schedule) > 1 and stage is not None:
            samples, schedule = adaptation.samples, adaptation.schedule
            at = self._allocate(len(schedule))
            table = self.table
            table.first_epoch[at] = [epoch for epoch, _ in schedule]
            table.batch_size[at] = [batch for _, batch in schedule]
            table.table_row[at] = [self._row(job, batch) for _, batch in schedule]
            table.steps_per_epoch[at] = [steps_per_epoch(samples, batch) for _, batch in schedule]
            table.stage_begin[self.jobs] = at.start
            table.current[self.jobs] = at.start + stage
            table.stage_stop[self.jobs] = at.stop
            self.used = True
        self.jobs += 1

    def _row(self, job: Job, batch: int) -> int:
        job_type = job.job_type.with_batch_size(batch)
        row = self.throughputs.row(job_type)
        if row is None:
            raise SimulationError(
                f"job {job.id}: it comes to train as {job_type.name!r}, for which there is no rate at "
                f"scale factor {job.scale_factor}"
            )
        return row

    def _allocate(self, stages: int) -> slice:
        while self._stages + stages > len(self.table.first_epoch):
            self._double("first_epoch", "batch_size", "table_row", "steps_per_epoch")
        self._stages += stages
        return slice(self._stages - stages, self._stages)

    def _double(self, *names: str) -> None:
        columns = self.table._asdict()
        self.table = self.table._replace(**{name: doubled(columns[name]) for name in names})


def _stage(job: Job, adaptation: Adaptation, steps_done: float) -> int | None:
    """The stage of a job's schedule that it has reached, None where its batch size is not that stage's."""
    if steps_done <= 0:
        return 0
    batch = job.job_type.batch_size or adaptation.schedule[0][1]
    progress = steps_done / steps_per_epoch(adaptation.samples, batch) + _EPOCH_TOLERANCE
    stage = int(np.searchsorted(adaptation.starts, progress, side="right")) - 1
    return stage if adaptation.schedule[stage][1] == batch else None


class SoloRun(NamedTuple):
    """A job that runs alone, as a round begins."""

    job: int  # position
    slot: int  # column of the throughput table
    steps_done: float
    rate: float  # its true steps/s in the stage in force


@kernel("UniTuple(f8, 2)(SoloRun, f8, f8, f8[:,::1], StageTable)", allocates=False)
def advance(
    run: SoloRun, available_s: float, most: float, rates: Floats, table: StageTable
) -> tuple[float, float]:
    """Return (steps, seconds) that a job alone does in ``available_s``, stage by stage, and at most ``most``
    steps; both counted at the batch size in force. Where it comes to a stage that cannot run here, it stays
    before it, in the way for all of the time.

    rates: (rows, slots), to which the true ones of the other stages have the same ratio.
    """
    rate, slot = run.rate, run.slot
    stage_stop = table.stage_stop[run.job]
    stage = table.current[run.job]
    began_per_epoch = table.steps_per_epoch[stage]
    factor = rate / rates[table.table_row[stage], slot] * began_per_epoch
    steps = 0.0
    spent_s = 0.0
    length = np.inf
    if stage + 1 < stage_stop:
        length = max(table.first_epoch[stage + 1] * began_per_epoch - run.steps_done, 0.0)
    while True:
        needed = min(length, most - steps)
        possible = rate * (available_s - spent_s)
        if possible <= needed:
            return steps + possible, available_s
        steps += needed
        spent_s += needed / rate
        stage += 1
        if length > needed or stage >= stage_stop or steps >= most:
            return steps, spent_s
        rate = rates[table.table_row[stage], slot] * factor / table.steps_per_epoch[stage]
        if rate <= 0:
            return steps, available_s
        length = np.inf
        if stage + 1 < stage_stop:
            length = (table.first_epoch[stage + 1] - table.first_epoch[stage]) * began_per_epoch


@kernel("b1[:,::1](i8[:,::1], JobArrays, StageTable)")
def change_stages(index: Ints, jobs: JobArrays, table: StageTable) -> Bools:
    """Bring jobs into the stages that they have reached, in place, and rescale their steps so that the part
    of the job that is done stays the same. Return (groups, width): whose batch size has changed.

    index: (groups, width) positions of jobs, -1 = none.
    """
    changed = np.zeros(index.shape, np.bool_)
    for i in range(len(index)):
        for k in range(index.shape[1]):
            j = index[i, k]
            if j < 0 or table.stage_stop[j] == 0:
                continue
            if jobs.steps_done[j] >= min(jobs.total_steps[j], jobs.last_step[j]):
                continue
            old = table.current[j]
            progress = jobs.steps_done[j] / table.steps_per_epoch[old] + _EPOCH_TOLERANCE
            new = old
            while new + 1 < table.stage_stop[j] and table.first_epoch[new + 1] <= progress:
                new += 1
            if new == old:
                continue
            table.current[j] = new
            if table.batch_size[new] == table.batch_size[old]:
                continue
            scale = table.steps_per_epoch[new] / table.steps_per_epoch[old]
            ends_early = jobs.last_step[j] < jobs.total_steps[j]
            jobs.total_steps[j] *= scale
            jobs.steps_done[j] *= scale
            jobs.last_step[j] = jobs.last_step[j] * scale if ends_early else jobs.total_steps[j]
            jobs.table_row[j] = table.table_row[new]
            changed[i, k] = True
    return changed
