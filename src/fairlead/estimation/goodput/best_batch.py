"""Goodput, and the batch with which it is largest (Pollux, OSDI'21, sections 3 and 4.1)."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from fairlead.estimation.goodput.step_time_model import StepTimeModel
from fairlead.model.arrays import Floats, Ints

Scalar = TypeVar("Scalar", float, Floats)
CANDIDATES = 50  # batches that are compared, at equal ratios
_TOLERANCE = 1e-8  # of a batch, before it is rounded up


class GradientNoise(NamedTuple):
    """The squared norm of a gradient, and the variance of it, both scaled to the smallest batch."""

    sqr: float
    variance: float

    def gain(self, scale: Scalar) -> Scalar:
        """Return how many steps with the smallest batch a step with so many times as many samples is
        worth."""
        return (self.variance + self.sqr) / (self.variance / scale + self.sqr)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Samples of a step of the whole job, in which its progress counts and at most; samples at once on a
    device."""

    smallest: int
    largest: int
    min_local: int
    max_local: int

    def max_replicas(self) -> int:
        """Return how many devices a step can be shared by."""
        return self.largest // self.min_local


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """For each of several numbers of devices."""

    goodput: (
        Floats  # steps at the smallest batch per second that the job's are worth; 0 = cannot run so
    )
    local: Ints  # samples at once on a device
    accumulation_steps: Ints  # before the step that synchronises


def best_batch(
    model: StepTimeModel,
    noise: GradientNoise,
    limits: BatchLimits,
    nodes: Ints,
    replicas: Ints,
) -> BestBatch:
    """Return the batch of the largest goodput for numbers of nodes and replicas, (counts,) each."""
    counts = np.arange(len(replicas))
    replicas_ = replicas[:, None].astype(np.float64)
    least = np.maximum(limits.smallest, limits.min_local * replicas_)
    possible = least <= limits.largest
    ratio = limits.largest / np.minimum(least, limits.largest)
    total = np.minimum(least, limits.largest) * ratio ** np.linspace(0.0, 1.0, CANDIDATES)
    share = np.ceil(total / replicas_ - _TOLERANCE)
    steps = np.ceil(share / limits.max_local - _TOLERANCE) - 1
    alone = (replicas_ == 1) & (total > limits.smallest + _TOLERANCE)
    steps = np.where(alone, np.maximum(steps, 1), steps)
    local = np.ceil(share / (steps + 1) - _TOLERANCE)
    batch = local * replicas_ * (steps + 1)
    step_s = model.step_s(nodes[:, None].astype(np.float64), replicas_, local, steps)
    fits = possible & (batch <= limits.largest + _TOLERANCE)
    goodput = np.where(fits, noise.gain(batch / limits.smallest) / step_s, 0.0)
    best = goodput.argmax(axis=1)
    return BestBatch(
        goodput=goodput[counts, best],
        local=local[counts, best].astype(np.int64),
        accumulation_steps=steps[counts, best].astype(np.int64),
    )
