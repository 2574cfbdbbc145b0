"""Rows go back to devices of the round before, where nobody else is placed."""

import numpy as np

from fairlead.scheduler.placement.avoid_nodes import DeviceAssignment
from fairlead.scheduler.placement.undo_moves import move_back, swap_back


def placed(*devices: list[int]) -> DeviceAssignment:
    n = len(devices)
    first = np.cumsum([0, *map(len, devices)])
    return DeviceAssignment(
        first, np.concatenate(devices), np.zeros(n, np.bool_), np.zeros(n, np.int64)
    )


def old(*devices: int) -> tuple[int, np.ndarray]:
    return 1, np.array(devices)


def rows(result: DeviceAssignment) -> list[list[int]]:
    return [result.of(row).tolist() for row in range(len(result.slot))]


def test_a_row_goes_back_to_devices_that_are_free() -> None:
    before = placed([0], [1])
    result = move_back(before, {1: old(5)})
    assert rows(result) == [[0], [5]]
    assert (result.kept.tolist(), result.slot.tolist()) == ([False, True], [0, 1])
    assert rows(before) == [[0], [1]]


def test_rows_that_change_places_both_go_back() -> None:
    assert rows(move_back(placed([0, 1], [2, 3]), {0: old(2, 3), 1: old(0, 1)})) == [[2, 3], [0, 1]]


def test_a_row_on_whose_devices_another_is_placed_does_not_and_neither_does_who_waits_for_it() -> (
    None
):
    before = placed([0], [1], [2])
    assert move_back(before, {1: old(0), 2: old(1)}) is before


def test_a_row_changes_places_with_one_that_is_as_fast_there() -> None:
    before = placed([0], [5], [7, 8])
    result = swap_back(before, {0: old(5), 2: old(9, 10)}, lambda *_: True)
    assert rows(result) == [[5], [0], [7, 8]]
    assert (result.kept.tolist(), result.slot.tolist()) == ([True, False, False], [1, 0, 0])
    assert rows(swap_back(before, {0: old(5)}, lambda *_: False)) == rows(before)
    wider = placed([0], [5, 6])
    assert rows(swap_back(wider, {0: old(5)}, lambda *_: True)) == rows(wider)


def test_rows_that_move_in_a_circle_all_go_back() -> None:
    moved = placed([1], [2], [0])
    back = {row: old(row) for row in range(3)}
    assert rows(swap_back(moved, back, lambda *_: True)) == [[0], [1], [2]]
