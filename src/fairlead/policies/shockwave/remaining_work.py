"""The work left of jobs that change their batch size, predicted from what they have announced and done.

A job announces its epochs and the batch sizes that it may use, but not for how many epochs each. With a
Dirichlet prior that gives all of them the same part, the epochs trained so far shift the expectation
towards what is seen. Source: Shockwave (NSDI'23), section 6.2, and the release's job profiles.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fairlead.model.adaptation import Adaptation, epochs_between
from fairlead.model.arrays import Floats
from fairlead.model.rates import first_slot
from fairlead.model.snapshot import Regimes, Snapshot
from fairlead.policies.shockwave.options import (
    EpochTime,
    Predictor,
    ProfileCalibration,
    ShockwaveOptions,
)

# Epochs last so long where a job cannot run: finite, so that sums stay finite
INFEASIBLE_EPOCH_S = 1e12
_MIN_REMAINING = 0.01  # part of a job that is taken to be left as long as it has not ended


@dataclass(frozen=True, kw_only=True, slots=True)
class RemainingWork:
    """Per job: how far it is, and how long it would still run on each accelerator type."""

    epochs: Floats  # (jobs,) of the whole job
    progress: Floats  # (jobs,) epochs done, below ``epochs``
    epoch_s: Floats  # (jobs, types) seconds of an epoch within the planning horizon
    left_s: Floats  # (jobs, types) predicted running time that is left
    spent_s: Floats  # (jobs,) running time of the epochs done, on a mean device
    mean_left_s: Floats  # (jobs,) running time left on a mean device


def remaining_work(
    snapshot: Snapshot, options: ShockwaveOptions, measured: Floats | None = None
) -> RemainingWork:
    """The remaining work of all jobs. measured: (jobs,) factor on all epoch times, None = 1 for all."""
    regimes = snapshot.regimes or _single_regime(snapshot)
    epoch_s = _epoch_times(snapshot, regimes, options.whole_epochs)
    if measured is not None:
        epoch_s = epoch_s * measured[:, None, None]
    if options.calibration is ProfileCalibration.RUN_TIME:
        epoch_s = (
            epoch_s * _run_time_factor(snapshot, regimes, epoch_s, options.tolerance)[:, None, None]
        )
    progress, left = _progress(snapshot, regimes, options)
    observed = _observed(regimes, progress, options)
    ahead = _epochs_ahead(regimes, progress, left, observed, options)
    present = _epoch_s_ahead(regimes, observed, epoch_s, options.epoch_time, ahead)
    left_s = np.einsum("jb,jbt->jt", ahead, epoch_s)
    if options.whole_epochs:  # an epoch count of 0 is read as one second
        left_s = np.where(left[:, None] > 0, left_s, 1.0)
    mix = _type_mix(snapshot)
    mean_s = 1.0 / np.einsum("jbt,t->jb", 1.0 / epoch_s, mix)
    mean_left = (ahead * mean_s).sum(axis=1)
    if options.whole_epochs:
        mean_left = np.where(left > 0, mean_left, 1.0)
    spent = _done_epochs(regimes, progress, options)
    return RemainingWork(
        epochs=regimes.epochs,
        progress=progress,
        epoch_s=present,
        left_s=left_s,
        spent_s=(spent * mean_s).sum(axis=1),
        mean_left_s=mean_left,
    )


def _type_mix(snapshot: Snapshot) -> Floats:
    """(types,) part of all devices that are of each type."""
    total = snapshot.capacity.sum()
    n = len(snapshot.capacity)
    return np.asarray(snapshot.capacity / total if total > 0 else np.full(n, 1.0 / n))


def _single_regime(snapshot: Snapshot) -> Regimes:
    """The regimes of jobs that keep their batch sizes: one, and one epoch of all their steps."""
    n = len(snapshot.jobs)
    return Regimes(
        batch=np.zeros((n, 1), np.int64),
        job_type=snapshot.job_type[:, None],
        steps_per_epoch=snapshot.total_steps[:, None],
        epochs_trained=(1.0 - snapshot.steps_left / snapshot.total_steps)[:, None],
        current=np.zeros(n, np.int64),
        epochs=np.ones(n),
        announced=(None,) * n,
    )


def _epoch_times(snapshot: Snapshot, regimes: Regimes, whole: bool) -> Floats:
    """(jobs, batches, types) seconds of an epoch. whole: to the second, as the release has them, which
    also counts the last mini-batch of an epoch as a part of one."""
    rate = snapshot.job_type_rate[:, first_slot(snapshot)][regimes.job_type]
    steps = regimes.steps_per_epoch
    if whole:
        samples = np.array([0 if a is None else a.samples for a in regimes.announced], np.float64)
        batch = np.maximum(regimes.batch, 1)
        steps = np.where(
            (samples[:, None] > 0) & (regimes.batch > 0), samples[:, None] / batch, steps
        )
    runs = (rate > 0) & (regimes.job_type >= 0)[:, :, None]
    time = np.divide(
        steps[:, :, None], rate, out=np.full(rate.shape, INFEASIBLE_EPOCH_S), where=runs
    )
    return np.asarray(np.maximum(1.0, np.round(time)) if whole else time)


def _run_time_factor(
    snapshot: Snapshot, regimes: Regimes, epoch_s: Floats, tolerance: float
) -> Floats:
    """(jobs,) the time that a job's epochs took over the predicted time; 1 where they differ by no more than
    the tolerance. Counts only time in which the job ran, by accelerator type."""
    received = np.zeros((len(snapshot.jobs), len(snapshot.capacity)))
    for t, accelerator_index in enumerate(snapshot.accelerator_of_slot.tolist()):
        received[:, accelerator_index] += snapshot.received_s[: len(received), t]
    part = received / np.maximum(received.sum(axis=1), 1e-9)[:, None]
    mean_s = 1.0 / np.maximum(np.einsum("jbt,jt->jb", 1.0 / epoch_s, part), 1e-15)
    predicted = np.where(regimes.epochs_trained > 0, regimes.epochs_trained * mean_s, 0.0).sum(
        axis=1
    )
    ran_s = snapshot.ran_s  # accounts may have a head start
    known = (ran_s > 0) & (predicted > 0)
    factor = np.divide(ran_s, predicted, out=np.ones(len(ran_s)), where=known)
    return np.where(np.abs(factor - 1.0) > tolerance, np.clip(factor, 0.1, 10.0), 1.0)


def _progress(
    snapshot: Snapshot, regimes: Regimes, options: ShockwaveOptions
) -> tuple[Floats, Floats]:
    """(jobs,) epochs done, and epochs left. In whole epochs nothing may be left of a job that still has
    steps to do, unless ``capped``."""
    rows = np.arange(len(snapshot.jobs))
    per_epoch = regimes.steps_per_epoch[rows, regimes.current]
    if not options.whole_epochs:
        left = np.maximum(snapshot.steps_left / per_epoch, regimes.epochs * _MIN_REMAINING)
        return np.maximum(regimes.epochs - left, 0.0), np.minimum(left, regimes.epochs)
    done = np.floor((snapshot.total_steps - snapshot.steps_left) / per_epoch)
    most = regimes.epochs - 1 if options.capped else regimes.epochs
    progress = np.clip(done, 0.0, most)
    return progress, regimes.epochs - progress


@lru_cache(maxsize=20_000)
def _counts(announced: Adaptation, progress: float) -> tuple[float, ...]:
    """Epochs at each batch size of the announced schedule up to a progress."""
    return tuple(epochs_between(announced, 0.0, progress).tolist())


def _scheduled(regimes: Regimes, progress: Floats, current: float) -> Floats:
    """(jobs, batches) epochs at each batch size by the announced schedules up to progress + current."""
    out = np.zeros(regimes.batch.shape)
    for j, announced in enumerate(regimes.announced):
        if announced is None:
            out[j, 0] = progress[j]
        else:
            until = min(progress[j] + current, float(announced.epochs))
            counts = _counts(announced, until)
            out[j, : len(counts)] = counts
    return out


def _observed(regimes: Regimes, progress: Floats, options: ShockwaveOptions) -> Floats:
    """(jobs, batches) epochs observed at each batch size."""
    if options.whole_epochs:  # by the profile, the present epoch included
        return _scheduled(regimes, progress, 1.0)
    total = regimes.epochs_trained.sum(axis=1)
    factor = np.divide(progress, total, out=np.zeros(len(total)), where=total > 0)
    return np.asarray(regimes.epochs_trained * factor[:, None])


def _done_epochs(regimes: Regimes, progress: Floats, options: ShockwaveOptions) -> Floats:
    """(jobs, batches) epochs done at each batch size."""
    return (
        _scheduled(regimes, progress, 0.0)
        if options.whole_epochs
        else _observed(regimes, progress, options)
    )


def _epochs_ahead(
    regimes: Regimes, progress: Floats, left: Floats, observed: Floats, options: ShockwaveOptions
) -> Floats:
    """(jobs, batches) epochs that are expected at each batch size from here on; sums to ``left``."""
    if options.predictor is Predictor.ORACLE:
        done = _scheduled(regimes, progress, 0.0)
        ahead = _scheduled(regimes, regimes.epochs, 0.0) - done
        ahead = np.maximum(ahead, 0.0)
        return _scaled_to(regimes, ahead, left)
    used = regimes.job_type >= 0
    prior = regimes.epochs / np.maximum(used.sum(axis=1), 1) * options.prior
    strength = np.where(used, prior[:, None] + observed, 0.0)
    expected = regimes.epochs[:, None] * strength / strength.sum(axis=1, keepdims=True)
    if not options.whole_epochs:
        return _scaled_to(regimes, np.maximum(expected - observed, 0.0), left)
    # The release takes off one epoch after the other, as long as at least one is left.
    ahead = np.where(expected >= observed, expected - observed, expected - np.floor(expected))
    inflated = np.maximum(np.floor(ahead.sum(axis=1) + 1), left)
    part = np.where(inflated > 0, left, 0.0) / np.maximum(inflated, 1.0)
    return np.asarray(ahead * part[:, None])


def _scaled_to(regimes: Regimes, ahead: Floats, left: Floats) -> Floats:
    """(jobs, batches) ``ahead`` scaled to the sum ``left``; all at the present batch size where ``ahead`` is
    0."""
    total = ahead.sum(axis=1)
    rows = np.flatnonzero(total <= 0)
    ahead[rows, regimes.current[rows]] = 1.0
    total[rows] = 1.0
    return np.asarray(ahead * (left / total)[:, None])


def _epoch_s_ahead(
    regimes: Regimes,
    observed: Floats,
    epoch_s: Floats,
    which: EpochTime,
    ahead: Floats,
) -> Floats:
    """(jobs, types) seconds of an epoch within the planning horizon."""
    rows = np.arange(len(regimes.current))
    if which is EpochTime.PRESENT:
        return np.asarray(epoch_s[rows, regimes.current])
    if which is EpochTime.AHEAD:
        total = np.maximum(ahead.sum(axis=1), 1e-12)
        return np.asarray(np.einsum("jb,jbt->jt", ahead, epoch_s) / total[:, None])
    count = observed.sum(axis=1)
    first = np.zeros_like(observed)
    first[rows, regimes.current] = 1.0
    weight = np.where(count[:, None] > 0, observed, first)
    return np.asarray(np.einsum("jb,jbt->jt", weight, epoch_s) / weight.sum(axis=1, keepdims=True))
