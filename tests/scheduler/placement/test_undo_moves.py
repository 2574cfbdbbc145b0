"""Rows go back to devices of the round before, where nobody else is placed."""

import numpy as np
from tests.scheduler.placement.places import placed, rows

from fairlead.scheduler.placement.avoid_nodes import DeviceAssignment
from fairlead.scheduler.placement.records import PreviousRound, Topology
from fairlead.scheduler.placement.undo_moves import (
    PlacedGroups,
    moved_for_nothing,
    undo_group_swaps,
    undo_moves,
    undo_swaps,
)


def old(*devices: int) -> tuple[int, np.ndarray]:
    return 1, np.array(devices)


def test_a_row_goes_back_to_devices_that_are_free() -> None:
    before = placed([0], [1])
    result = undo_moves(before, {1: old(5)})
    assert rows(result) == [[0], [5]]
    assert (result.kept.tolist(), result.slot.tolist()) == ([False, True], [0, 1])
    assert rows(before) == [[0], [1]]


def test_rows_that_change_places_both_go_back() -> None:
    assert rows(undo_moves(placed([0, 1], [2, 3]), {0: old(2, 3), 1: old(0, 1)})) == [
        [2, 3],
        [0, 1],
    ]


def test_a_row_on_whose_devices_another_is_placed_does_not_and_neither_does_who_waits_for_it() -> (
    None
):
    before = placed([0], [1], [2])
    assert undo_moves(before, {1: old(0), 2: old(1)}) is before


def test_a_row_changes_places_with_one_that_is_as_fast_there() -> None:
    before = placed([0], [5], [7, 8])
    result = undo_swaps(before, {0: old(5), 2: old(9, 10)}, lambda *_: True)
    assert rows(result) == [[5], [0], [7, 8]]
    assert (result.kept.tolist(), result.slot.tolist()) == ([True, False, False], [1, 0, 0])
    assert rows(undo_swaps(before, {0: old(5)}, lambda *_: False)) == rows(before)
    wider = placed([0], [5, 6])
    assert rows(undo_swaps(wider, {0: old(5)}, lambda *_: True)) == rows(wider)


def test_rows_that_move_in_a_circle_all_go_back() -> None:
    moved = placed([1], [2], [0])
    back = {row: old(row) for row in range(3)}
    assert rows(undo_swaps(moved, back, lambda *_: True)) == [[0], [1], [2]]


def test_a_row_that_was_the_third_of_a_circle_is_known_to_be_back() -> None:
    moved = placed([1], [2], [0])
    result = undo_swaps(moved, {row: old(row) for row in range(3)}, lambda *_: True)
    assert result.kept.all()


# Devices 0 to 3 are of slot 0, 4 to 7 of slot 1; rows have been on slot 1, see ``old``.
TOPOLOGY = Topology(
    device_type=np.repeat([0, 1], 4),
    device_node=np.repeat([0, 1], 4),
    usable=np.ones(8, np.bool_),
    fewest_servers=np.ones((2, 5), np.int64),
    accelerator_of_slot=np.array([0, 1]),
    other_locality=np.array([-1, -1]),
    scattered=np.zeros(2, np.bool_),
)


def on(assignment: DeviceAssignment, *slots: int) -> DeviceAssignment:
    assignment.slot[:] = slots
    return assignment


def test_a_row_changes_places_with_smaller_ones() -> None:
    before = on(placed([0, 1], [4], [5]), 0, 1, 1)
    result = undo_group_swaps(before, {0: old(4, 5)}, TOPOLOGY, lambda *_: True)
    assert rows(result) == [[4, 5], [0], [1]]
    assert (result.slot.tolist(), result.kept.tolist()) == ([1, 0, 0], [True, False, False])
    assert rows(
        undo_group_swaps(before, {0: old(4, 5)}, TOPOLOGY, lambda row, *_: row != 2)
    ) == rows(before)


def test_rows_change_places_with_a_larger_one() -> None:
    before = on(placed([0], [2], [4, 5]), 0, 0, 1)
    back = {0: old(4), 1: old(5)}
    assert rows(undo_group_swaps(before, back, TOPOLOGY, lambda *_: True)) == [[4], [5], [0, 2]]


def test_a_row_goes_back_for_a_larger_one_only_where_that_finds_free_devices() -> None:
    before = on(placed([0], [4, 5]), 0, 1)
    back, free = {0: old(4)}, np.ones(8, np.bool_)
    free[[0, 4, 5]] = False
    assert rows(undo_group_swaps(before, back, TOPOLOGY, lambda *_: True)) == rows(before)
    found = undo_group_swaps(before, back, TOPOLOGY, lambda *_: True, free=free)
    assert rows(found) == [[4], [0, 1]]
    free[1:4] = False
    assert rows(undo_group_swaps(before, back, TOPOLOGY, lambda *_: True, free=free)) == rows(
        before
    )


def test_who_shares_devices_with_a_row_that_stays_keeps_them() -> None:
    before = on(placed([0, 1], [4], [6]), 0, 1, 1)
    result = undo_group_swaps(before, {0: old(4, 5)}, TOPOLOGY, lambda *_: True)
    assert rows(result) == rows(before), "of slot 1 there would be one device less in use"


def test_where_locality_matters_rows_of_other_sizes_do_not_change_places() -> None:
    before = on(placed([0, 1], [4], [5]), 0, 1, 1)
    topology = TOPOLOGY._replace(other_locality=np.array([2, -1, 0]))
    assert rows(undo_group_swaps(before, {0: old(4, 5)}, topology, lambda *_: True)) == rows(before)


def test_a_move_to_another_type_is_for_nothing_where_no_member_is_faster() -> None:
    rate = np.ones((5, 3, 2))  # slots 0 and 1 are of one type
    rate[1, 2, 0] = 1.005  # within the tolerance
    rate[2, 2, 0] = 1.02
    rate[3, 2, 1] = 1.02  # of a member that is there
    rate[4, :, 0] = 0.0  # cannot run: then nothing is equal
    members = np.array([[0, -1], [1, -1], [2, -1], [3, 4], [5, -1]])
    group, slot = np.array([4, 3, 2, 1, 0]), np.full(5, 2)
    made = PlacedGroups(group, slot, members, rate, np.array([0, 0, 1]))
    nowhere, none = np.zeros(1, np.int64), np.zeros(0, np.int64)

    def found(groups: list[int], slots: list[int]) -> list[int]:
        before = PreviousRound(np.array(groups), np.array(slots), nowhere, none)
        return list(moved_for_nothing(made, before, 0.01))

    assert found([0, 1, 2, 3, 4, -1], [0, 1, 0, 0, 0, 0]) == [3, 4]
    assert found([0, 1], [2, -1]) == []  # stays on its type; had no devices
