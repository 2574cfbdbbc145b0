"""An autoencoder that recommends films, on ML-20M: 117,907 users, 20,108 films.

It learns to give back the set of films that a user likes from a part of it: an input that is normalised and
dropped out, one hidden layer of 200 units, and the multinomial likelihood (the denoising autoencoder of Liang
et al., Variational Autoencoders for Collaborative Filtering, WWW'18). Liked are ratings of 4 or better.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from fairlead.workloads.data import generate_sets, read_ratings
from fairlead.workloads.parts import BuildOptions, WorkloadParts

USERS, ITEMS, LIKED = 117_907, 20_108, 70
WIDTH, DROPOUT, LEARNING_RATE, LEAST_RATING = 200, 0.5, 1e-3, 4.0


class Autoencoder(nn.Module):
    """A set of items through a narrow layer and back."""

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(DROPOUT), nn.Linear(items, width), nn.Tanh(), nn.Linear(width, items)
        )

    def forward(self, sets: torch.Tensor) -> torch.Tensor:
        """(n, items) of 0 and 1 -> the negative log likelihood per user."""
        scores = self.layers(nn.functional.normalize(sets))
        return -(scores.log_softmax(1) * sets).sum(1).mean()


def build(options: BuildOptions) -> WorkloadParts:
    """Return the parts of the workload. small: 16 units, 4,096 users, 200 films."""
    if options.data is not None:
        samples, items = read_ratings(options.data, LEAST_RATING)
    elif options.small:
        items = 200
        samples = generate_sets(4_096, items, 10)
    else:
        items = ITEMS
        samples = generate_sets(USERS, items, LIKED)
    return WorkloadParts(
        model=Autoencoder(items, 16 if options.small else WIDTH),
        samples=samples,
        make_optimizer=partial(torch.optim.Adam, lr=LEARNING_RATE),
        learning_rate=LEARNING_RATE,
        growth_power=0.5,
    )
