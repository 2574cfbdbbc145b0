"""What the answer to a what-if question says of how it was made."""

import numpy as np
import pytest

from fairlead.cluster.forecasting.forecast import ForecastRun
from fairlead.cluster.server.comparison import coarse_note


@pytest.mark.parametrize(
    ("exact_s", "begins"),
    [
        (0.0, "ends are estimated"),
        (90.0, "the next 1 min 30 s are simulated round by round; later"),
    ],
)
def test_the_time_that_was_simulated_is_told_where_there_is_any(
    exact_s: float, begins: str
) -> None:
    run = ForecastRun({}, 0.0, 0.0, (), exact_s)
    (note,) = coarse_note(run, run)
    assert note.startswith(begins)
    assert coarse_note(*[ForecastRun({}, 0.0, 0.0, (), np.inf)] * 2) == ()
