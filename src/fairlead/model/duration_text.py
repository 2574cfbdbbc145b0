"""Durations as people read and write them."""

import math
import re

from fairlead.errors import ConfigError

SHORT = re.compile(r"(\d{1,6})([smhd])")  # a duration as people write it
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}  # seconds of each
DASH = "-"  # stands for a duration that is not known


def duration(seconds: float | None) -> str:
    """A time in at most two units: ``20 ms``, ``8.5 s``, ``3 min 05 s``, ``2 h 10 min``, ``4 d 3 h``; the
    second one is left out where it is 0. A dash for None and what is not finite."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if 0 < seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return _two_units(whole, "min", 60, "s", 1)
    if whole < 86_400:
        return _two_units(whole, "h", 3600, "min", 60)
    return _two_units(whole, "d", 86_400, "h", 3600)


def read_duration(text: str, option: str) -> float:
    """Seconds, from text as 90m, 12h or 7d. Raises ConfigError."""
    found = SHORT.fullmatch(text)
    if found is None or not int(found[1]):
        raise ConfigError(f"{option}: expected a time as 30s, 90m, 12h or 7d, got {text!r}")
    return int(found[1]) * UNITS[found[2]]


def _two_units(seconds: int, large: str, large_s: int, small: str, small_s: int) -> str:
    first, rest = divmod(seconds, large_s)
    digits = 1 if small == "h" else 2
    second = f" {rest // small_s:0{digits}d} {small}" if rest >= small_s else ""
    return f"{first} {large}{second}"


def ago(at_s: float, now_s: float) -> str:
    """Return how long ago something was; both times count from the same moment."""
    return f"{duration(max(now_s - at_s, 0.0))} ago"
