"""Job groups leave nodes that they shall avoid, where others can take them."""

import numpy as np
from tests.scheduler.placement.places import placed, rows, topology

from fairlead.model.arrays import Bools
from fairlead.scheduler.placement.avoid_nodes import (
    DeviceAssignment,
    move_away,
)

TOPOLOGY = topology()
STRICT = TOPOLOGY._replace(other_locality=np.array([1, 0]))


def avoided(*nodes: int) -> Bools:
    return np.isin(np.arange(4), nodes)


def test_a_row_takes_free_devices_of_the_fullest_node_that_holds_it() -> None:
    before = placed([0, 1], [4], kept=True)
    result = move_away(before, {0: avoided(0)}, TOPOLOGY)
    assert rows(result) == [[5, 6], [4]]
    assert result.kept.tolist() == [False, True]
    assert rows(before) == [[0, 1], [4]]  # untouched


def test_a_row_elsewhere_stays_where_it_is() -> None:
    assert rows(move_away(placed([4, 5], kept=True), {0: avoided(0)}, TOPOLOGY)) == [[4, 5]]


def test_devices_of_another_type_do_not_serve() -> None:
    assert rows(move_away(placed([0], [4, 5, 6, 7]), {0: avoided(0)}, TOPOLOGY)) == [
        [0],
        [4, 5, 6, 7],
    ]


def test_where_nothing_is_free_rows_of_one_size_change_places() -> None:
    before = placed([0], [1, 2], [3], [4, 5], [6], [7])
    kept = before.kept.copy()
    kept[5] = True
    before = DeviceAssignment(before.offsets, before.devices, kept, before.slot)
    result = move_away(before, {0: avoided(0)}, TOPOLOGY)
    assert rows(result) == [
        [6],
        [1, 2],
        [3],
        [4, 5],
        [0],
        [7],
    ]  # row 4 does not run yet, row 5 does
    assert not result.kept[[0, 4]].any()
    assert result.kept[5]


def test_who_runs_on_is_not_displaced() -> None:
    """What a job avoids is its own affair: nobody pays for it with another start."""
    before = placed([0], [4], [5], [6], [7], [8], [9], [10], [11], kept=True)
    full = TOPOLOGY._replace(usable=np.isin(np.arange(12), before.devices))
    assert rows(move_away(before, {0: avoided(0)}, full)) == rows(before)


def test_nobody_is_moved_to_a_node_that_it_avoids_itself() -> None:
    before = placed([0, 1, 2, 3], [4, 5, 6, 7])
    assert rows(move_away(before, {0: avoided(0), 1: avoided(0)}, TOPOLOGY)) == rows(before)


def test_a_gang_is_not_torn_apart_where_locality_matters() -> None:
    before = placed([8, 9], [10])
    assert rows(move_away(before, {0: avoided(2)}, STRICT)) == rows(before)


def test_a_gang_may_take_the_emptiest_nodes_where_it_does_not() -> None:
    before = placed([8, 9], [10])
    assert rows(move_away(before, {0: avoided(2)}, TOPOLOGY)) == rows(before)  # one device is free
    assert rows(move_away(placed([4, 8]), {0: avoided(1)}, TOPOLOGY))[0] == [0, 1]


def test_broken_devices_are_no_refuge() -> None:
    usable = np.ones(12, np.bool_)
    usable[4:8] = False
    assert rows(move_away(placed([0]), {0: avoided(0)}, topology(usable))) == [[0]]
