"""Aligned arrays that grow and shrink together."""

from typing import Any, ClassVar

import numpy as np
import pytest

from fairlead.model.arrays import Floats, Ints
from fairlead.model.growable_table import GrowableTable


class Table(GrowableTable):
    """A column in the block, one of floats, and one beside them."""

    columns: ClassVar[dict[str, Any]] = {
        "id": np.int64,
        "weight": np.float64,
        "rate": (np.float64, "slots"),
    }
    id: Ints
    weight: Floats
    rate: Floats


class Follower(GrowableTable):
    """Further columns of the same rows."""

    columns: ClassVar[dict[str, Any]] = {"done": np.float64, "fails": np.int64}
    done: Floats
    fails: Ints


def table(rows: int, *followers: Follower) -> Table:
    made = Table(*followers, slots=(2,))
    at = made.grow(rows)
    made.id[at] = np.arange(rows)
    made.weight[at] = np.arange(rows) / 2
    made.rate[at] = np.arange(rows)[:, None]
    return made


@pytest.mark.parametrize("gone", [[0], [3], [2, 5], [0, 1, 2, 3, 4, 5], [5]])
def test_rows_that_stay_where_they_are_need_not_be_moved(gone: list[int]) -> None:
    rows = np.setdiff1d(np.arange(6), gone)
    whole, part = table(6), table(6)
    whole.keep(rows)
    part.keep(rows, since=gone[0])
    for one in (whole, part):
        assert one.id.tolist() == rows.tolist()
        assert one.weight.tolist() == (rows / 2).tolist()
        assert one.rate.tolist() == [[row, row] for row in rows.tolist()]


def test_rows_may_be_put_in_another_order() -> None:
    one = table(4)
    one.keep(np.array([3, 1, 0]))
    assert one.id.tolist() == [3, 1, 0]


def test_new_rows_are_zero_where_others_were_before() -> None:
    one = table(4)
    one.keep(np.array([1]), since=0)
    one.grow(30)
    assert not one.id[1:].any()
    assert not one.rate[1:].any()


def test_followers_grow_and_shrink_with_the_table_that_leads() -> None:
    followers = Follower(), Follower()
    one = table(40, *followers)  # more than there is room for at first
    followers[0].done[:] = np.arange(40) / 4
    followers[1].fails[:] = np.arange(40)
    one.keep(np.array([1, 7]))
    one.grow(1)
    assert one.id.tolist() == [1, 7, 0]
    assert [follower.n for follower in followers] == [3, 3]
    assert followers[0].done.tolist() == [0.25, 1.75, 0.0]
    assert not followers[0].fails.any()
    assert followers[1].fails.tolist() == [1, 7, 0]
