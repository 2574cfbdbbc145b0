"""Jobs that change their batch size while they train: epochs, schedules, and steps per epoch."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import ceil

import numpy as np

from fairlead.model.arrays import Floats, Ints

MAX_REGIMES = 16  # batch sizes that one job may use


class Mode(StrEnum):
    """The rule by which a job adapts its batch size."""

    STATIC = "static"  # not at all
    ACCORDION = "accordion"  # small in critical regimes, the model's largest elsewhere
    GNS = "gns"  # doubles as the gradient noise scale grows
    SCHEDULE = "schedule"  # at the epochs that its owner names


@dataclass(frozen=True)
class Adaptation:
    """The batch sizes of a job over its life, as its profile has them.

    An epoch is one pass over the data, ceil(samples / batch size) steps. A job of ``epochs`` epochs may
    end within its last one. Source: Shockwave (NSDI'23), section 2.2 and the release's job profiles.
    """

    mode: Mode
    samples: int  # per epoch
    epochs: float  # that the job trains for; not whole where its steps do not fill its last epoch
    schedule: tuple[
        tuple[int, int], ...
    ]  # (first epoch, batch size), the first at epoch 0, ascending

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes that the job ever uses, ascending."""
        return tuple(sorted({batch for _, batch in self.schedule}))

    @cached_property
    def starts(self) -> Ints:
        """(stages,) first epoch of each stage of the schedule."""
        return np.array([epoch for epoch, _ in self.schedule], np.int64)

    @cached_property
    def regimes(self) -> Ints:
        """(stages,) position in ``batches`` of each stage of the schedule."""
        return np.array([self.batches.index(batch) for _, batch in self.schedule], np.int64)

    @cached_property
    def epochs_in(self) -> Floats:
        """(batches,) epochs that the whole job trains at each batch size."""
        return epochs_between(self, 0.0, self.epochs)

    @cached_property
    def steps_per_epoch(self) -> Floats:
        """(batches,) steps of an epoch at each batch size."""
        return np.array([steps_per_epoch(self.samples, b) for b in self.batches], np.float64)


def steps_per_epoch(samples: int, batch: int) -> int:
    """Steps of one pass over the data; the last mini-batch may be smaller."""
    return ceil(samples / batch)


def epochs_between(adaptation: Adaptation, first: float, last: float) -> Floats:
    """(batches,) epochs trained at each batch size from progress ``first`` to progress ``last``."""
    starts = adaptation.starts.astype(np.float64)
    ends = np.append(starts[1:], np.inf)
    spent = np.clip(np.minimum(ends, last) - np.maximum(starts, first), 0.0, None)
    total = np.bincount(adaptation.regimes, spent, len(adaptation.batches))
    return total.astype(np.float64)
