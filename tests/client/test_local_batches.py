"""How a batch is shared among ranks and their micro-batches."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.client.local_batches import accumulation, micro_batches

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 9), st.one_of(st.none(), st.integers(1, 12)))


@given(SIZES)
def test_every_sample_counts_once_and_alike(sizes: tuple[int, int, int | None]) -> None:
    count, world_size, most = sizes
    ranks = [
        micro_batches(count, rank=r, world_size=world_size, max_local_batch=most)
        for r in range(world_size)
    ]
    counting = [one for parts in ranks for one in parts if one.weight]
    assert [place for one in counting for place in one.places] == list(range(count))
    for one in counting:  # a sample's part in the mean over the batch, of the mean over the ranks
        assert one.weight / len(one.places) / world_size == pytest.approx(1 / count, rel=1e-15)


@given(SIZES)
def test_ranks_do_alike_within_the_bound(sizes: tuple[int, int, int | None]) -> None:
    count, world_size, most = sizes
    number = accumulation(count, world_size, most)
    own = []
    for rank in range(world_size):
        parts = micro_batches(count, rank=rank, world_size=world_size, max_local_batch=most)
        assert len(parts) == number  # so that all ranks are in the same forward pass
        assert all(len(one.places) >= 1 for one in parts)
        assert most is None or max(len(one.places) for one in parts) <= most
        own.append(sum(len(one.places) for one in parts if one.weight))
    assert max(own) - min(own) <= 1


def test_by_hand() -> None:
    """Ten samples on four ranks are 3 + 3 + 2 + 2, of which at most two are computed at once."""
    parts = [micro_batches(10, rank=r, world_size=4, max_local_batch=2) for r in range(4)]
    assert [[list(one.places) for one in rank] for rank in parts] == [
        [[0, 1], [2]],
        [[3, 4], [5]],
        [[6], [7]],
        [[8], [9]],
    ]
    assert [one.weight for one in parts[0]] == [float(Fraction(8, 10)), float(Fraction(4, 10))]
    [idle] = micro_batches(1, rank=2, world_size=4)
    assert (list(idle.places), idle.weight) == ([0], 0.0)
