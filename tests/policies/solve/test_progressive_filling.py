"""Water poured into a tree of entities and rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policies.solve.progressive_filling import EntityTree

# rows 0 to 4; the root 5, with row 0 and the entities 6 (rows 1, 2) and 7 (rows 3, 4)
TREE = EntityTree(
    np.array([5, 6, 6, 7, 7, 5, 5, 5]),
    np.array([1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 2.0, 1.0]),
    np.array([0, 1, 2, 3, 4, 0, 1, 3]),
    np.array([False, False, True]),
)


def test_an_entitys_weight_goes_to_its_children_by_weight_or_in_order() -> None:
    tree_with_room = TREE.with_capacity(np.full(5, 10.0))
    assert tree_with_room.full == 20.0
    assert tree_with_room.fill(1.0) == pytest.approx([1, 0.5, 1.5, 1, 0])
    assert tree_with_room.fill(8.0) == pytest.approx(
        [8, 6, 10, 8, 0]
    )  # row 2 is full, row 1 has the rest
    assert tree_with_room.fill(12.0) == pytest.approx([10, 10, 10, 10, 2])


def test_a_full_row_gives_way() -> None:
    tree_with_room = TREE.with_capacity(np.array([10.0, 10.0, 0.0, 0.0, 10.0]))
    assert tree_with_room.fill(1.0) == pytest.approx([1, 2, 0, 0, 1])


def test_rows_know_their_child_of_the_root() -> None:
    deep = EntityTree(
        np.array([4, 3, 2, 2, 3]), np.ones(5), np.zeros(5, np.int64), np.array([False] * 3)
    )
    assert deep.child_of_root().tolist() == [3, 3]
    assert TREE.child_of_root().tolist() == [0, 6, 6, 7, 7]


@given(
    room=st.lists(st.floats(0, 1e3), min_size=5, max_size=5),
    level=st.floats(0, 2e3),
    weight=st.lists(st.floats(1e-4, 1e4), min_size=8, max_size=8),
)
def test_what_goes_in_is_what_entities_take(
    room: list[float], level: float, weight: list[float]
) -> None:
    tree = EntityTree(TREE.parent, np.array(weight), TREE.rank, TREE.fifo)
    rise = tree.with_capacity(np.array(room)).fill(level)
    assert (rise >= 0).all()
    assert (rise <= np.array(room)).all()
    for entity, rows in ((6, [1, 2]), (7, [3, 4])):
        volume = sum(room[row] for row in rows)
        assert rise[rows].sum() == pytest.approx(min(volume, weight[entity] * level))
