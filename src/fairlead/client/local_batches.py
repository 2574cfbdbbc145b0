"""How a batch is shared among any number of ranks, and what each part weighs in the mean over the batch."""

from __future__ import annotations

from typing import NamedTuple


class MicroBatch(NamedTuple):
    """What a rank computes at once.

    places: in the batch, of its samples; of a rank that has none: that of a sample which counts elsewhere.
    weight: of the mean over these samples, where the gradients of the ranks are averaged; 0 = does not count.
    """

    places: range
    weight: float


def share_of(count: int, index: int, shares: int) -> range:
    """Return this one of the shares of so many samples, in order; the first ones have one sample more where
    they do not come out even."""
    size, more = divmod(count, shares)
    first = index * size + min(index, more)
    return range(first, first + size + (index < more))


def accumulation(count: int, world_size: int, max_local_batch: int | None) -> int:
    """Return the micro-batches of each rank, the same number for all of them, for a batch of so many
    samples."""
    largest = -(-count // world_size)
    return 1 if max_local_batch is None else max(1, -(-largest // max_local_batch))


def micro_batches(
    count: int, *, rank: int, world_size: int, max_local_batch: int | None = None
) -> list[MicroBatch]:
    """Return a rank's part of a batch of so many samples.

    The means over all micro-batches times their weights, summed in each rank and averaged over the ranks, are
    the mean over the batch.
    """
    own = share_of(count, rank, world_size)
    number = accumulation(count, world_size, max_local_batch)
    found = []
    for i in range(number):
        share = share_of(len(own), i, number)
        places = range(own.start + share.start, own.start + share.stop)
        weight = world_size * len(places) / count
        found.append(MicroBatch(places or range(1), weight))
    return found
