"""When jobs change their batch size: the rules of Accordion and GNS as tables, and schedules made of them.

A job of 3.5 epochs' worth of steps has 3.5 epochs, and its last one keeps the stage that it is in. The
profiles of Shockwave's release, which differ, are in ``fairlead.simulator.shockwave_reference.profiles``.

Source: Shockwave (NSDI'23), the released job profiles; Accordion (MLSys'21); the gradient noise scale
(McCandlish et al., 2018). The figures were measured by the authors of Shockwave for these models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf

import numpy as np

from fairlead.errors import ConfigError
from fairlead.model.adaptation import (
    MAX_REGIMES,
    Adaptation,
    Mode,
    steps_per_epoch,
)
from fairlead.model.arrays import Bools, Floats, Ints
from fairlead.model.job_type import JobType
from fairlead.model.throughputs import Throughputs

Schedule = tuple[tuple[int, int], ...]  # (first epoch, batch size)

ACCORDION_WARMUP = (
    0.3  # part of a job's epochs in which Accordion keeps the first batch size, for accuracy
)

SAMPLES_PER_EPOCH: Mapping[str, int] = {  # per epoch, by model: the size of its data set
    "ResNet-18": 50_000,  # CIFAR-10
    "ResNet-50": 100_000,  # of ImageNet
    "Transformer": 10_000,  # Multi30k
    "LM": 59_675,  # Wikitext-2
    "Recommendation": 117_907,  # ML-20M
    "CycleGAN": 6_287,  # monet2photo
    "A3C": 4,  # Pong
}
MAX_BATCH_SIZES: Mapping[
    str, int
] = {  # batch size that a model may grow to; the others never adapt
    "ResNet-18": 256,
    "ResNet-50": 128,
    "LM": 80,
    "Recommendation": 8_192,
}
PERIODIC_UNTIL_EPOCH = 600  # epoch from which the profile finds no critical regimes by period


@dataclass(frozen=True, slots=True)
class CriticalRegimes:
    """The epochs in which Accordion finds gradients changing fast, and keeps the batch small."""

    head: int  # first epochs
    head_by_batch: Mapping[int, int] = field(
        default_factory=dict
    )  # the same where a batch size differs
    spans: tuple[tuple[int, int], ...] = ()  # [first, last) of later ones
    profiled: tuple[tuple[int, int], ...] = ()  # of those that only the profile knows
    period: int | None = None  # ``head`` epochs of every so many, not only of the first

    def within(self, epoch: Ints, batch: int, profile: bool = True) -> Bools:
        """Return whether an epoch is critical for a job that started with this batch size."""
        head = self.head_by_batch.get(batch, self.head)
        found: Bools = (epoch if self.period is None else epoch % self.period) < head
        for first, last in self.spans + (self.profiled if profile else ()):
            found |= (epoch >= first) & (epoch < last)
        if self.period is not None and profile:
            found &= epoch < PERIODIC_UNTIL_EPOCH
        return found


ACCORDION: Mapping[str, CriticalRegimes] = {
    "ResNet-18": CriticalRegimes(10, {256: 20}, spans=((150, 160), (250, 260))),
    "ResNet-50": CriticalRegimes(10, period=30),
    "LM": CriticalRegimes(10),
    "Recommendation": CriticalRegimes(
        10, {512: 30, 1024: 30, 2048: 40}, profiled=((60, 70), (80, 90))
    ),
}
# Epochs at which the batch doubles, by model, first batch size and scale factor. What is not listed
# never adapts.
GNS: Mapping[str, Mapping[int, Mapping[int, tuple[int, ...]]]] = {
    "ResNet-18": {
        16: {1: (31, 41, 51, 71), 2: (21, 31, 91, 111), 4: (11, 21, 81, 91)},
        32: {1: (21, 31, 51), 2: (11, 21, 41), 4: (21, 31, 61)},
        64: {1: (11, 31), 2: (21, 41), 4: (11, 61)},
        128: {1: (11,), 2: (41,), 4: (11,)},
    },
    "ResNet-50": {
        32: {2: (101, 111), 4: (131, 221)},
        64: {1: (101,), 2: (81,), 4: (191,)},
    },
    "LM": {
        5: {1: (31, 41, 61, 71), 2: (31, 51, 61, 71), 4: (11, 31, 71, 91)},
        10: {1: (11, 21, 41), 2: (11, 31, 41), 4: (11, 31, 61)},
        20: {1: (11, 41), 2: (31, 41), 4: (11, 61)},
        40: {1: (11,), 2: (11,), 4: (61,)},
    },
    "Recommendation": {
        512: {1: (21, 41, 71, 91)},
        1024: {1: (21, 51, 91)},
        2048: {1: (21, 41)},
        4096: {1: (41,)},
    },
}


def batch_schedule(
    family: str,
    scale_factor: int,
    total_steps: float,
    mode: Mode,
    *,
    samples: int | None = None,
    schedule: Schedule = (),
) -> Adaptation:
    """The adaptation of a job with this many steps of its first batch size.

    samples: per epoch; by default the size of the model's data set. schedule: for ``Mode.SCHEDULE``,
    which starts with (0, the family's batch size); stages beyond the last epoch are left out.
    Raises ConfigError where the family has no batch size, where the samples per epoch are not known,
    and where the mode has no rule for the model.
    """
    batch, samples = batch_and_samples(family, samples)
    epochs = total_steps / steps_per_epoch(samples, batch)
    match mode:
        case Mode.STATIC:
            stages: Schedule = ((0, batch),)
        case Mode.SCHEDULE:
            stages = schedule
        case Mode.ACCORDION:
            stages = _accordion(_adaptable(family, mode), batch, epochs)
        case Mode.GNS:
            stages = growth(_adaptable(family, mode), batch, scale_factor)
    adaptation = Adaptation(mode, samples, epochs, stages)
    if (fault := adaptation_fault(adaptation, family)) is not None:
        raise ConfigError(f"{family}: {fault}")
    return replace(adaptation, schedule=tuple(stage for stage in stages if stage[0] < epochs))


def adaptation_fault(adaptation: Adaptation, family: str) -> str | None:
    """Return what is wrong with an adaptation of a job of this family, for a message; None: nothing is."""
    epochs = [epoch for epoch, _ in adaptation.schedule]
    if not (adaptation.samples >= 1 and 0 < adaptation.epochs < inf):
        return f"samples and epochs must be > 0, got {adaptation.samples} and {adaptation.epochs}"
    if not epochs or epochs[0] != 0:
        return f"the schedule must start with epoch 0, got {epochs[0] if epochs else 'no stage'}"
    if any(after <= before for before, after in pairwise(epochs)):
        return "the epochs of the schedule must increase"
    if min(adaptation.batches) < 1:
        return f"batch sizes must be >= 1, got {min(adaptation.batches)}"
    if len(adaptation.batches) > MAX_REGIMES:
        return f"at most {MAX_REGIMES} batch sizes, got {len(adaptation.batches)}"
    if adaptation.schedule[0][1] != (batch := JobType.parse(family).batch_size):
        first = adaptation.schedule[0][1]
        return f"the schedule must start with the family's batch size {batch}, got {first}"
    return None


def rates(adaptation: Adaptation, job_type: JobType, throughputs: Throughputs) -> Floats:
    """(batches, slots) steps/s of the whole job alone, 0 = cannot run there."""
    found = np.zeros((len(adaptation.batches), len(throughputs.slots)))
    for i, batch in enumerate(adaptation.batches):
        row = throughputs.row(job_type.with_batch_size(batch))
        if row is not None:
            found[i] = throughputs.rate[row]
    return found


def epoch_s(adaptation: Adaptation, job_type: JobType, throughputs: Throughputs) -> Floats:
    """(batches, slots) seconds of an epoch alone, inf where it cannot run."""
    rate = rates(adaptation, job_type, throughputs)
    steps = adaptation.steps_per_epoch[:, None]
    return np.divide(steps, rate, out=np.full_like(rate, inf), where=rate > 0)


def exclusive_run_times(
    adaptation: Adaptation, job_type: JobType, throughputs: Throughputs
) -> Floats:
    """(slots,) seconds that the whole job runs alone on each slot type, inf where it cannot run at one
    of its batch sizes."""
    total: Floats = adaptation.epochs_in @ epoch_s(adaptation, job_type, throughputs)
    return total


def growth(model: str, batch: int, scale_factor: int) -> Schedule:
    """The stages of GNS for a job that never ends."""
    thresholds = GNS.get(model, {}).get(batch, {}).get(scale_factor, ())
    return ((0, batch), *((epoch, batch << n) for n, epoch in enumerate(thresholds, start=1)))


def batch_and_samples(family: str, samples: int | None) -> tuple[int, int]:
    """The batch size that a family's name states, and the samples per epoch, by default those of the model.
    Raises ConfigError where there are none."""
    job_type = JobType.parse(family)
    batch = job_type.batch_size
    if batch is None:
        raise ConfigError(f"{family}: the name states no batch size, as in 'LM (batch size 20)'")
    if samples is None:
        samples = SAMPLES_PER_EPOCH.get(job_type.family)
    if samples is None:
        raise ConfigError(f"{family}: the number of samples per epoch is not known")
    return batch, samples


def _adaptable(family: str, mode: Mode) -> str:
    model = JobType.parse(family).family
    if model not in SAMPLES_PER_EPOCH:
        known = ", ".join(SAMPLES_PER_EPOCH)
        raise ConfigError(f"{family}: no rule for mode {mode.value}; there is one for {known}")
    return model


def _accordion(model: str, batch: int, epochs: float) -> Schedule:
    """The model's largest batch outside its critical regimes and its early part."""
    if batch >= MAX_BATCH_SIZES.get(model, 0):
        return ((0, batch),)
    epoch = np.arange(ceil(epochs))
    large = ~ACCORDION[model].within(epoch, batch) & (epoch > epochs * ACCORDION_WARMUP)
    starts = [0, *(np.flatnonzero(large[1:] != large[:-1]) + 1).tolist()]
    return tuple((first, MAX_BATCH_SIZES[model] if large[first] else batch) for first in starts)
