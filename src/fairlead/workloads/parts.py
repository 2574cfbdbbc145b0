"""What a workload's module is given, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fairlead.workloads.data import Dataset


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a workload is built from. data: its folder, None = generated samples of the same shapes. small:
    model and data shrunk for a CPU. rank: of this process."""

    data: Path | None = None
    small: bool = False
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class WorkloadParts:
    """What the loop trains.

    model: given the tensors of a batch it returns the loss.
    samples: all of the data set.
    make_optimizer: parameters -> optimizer.
    learning_rate: of the first batch size; it is multiplied by ``warmup(step)``.
    growth_power: power of the batch size with which the learning rate grows; 1 for SGD (Goyal et al., 2017),
        1/2 for Adam and clipped gradients, whose steps do not shrink with the noise.
    max_norm: gradients are scaled down to this norm, None = they are not.
    state: further objects with state, by name.
    """

    model: nn.Module
    samples: Dataset
    make_optimizer: Callable[[Any], torch.optim.Optimizer]
    learning_rate: float
    warmup: Callable[[int], float] = lambda _step: 1.0
    growth_power: float = 1.0
    max_norm: float | None = None
    state: dict[str, Any] = field(default_factory=dict)
