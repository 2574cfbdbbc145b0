"""The world of Shockwave's released simulator, oddities included: what a round does, and who rescales.

A job that did not run in the round before loses 20 s of its round, unless that is the first of all, or the
job needs no more than the round less 5 s: it has done fewer steps then, though it stops when it would have
stopped anyway. How jobs change their batch size: ``fairlead.simulator.shockwave_reference.rescaling``.
Source: Shockwave (NSDI'23), the
released simulator.
"""

import numpy as np

from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.events import RoundOutcome
from fairlead.model.jit import kernel
from fairlead.model.job import Job, RestartCosts
from fairlead.model.throughputs import Throughputs
from fairlead.simulator.round_kernels import any_lost
from fairlead.simulator.shockwave_reference.rescaling import (
    RunRules,
    rescaled,
    run_rule,
)

LOSS = RestartCosts(20.0)  # unless others are named
SPARED_S = 5.0  # a job that runs for no longer than the round less this loses nothing

_FAILED, _LOST, _ENDED = int(RoundOutcome.FAILED), int(RoundOutcome.LOST), int(RoundOutcome.ENDED)


class ReleasedRules:
    """Who changes to which batch size, by order of submission; jobs without an adaptation never do."""

    def __init__(self, throughputs: Throughputs) -> None:
        self.throughputs = throughputs
        self.rules = RunRules()
        self.n = 0
        self.rule: Ints = np.full(64, -1, np.int64)
        self.samples: Ints = np.ones(64, np.int64)
        self.position: Ints = np.zeros(64, np.int64)  # of the batch in force among the job's
        self.wanted: Ints = np.zeros(64, np.int64)  # the same where there is no flag
        self.batch: Ints = np.ones((64, 1), np.int64)  # (jobs, batches)
        self.kind: Ints = np.zeros((64, 1), np.int64)

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
            self.position[i] = self.wanted[i] = rule.start
            self.batch[i, :m] = rule.batches
            rows = [self.throughputs.row(job.job_type.with_batch_size(b)) for b in rule.batches]
            self.kind[i, :m] = [-1 if row is None else row for row in rows]
        self.n += 1

    def of(self, jobs: Ints) -> Ints:
        """(jobs,) batch size in force of jobs that have a rule; jobs: positions."""
        return self.batch[jobs, self.position[jobs]]

    def _grow(self, rows: int, width: int) -> None:
        for name, fill in (("rule", -1), ("samples", 1), ("position", 0), ("wanted", 0)):
            old = getattr(self, name)
            setattr(self, name, np.append(old, np.full(rows - len(old), fill, np.int64)))
        for name in ("batch", "kind"):
            old = getattr(self, name)
            new = np.ones((rows, width), np.int64)
            new[: len(old), : old.shape[1]] = old
            setattr(self, name, new)

    def follow(
        self, index: Ints, outcome: Ints, total: Floats, last: Floats, done: Floats, kind: Ints
    ) -> Bools:
        """After a round: jobs with a flag change in place, then all of the round are flagged anew; who
        has changed. index, outcome: (units, width); total, last, done, kind: (jobs,)."""
        has_rule = (index >= 0) & (self.rule[index] >= 0) & (outcome != _LOST)
        has_rule &= done[index] < np.minimum(total, last)[index]
        changed = has_rule & (self.wanted[index] != self.position[index])
        if changed.any():
            self._rescale(index[changed], total, last, done, kind)
        jobs = index[has_rule]
        position = self.position[jobs]
        per_epoch = np.ceil(self.samples[jobs] / self.batch[jobs, position])
        epoch = np.ceil(done[jobs] / per_epoch).astype(np.int64)
        self.wanted[jobs] = self.rules.wanted(self.rule[jobs], position, epoch)
        return np.asarray(changed)

    def _rescale(self, jobs: Ints, total: Floats, last: Floats, done: Floats, kind: Ints) -> None:
        position = self.wanted[jobs]
        old, new = self.batch[jobs, self.position[jobs]], self.batch[jobs, position]
        early = last[jobs] / total[jobs]
        total[jobs], done[jobs] = rescaled(total[jobs], done[jobs], self.samples[jobs], old, new)
        last[jobs] = np.where(early < 1, early * total[jobs], total[jobs])
        kind[jobs] = self.kind[jobs, position]
        self.position[jobs] = position


@kernel(
    "Tuple((f8[:,::1], f8[::1], i8[:,::1], f8[::1]))"
    "(i8[:,::1], i8[::1], i8[::1], i8, f8, f8, f8, b1[::1], f8[:,::1], f8[:,::1], f8[::1],"
    " f8[::1], f8[::1], f8[::1], f8[::1], i8[::1])",
)
def finish_released(
    index: Ints,
    first: Ints,
    devices: Ints,
    number: int,
    from_s: float,
    end_s: float,
    least_s: float,
    lost: Bools,
    rate: Floats,
    steps: Floats,
    finish_s: Floats,
    total: Floats,
    last: Floats,
    done: Floats,
    loss_s: Floats,
    ran_in: Ints,
) -> tuple[Floats, Floats, Ints, Floats]:
    """What a round has done by end_s; books steps in place.

    number: of the round; from_s: the end of the last round that was not empty, from which on time
    counts; least_s: a round must take more for a loss; lost: (devices of the cluster,); loss_s, ran_in:
    (jobs,) seconds lost by who did not run in the round before, and the last round of each. An attempt
    fails where a device got no step in no time. Returns steps, finish_s, outcome, seconds lost.
    """
    n, width = index.shape
    did = np.zeros((n, width))
    until = np.empty(n)
    outcome = np.zeros((n, width), np.int64)
    lost_s = np.zeros(n)
    for i in range(n):
        until[i] = min(finish_s[i], end_s)
        took_s = until[i] - from_s
        scale = first[i + 1] - first[i]
        gone = any_lost(devices, first[i], first[i + 1], lost)
        for k in range(width):
            j = index[i, k]
            if j >= 0 and number > 0 and ran_in[j] != number - 1 and took_s > least_s:
                lost_s[i] = max(lost_s[i], min(loss_s[j], took_s))
        part = (took_s - lost_s[i]) / took_s if lost_s[i] > 0 else 1.0
        good = not gone
        for k in range(width):
            j = index[i, k]
            if j < 0:
                continue
            ran_in[j] = number
            did[i, k] = steps[i, k]
            if finish_s[i] > end_s:
                did[i, k] = min(np.floor(rate[i, k] * max(end_s - from_s, 0.0)), steps[i, k])
            did[i, k] = np.trunc(did[i, k] * part)
            each = did[i, k] // scale
            least = min(each, did[i, k] - (scale - 1) * each)
            if gone:
                outcome[i, k] = _LOST
            elif rate[i, k] <= 0 or (least <= 0 and took_s - lost_s[i] <= 0):
                outcome[i, k] = _FAILED
                good = False
        for k in range(width):
            j = index[i, k]
            if j < 0:
                continue
            if not good:
                did[i, k] = 0.0
                continue
            done[j] += did[i, k]
            if last[j] < total[j] and done[j] >= last[j]:
                outcome[i, k] = _ENDED
    return did, until, outcome, lost_s
