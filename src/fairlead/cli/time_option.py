"""Points in time as options: a date, a date with a time, or how long ago."""

import re
import time
from datetime import UTC, date, datetime
from datetime import time as time_of_day

from fairlead.errors import ConfigError

TIME_HELP = "a date or time in ISO 8601 (2026-01-31, 2026-01-31T12:00; UTC), or as 90m, 12h, 7d ago"
DAY_HELP = "a day (2026-01-31; UTC), or as 7d ago"
_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_day(text: str | None, option: str) -> date | None:
    """A day of UTC; None where nothing is given. Raises ConfigError."""
    seconds = read_time(text, option)
    if text is None or seconds is None:
        return None
    day = datetime.fromtimestamp(seconds, UTC)
    if text[-1:] in ("s", "m", "h") or (text[-1:] != "d" and day.time() != time_of_day()):
        raise ConfigError(f"{option}: expected {DAY_HELP}: accounts are kept by day, got {text!r}")
    return day.date()


def read_duration(text: str, option: str) -> float:
    """Seconds, from text as 90m, 12h or 7d. Raises ConfigError."""
    found = _AGO.fullmatch(text)
    if found is None or not int(found[1]):
        raise ConfigError(f"{option}: expected a time as 30s, 90m, 12h or 7d, got {text!r}")
    return int(found[1]) * _SECONDS[found[2]]


def read_time(text: str | None, option: str) -> float | None:
    """Seconds of the wall clock; None where nothing is given. Raises ConfigError."""
    if text is None:
        return None
    if (ago := _AGO.fullmatch(text)) is not None:
        return max(time.time() - int(ago[1]) * _SECONDS[ago[2]], 0.0)
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"{option}: expected {TIME_HELP}, got {text!r}") from None
    if seconds < 0:
        raise ConfigError(f"{option}: must not be before 1970, got {text!r}")
    return seconds
