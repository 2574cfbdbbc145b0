"""Points in time as options: a date, a date with a time, or how long ago."""

import time
from datetime import UTC, date, datetime
from datetime import time as time_of_day

from fairlead.errors import ConfigError
from fairlead.model.duration_text import SHORT, UNITS

TIME_HELP = "a date or time in ISO 8601 (2026-01-31, 2026-01-31T12:00; UTC), or as 90m, 12h, 7d ago"
DAY_HELP = "a day (2026-01-31; UTC), or as 7d ago"


def read_day(text: str | None, option: str) -> date | None:
    """A day of UTC; None where nothing is given. Raises ConfigError."""
    seconds = read_time(text, option)
    if text is None or seconds is None:
        return None
    day = datetime.fromtimestamp(seconds, UTC)
    if text[-1:] in ("s", "m", "h") or (text[-1:] != "d" and day.time() != time_of_day()):
        raise ConfigError(f"{option}: expected {DAY_HELP}: accounts are kept by day, got {text!r}")
    return day.date()


def read_time(text: str | None, option: str) -> float | None:
    """Seconds of the wall clock; None where nothing is given. Raises ConfigError."""
    if text is None:
        return None
    if (ago := SHORT.fullmatch(text)) is not None:
        return max(time.time() - int(ago[1]) * UNITS[ago[2]], 0.0)
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"{option}: expected {TIME_HELP}, got {text!r}") from None
    if seconds < 0:
        raise ConfigError(f"{option}: must not be before 1970, got {text!r}")
    return seconds
