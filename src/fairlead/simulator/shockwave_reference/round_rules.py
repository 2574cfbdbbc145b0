"""The world of Shockwave's released simulator, oddities included: what a round does, and who rescales.

A job that did not run in the round before loses 20 s of its round, unless that is the first of all, or the
job needs no more than the round less 5 s: it has done fewer steps then, though it stops when it would have
stopped anyway. How jobs change their batch size: ``fairlead.simulator.shockwave_reference.rescaling``.
Source: Shockwave (NSDI'23), the
released simulator.
"""

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel
from fairlead.model.jit_records import Bools1
from fairlead.model.job import Job, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.round_kernels import RoundForecast, RoundGroups, add_steps, any_lost
from fairlead.simulator.shockwave_reference.rescaling import (
    RunRules,
    rescaled,
    run_rule,
)
from fairlead.simulator.true_jobs import JobArrays

LOSS = RestartCosts(20.0)  # unless others are named
LOSSLESS_MARGIN_S = 5.0  # a job that runs for no longer than the round less this loses nothing

_FAILED, _LOST, _ENDED = int(RoundOutcome.FAILED), int(RoundOutcome.LOST), int(RoundOutcome.ENDED)


class ReleasedRules:
    """Changes of batch size, in order of submission; jobs without an adaptation never change."""

    def __init__(self, throughputs: Throughputs) -> None:
        self.throughputs = throughputs
        self.rules = RunRules()
        self.n = 0
        self.rule: Ints = np.full(64, -1, np.int64)
        self.samples: Ints = np.ones(64, np.int64)
        self.position: Ints = np.zeros(64, np.int64)  # of the batch in force among the job's
        self.requested: Ints = np.zeros(64, np.int64)  # the same where there is no flag
        self.batch: Ints = np.ones((64, 1), np.int64)  # (jobs, batches)
        self.job_type: Ints = np.zeros((64, 1), np.int64)

    def add(self, job: Job) -> None:
        """A job at the end."""
        if self.n == len(self.rule):
            self._grow(2 * self.n, self.batch.shape[1])
        if job.adaptation is not None:
            rule = run_rule(job, self.throughputs)
            if len(rule.batches) > self.batch.shape[1]:
                self._grow(len(self.rule), len(rule.batches))
            i, m = self.n, len(rule.batches)
            self.rule[i] = self.rules.add(rule)
            self.samples[i] = job.adaptation.samples
            self.position[i] = self.requested[i] = rule.start
            self.batch[i, :m] = rule.batches
            rows = [self.throughputs.row(job.job_type.with_batch_size(b)) for b in rule.batches]
            self.job_type[i, :m] = [-1 if row is None else row for row in rows]
        self.n += 1

    def of(self, jobs: Ints) -> Ints:
        """(jobs,) batch size in force of jobs that have a rule; jobs: positions."""
        return self.batch[jobs, self.position[jobs]]

    def _grow(self, rows: int, width: int) -> None:
        for name, fill in (("rule", -1), ("samples", 1), ("position", 0), ("requested", 0)):
            old = getattr(self, name)
            setattr(self, name, np.append(old, np.full(rows - len(old), fill, np.int64)))
        for name in ("batch", "job_type"):
            old = getattr(self, name)
            new = np.ones((rows, width), np.int64)
            new[: len(old), : old.shape[1]] = old
            setattr(self, name, new)

    def follow(self, index: Ints, outcome: Ints, jobs: JobArrays) -> Bools:
        """After a round: jobs with a flag change in place, then all of the round are flagged anew. Return
        (groups, width): who has changed. index, outcome: (groups, width)."""
        has_rule = (index >= 0) & (self.rule[index] >= 0) & (outcome != _LOST)
        has_rule &= jobs.steps_done[index] < np.minimum(jobs.total_steps, jobs.last_step)[index]
        changed = has_rule & (self.requested[index] != self.position[index])
        if changed.any():
            self._rescale(index[changed], jobs)
        running = index[has_rule]
        position = self.position[running]
        per_epoch = np.ceil(self.samples[running] / self.batch[running, position])
        epoch = np.ceil(jobs.steps_done[running] / per_epoch).astype(np.int64)
        self.requested[running] = self.rules.requested(self.rule[running], position, epoch)
        return np.asarray(changed)

    def _rescale(self, changed: Ints, jobs: JobArrays) -> None:
        position = self.requested[changed]
        old, new = self.batch[changed, self.position[changed]], self.batch[changed, position]
        total, last = jobs.total_steps, jobs.last_step
        early = last[changed] / total[changed]
        total[changed], jobs.steps_done[changed] = rescaled(
            total[changed], jobs.steps_done[changed], self.samples[changed], old, new
        )
        last[changed] = np.where(early < 1, early * total[changed], total[changed])
        jobs.table_row[changed] = self.job_type[changed, position]
        self.position[changed] = position


class ReleasedEnd(NamedTuple):
    """The end of a round."""

    round: int
    from_s: float  # the end of the last round that was not empty, from which on time counts
    end_s: float
    least_s: float  # a round must take more for a loss
    lost: Bools1  # (devices of the cluster,)


@kernel(
    "Tuple((f8[:,::1], f8[::1], i8[:,::1], f8[::1]))"
    "(RoundGroups, RoundForecast, JobArrays, ReleasedEnd)"
)
def finish_released(
    groups: RoundGroups, forecast: RoundForecast, jobs: JobArrays, end: ReleasedEnd
) -> tuple[Floats, Floats, Ints, Floats]:
    """Return steps, finish_s, outcome and seconds lost of what a round has done by its end; book steps in
    place. An attempt fails where a device got no step in no time."""
    n, width = groups.job.shape
    did = np.zeros((n, width))
    until = np.empty(n)
    outcome = np.zeros((n, width), np.int64)
    lost_s = np.zeros(n)
    for i in range(n):
        until[i] = min(forecast.finish_s[i], end.end_s)
        took_s = until[i] - end.from_s
        scale = groups.offsets[i + 1] - groups.offsets[i]
        gone = any_lost(groups.devices, groups.offsets[i], groups.offsets[i + 1], end.lost)
        lost_s[i] = _lost_s(groups, i, jobs, end, took_s)
        part = (took_s - lost_s[i]) / took_s if lost_s[i] > 0 else 1.0
        good = not gone
        for k in range(width):
            j = groups.job[i, k]
            if j < 0:
                continue
            jobs.last_round[j] = end.round
            did[i, k] = forecast.steps[i, k]
            if forecast.finish_s[i] > end.end_s:
                possible = np.floor(forecast.rate[i, k] * max(end.end_s - end.from_s, 0.0))
                did[i, k] = min(possible, forecast.steps[i, k])
            did[i, k] = np.trunc(did[i, k] * part)
            each = did[i, k] // scale
            least = min(each, did[i, k] - (scale - 1) * each)
            if gone:
                outcome[i, k] = _LOST
            elif forecast.rate[i, k] <= 0 or (least <= 0 and took_s - lost_s[i] <= 0):
                outcome[i, k] = _FAILED
                good = False
        for k in range(width):
            j = groups.job[i, k]
            if j < 0:
                continue
            if not good:
                did[i, k] = 0.0
                continue
            if add_steps(jobs, j, did[i, k]):
                outcome[i, k] = _ENDED
    return did, until, outcome, lost_s


@kernel("f8(RoundGroups, i8, JobArrays, ReleasedEnd, f8)", inline="always")
def _lost_s(groups: RoundGroups, i: int, jobs: JobArrays, end: ReleasedEnd, took_s: float) -> float:
    """Return the seconds that job group i loses because a job of it did not run in the round before."""
    lost_s = 0.0
    for k in range(groups.job.shape[1]):
        j = groups.job[i, k]
        if (
            j >= 0
            and end.round > 0
            and jobs.last_round[j] != end.round - 1
            and took_s > end.least_s
        ):
            lost_s = max(lost_s, min(jobs.restart_s[j], took_s))
    return lost_s
