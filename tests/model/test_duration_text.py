"""Lengths of time as people read them."""

import pytest

from fairlead.model.duration_text import ago, duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "-"),
        (float("inf"), "-"),
        (0.0, "0 s"),
        (0.0204, "20 ms"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.96, "1 min"),
        (185.0, "3 min 05 s"),
        (3599.6, "1 h"),
        (7200.0, "2 h"),
        (7800.0, "2 h 10 min"),
        (86_399.9, "1 d"),
        (356_400.0, "4 d 3 h"),
        (-8.5, "-8.5 s"),
    ],
)
def test_at_most_two_units(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_what_is_to_come_was_no_time_ago() -> None:
    assert (ago(12.0, 100.0), ago(100.0, 12.0)) == ("1 min 28 s ago", "0 s ago")
