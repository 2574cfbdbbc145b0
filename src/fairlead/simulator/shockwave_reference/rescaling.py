"""Changes of the batch size of jobs in the simulator of Shockwave's release.

It does not follow the profile (``fairlead.model.batch_size_rules``). What it does, in this order:

1. At the end of a round each job that ran is credited with its steps; whether that completes it is decided
   here. Then, if it carries a flag from an earlier round, its batch size changes (``rescaled``) and the
   flag goes. A job thus keeps its batch size for one round of its own after it was flagged.
2. Afterwards every job in the system, running or not, is looked at with its new batch size and steps:
   its epoch is ``ceil(steps done / ceil(samples / batch))``, one more than the epochs that it has finished
   unless it is at the very end of one. Jobs that arrive at this time come later, without a flag.

   Accordion: at the first batch size in an epoch that is not critical, it is flagged to grow to the
   model's largest; at that in a critical one, to go back. Critical epochs are those of the profile without
   its rule about the first 30 % of a job, without Recommendation's epochs 60 to 69 and 80 to 89, and, for
   ResNet-50, without an end.
   GNS: flagged to double if the profile of 760 epochs or more has a larger batch in this epoch or in the
   next. Doubling is all that it does, one step per round of its own.
3. A flag whose batch size has no rate at the job's scale factor has no effect. A job that starts with its
   model's largest batch never changes.

A user's schedule, which the release does not know, is followed by the same epochs.

Source: Shockwave (NSDI'23), the released simulator.
"""

from dataclasses import dataclass
from itertools import takewhile
from math import ceil

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.adaptation import Adaptation, Mode
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.batch_size_rules import (
    ACCORDION,
    MAX_BATCH_SIZES,
    growth,
)
from fairlead.model.job import Job
from fairlead.model.throughputs import Throughputs


@dataclass(frozen=True, slots=True)
class RunRule:
    """The batch sizes that one job asks for in every epoch that it can be in."""

    batches: tuple[int, ...]  # that it may come to use, ascending
    start: int  # position in ``batches`` of the first
    steps_per_epoch: Ints  # (batches,) ceil(samples / batch)
    requested: Ints  # (batches, epochs) position asked for, its own = no flag; the last also for later epochs


def run_rule(job: Job, throughputs: Throughputs) -> RunRule:
    """The rule of a job with an adaptation. It may use batch sizes that its profile does not reach."""
    adaptation, first = job.adaptation, job.job_type.batch_size
    if adaptation is None or first is None:
        raise ConfigError(f"job {job.id}: {job.family} has no adaptation")

    def runs(batch: int) -> bool:
        row = throughputs.row(job.job_type.with_batch_size(batch))
        return row is not None and bool((throughputs.rate[row] > 0).any())

    batches = _reachable(job, adaptation, first)
    if adaptation.mode is Mode.GNS:  # by doubling, and no step can be left out
        batches = (first, *takewhile(runs, batches[1:]))
    else:
        batches = tuple(b for b in batches if b == first or runs(b))
    per_epoch = np.array([ceil(adaptation.samples / b) for b in batches], np.int64)
    start = batches.index(first)
    epochs = np.arange(ceil(job.total_steps / per_epoch[start]) + 1)
    requested = _requested(job, adaptation, batches, first, epochs)
    return RunRule(batches, start, per_epoch, _trimmed(requested))


def _reachable(job: Job, adaptation: Adaptation, first: int) -> tuple[int, ...]:
    """Batch sizes that the rule may ask for, ascending."""
    model = job.job_type.family
    match adaptation.mode:
        case Mode.ACCORDION:
            largest = MAX_BATCH_SIZES.get(model, first)
            return (first, largest) if largest > first else (first,)
        case Mode.GNS:
            return tuple(batch for _, batch in growth(model, first, job.scale_factor))
        case _:
            return adaptation.batches


def _requested(
    job: Job, adaptation: Adaptation, batches: tuple[int, ...], first: int, epochs: Ints
) -> Ints:
    """(batches, epochs) position asked for."""
    here = np.arange(len(batches))[:, None]
    model = job.job_type.family
    if len(batches) == 1:
        return np.zeros((1, len(epochs)), np.int64)
    if adaptation.mode is Mode.ACCORDION:
        critical: Bools = ACCORDION[model].within(epochs, first, profile=False)
        return np.broadcast_to(np.where(critical, 0, 1), (2, len(epochs)))
    if adaptation.mode is Mode.GNS:
        starts = [epoch for epoch, _ in growth(model, first, job.scale_factor)]
        stage = np.searchsorted(starts, epochs + 1, side="right") - 1
        return np.where(stage[None, :] > here, np.minimum(here + 1, len(batches) - 1), here)
    at = np.array([batches.index(b) if b in batches else -1 for _, b in adaptation.schedule])
    stage = np.searchsorted(adaptation.starts, epochs, side="right") - 1
    return np.where(at[stage][None, :] < 0, here, at[stage][None, :])


def _trimmed(requested: Ints) -> Ints:
    """Return the epochs without the last ones that request the same as the one before."""
    differs = np.flatnonzero((requested[:, 1:] != requested[:, :-1]).any(axis=0))
    width = int(differs[-1]) + 2 if len(differs) else 1
    return np.ascontiguousarray(requested[:, :width])


class RunRules:
    """The rules of many jobs in one table, so that a round asks for all at once."""

    def __init__(self) -> None:
        self._n = 0
        self._used = 0
        self._flat = np.zeros(1024, np.int8)
        self._offset = np.zeros(64, np.int64)  # (rules,) in ``_flat``
        self._width = np.zeros(64, np.int64)  # (rules,) epochs

    def add(self, rule: RunRule) -> int:
        """Take in a rule; its number."""
        size = rule.requested.size
        while self._used + size > len(self._flat):
            self._flat = np.concatenate([self._flat, np.zeros_like(self._flat)])
        if self._n == len(self._offset):
            self._offset = np.concatenate([self._offset, np.zeros_like(self._offset)])
            self._width = np.concatenate([self._width, np.zeros_like(self._width)])
        self._flat[self._used : self._used + size] = rule.requested.reshape(-1)
        self._offset[self._n], self._width[self._n] = self._used, rule.requested.shape[1]
        self._used += size
        self._n += 1
        return self._n - 1

    def requested(self, rules: Ints, position: Ints, epoch: Ints) -> Ints:
        """(jobs,) position in its batches that each job asks for, its own = no flag.

        rules: (jobs,) numbers that ``add`` gave. position: (jobs,) of the batch in force. epoch: (jobs,)
        ``ceil(steps done / steps per epoch)`` at that batch.
        """
        width = self._width[rules]
        column = np.minimum(epoch, width - 1)
        found: Ints = self._flat[self._offset[rules] + position * width + column].astype(np.int64)
        return found


def rescaled(
    total: Floats, done: Floats, samples: Ints, old: Ints, new: Ints
) -> tuple[Floats, Floats]:
    """(total steps, steps done) after a change of batch size, all (jobs,) whole numbers.

    The total is scaled by old / new and rounded up, unless that changes the number of epochs: then it is
    as many whole epochs as before. Steps done become whole epochs, an epoch that was begun counts as
    done: the rest of it is free.
    """
    old_epoch, new_epoch = np.ceil(samples / old), np.ceil(samples / new)
    epochs = np.ceil(total / old_epoch)
    scaled = np.ceil(total * (1.0 / (new / old)))
    unchanged = np.ceil(scaled / new_epoch) == epochs
    return np.where(unchanged, scaled, epochs * new_epoch), np.ceil(done / old_epoch) * new_epoch
