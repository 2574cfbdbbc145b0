"""Rows of a report are entered in order of their end."""

import numpy as np
import pytest

from fairlead.scheduler.core.round_reports import by_end


@pytest.mark.parametrize(
    ("finish_s", "rows"),
    [
        ([], []),
        ([360.0, 360.0, 360.0], [0, 1, 2]),
        ([360.0, 200.0, 200.0], [0, 1, 2]),
        ([200.0, 360.0, 200.0, 360.0], [1, 3, 0, 2]),
    ],
)
def test_those_that_stopped_last_come_first_and_ties_stay_in_order(
    finish_s: list[float], rows: list[int]
) -> None:
    assert by_end(np.array(finish_s, np.float64)).tolist() == rows
