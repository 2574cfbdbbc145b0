"""How jobs change their batch size in the default world: as their profile says, and at once.

A job's progress is counted in steps of the batch size in force. Where it crosses into the next stage of its
schedule within a round, it goes on at the rate of the new batch size from there on; the steps of that round
are still counted in the old ones. The change is told at the end of the round. A packed pair runs the whole
round at the rates of its beginning. The part of a job that is done is never changed by a change.
"""

from typing import Any, TypeAlias

import numpy as np

from fairlead.errors import SimulationError
from fairlead.model.adaptation import Adaptation, steps_per_epoch
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.jit import kernel
from fairlead.model.job import Job
from fairlead.model.throughputs import Throughputs

# What the kernels see: (jobs,) first stage, stage behind the last, stage in force, all as positions in
# the (stages,) arrays that follow: first epoch, batch size, row of the throughput table, steps per epoch.
# A job that never changes has no stages.
Table: TypeAlias = tuple[Ints, Ints, Ints, Floats, Ints, Ints, Floats]
TABLE = "Tuple((i8[::1], i8[::1], i8[::1], f8[::1], i8[::1], i8[::1], f8[::1]))"

_NEAR = 1e-9  # epochs before its beginning at which a stage counts as reached


class Stages:
    """The stages of every job ever submitted, by order of submission."""

    def __init__(self, throughputs: Throughputs) -> None:
        self.throughputs = throughputs
        self.jobs = 0
        self.used = False  # has any job several stages?
        self._first: Ints = np.zeros(64, np.int64)
        self._behind: Ints = np.zeros(64, np.int64)
        self._now: Ints = np.zeros(64, np.int64)
        self._stages = 0
        self._epoch: Floats = np.zeros(64)
        self._batch: Ints = np.zeros(64, np.int64)
        self._kind: Ints = np.zeros(64, np.int64)
        self._per_epoch: Floats = np.zeros(64)
        self._view()

    def _view(self) -> None:
        self.table: Table = (
            self._first,
            self._behind,
            self._now,
            self._epoch,
            self._batch,
            self._kind,
            self._per_epoch,
        )

    def batch(self, jobs: Ints) -> Ints:
        """(jobs,) batch size in force of jobs that have stages; jobs: positions."""
        return self._batch[self._now[jobs]]

    def add(self, job: Job, follows: bool = True, steps_done: float = 0.0) -> None:
        """A job at the end; follows: if not, it goes by other rules than its profile; steps_done: at the
        batch size of its family, where it has begun before. It has no stages either where that is not the
        batch size of the stage which it has then reached: it goes its own way."""
        if self.jobs == len(self._first):
            for name in ("_first", "_behind", "_now"):
                setattr(self, name, _doubled(getattr(self, name)))
            self._view()
        adaptation = job.adaptation if follows else None
        stage = 0 if adaptation is None else _stage(job, adaptation, steps_done)
        if adaptation is not None and len(adaptation.schedule) > 1 and stage is not None:
            samples, schedule = adaptation.samples, adaptation.schedule
            at = self._room_for(len(schedule))
            self._epoch[at] = [epoch for epoch, _ in schedule]
            self._batch[at] = [batch for _, batch in schedule]
            self._kind[at] = [self._row(job, batch) for _, batch in schedule]
            self._per_epoch[at] = [steps_per_epoch(samples, batch) for _, batch in schedule]
            self._first[self.jobs] = at.start
            self._now[self.jobs] = at.start + stage
            self._behind[self.jobs] = at.stop
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

    def _room_for(self, stages: int) -> slice:
        while self._stages + stages > len(self._epoch):
            for name in ("_epoch", "_batch", "_kind", "_per_epoch"):
                setattr(self, name, _doubled(getattr(self, name)))
            self._view()
        self._stages += stages
        return slice(self._stages - stages, self._stages)


def _stage(job: Job, adaptation: Adaptation, steps_done: float) -> int | None:
    """The stage of a job's schedule that it has reached, None where its batch size is not that stage's."""
    if steps_done <= 0:
        return 0
    batch = job.job_type.batch_size or adaptation.schedule[0][1]
    progress = steps_done / steps_per_epoch(adaptation.samples, batch) + _NEAR
    stage = int(np.searchsorted(adaptation.starts, progress, side="right")) - 1
    return stage if adaptation.schedule[stage][1] == batch else None


def _doubled(old: Any) -> Any:
    return np.concatenate([old, np.zeros_like(old)])


@kernel(f"UniTuple(f8, 2)(i8, f8, f8, f8, f8, i8, f8[:,::1], {TABLE})")
def advance(
    j: int,
    done: float,
    room_s: float,
    most: float,
    rate: float,
    slot: int,
    rates: Floats,
    table: Table,
) -> tuple[float, float]:
    """(steps, seconds) that a job alone does in a time, stage by stage, and at most ``most`` steps; both
    counted at the batch size in force. Where it comes to a stage that cannot run here, it stays before it,
    in the way for all of the time.

    rate: its true steps/s in the stage in force; rates: (kinds, slots), to which the true ones of the
    other stages have the same ratio.
    """
    _, behind, now, epoch, _, kind, per_epoch = table
    stage = now[j]
    factor = rate / rates[kind[stage], slot] * per_epoch[stage]
    steps = 0.0
    spent_s = 0.0
    length = np.inf
    if stage + 1 < behind[j]:
        length = max(epoch[stage + 1] * per_epoch[stage] - done, 0.0)
    while True:
        wanted = min(length, most - steps)
        possible = rate * (room_s - spent_s)
        if possible <= wanted:
            return steps + possible, room_s
        steps += wanted
        spent_s += wanted / rate
        stage += 1
        if length > wanted or stage >= behind[j] or steps >= most:
            return steps, spent_s
        rate = rates[kind[stage], slot] * factor / per_epoch[stage]
        if rate <= 0:
            return steps, room_s
        length = np.inf
        if stage + 1 < behind[j]:
            length = (epoch[stage + 1] - epoch[stage]) * per_epoch[now[j]]


@kernel(f"b1[:,::1](i8[:,::1], f8[::1], f8[::1], f8[::1], i8[::1], {TABLE})")
def follow(
    index: Ints, total: Floats, last: Floats, done: Floats, kind: Ints, table: Table
) -> Bools:
    """Bring jobs into the stages that they have reached, in place; who has changed its batch size.

    index: (units, width) positions of jobs, -1 = none; total, last, done, kind: (jobs,), rescaled so
    that the part of the job that is done stays the same.
    """
    _, behind, now, epoch, batch, kinds, per_epoch = table
    changed = np.zeros(index.shape, np.bool_)
    for i in range(len(index)):
        for k in range(index.shape[1]):
            j = index[i, k]
            if j < 0 or behind[j] == 0 or done[j] >= min(total[j], last[j]):
                continue
            old = now[j]
            progress = done[j] / per_epoch[old] + _NEAR
            new = old
            while new + 1 < behind[j] and epoch[new + 1] <= progress:
                new += 1
            if new == old:
                continue
            now[j] = new
            if batch[new] == batch[old]:
                continue
            scale = per_epoch[new] / per_epoch[old]
            ends_early = last[j] < total[j]
            total[j] *= scale
            done[j] *= scale
            last[j] = last[j] * scale if ends_early else total[j]
            kind[j] = kinds[new]
            changed[i, k] = True
    return changed
