"""Numbers out of text, with the field's name in every complaint."""

from datetime import UTC, datetime, tzinfo
from math import isfinite

from fairlead.model.argument_checks import brief_repr
from fairlead.model.limits import (
    MAX_NUMBER,
    MAX_SECONDS,
    MAX_WEIGHT,
    MIN_POSITIVE,
    MIN_WEIGHT,
)
from fairlead.simulator.traces.source import Source


def number(
    source: Source,
    line: int,
    name: str,
    value: object,
    most: float = MAX_NUMBER,
    *,
    expected: str = "number",
) -> float:
    """A number from -most to most. expected: what a message calls it."""
    if value is None:
        raise source.fault(line, f"{name}: must not be empty")
    try:
        if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
            raise ValueError  # Python would read True and 1_000 as numbers
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise source.fault(
            line, f"{name}: expected a {expected}, got {brief_repr(value)}"
        ) from None
    except OverflowError:
        raise source.fault(line, f"{name}: must be <= {most:g}, got {brief_repr(value)}") from None
    if not isfinite(result):
        raise source.fault(line, f"{name}: expected a finite number, got {brief_repr(value)}")
    if abs(result) > most:
        bound = f"<= {most:g}" if result > 0 else f">= {-most:g}"
        raise source.fault(line, f"{name}: must be {bound}, got {brief_repr(value)}")
    return result


def at_least_zero(
    source: Source, line: int, name: str, value: object, most: float = MAX_NUMBER
) -> float:
    """A number from 0 to most."""
    result = number(source, line, name, value, most)
    if result < 0:
        raise source.fault(line, f"{name}: must be >= 0, got {brief_repr(value)}")
    return result


def above_zero(
    source: Source, line: int, name: str, value: object, most: float = MAX_NUMBER
) -> float:
    """A number above 0, up to most; what is below ``MIN_POSITIVE`` counts as a mistake."""
    result = number(source, line, name, value, most)
    if result <= 0:
        raise source.fault(line, f"{name}: must be > 0, got {brief_repr(value)}")
    if result < MIN_POSITIVE:
        raise source.fault(line, f"{name}: must be >= {MIN_POSITIVE:g}, got {brief_repr(value)}")
    return result


def seconds(source: Source, line: int, name: str, value: object) -> float:
    """A time or a duration from 0 to ``MAX_SECONDS``."""
    return at_least_zero(source, line, name, value, MAX_SECONDS)


def seconds_above_zero(source: Source, line: int, name: str, value: object) -> float:
    """A duration above 0, up to ``MAX_SECONDS``."""
    return above_zero(source, line, name, value, MAX_SECONDS)


def weight(source: Source, line: int, name: str, value: object) -> float:
    """A weight from ``MIN_WEIGHT`` to ``MAX_WEIGHT``."""
    result = above_zero(source, line, name, value, MAX_WEIGHT)
    if result < MIN_WEIGHT:
        raise source.fault(line, f"{name}: must be >= {MIN_WEIGHT:g}, got {brief_repr(value)}")
    return result


def whole(source: Source, line: int, name: str, value: object, least: int) -> int:
    """A whole number >= least; ``4`` and ``4.0`` both are."""
    result = number(source, line, name, value, 2.0**53, expected="whole number")
    if result != int(result):
        raise source.fault(line, f"{name}: expected a whole number, got {brief_repr(value)}")
    if result < least:
        raise source.fault(line, f"{name}: must be >= {least}, got {brief_repr(value)}")
    if result >= 2**53:
        raise source.fault(line, f"{name}: must be below 2**53, got {brief_repr(value)}")
    return int(result)


def date_s(source: Source, line: int, name: str, text: str, zone: tzinfo | None = UTC) -> float:
    """A date and time as ``2017-10-09 07:01:55`` or ``2017-10-09T09:01:55+02:00``, in seconds since 1970.
    zone: of a text that names none; None = such a text is a mistake. UTC loses no hour to summer time."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None and zone is None:
            raise source.fault(line, f"{name}: expected a time zone, got {brief_repr(text)}")
        time_s = (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise source.fault(
            line, f"{name}: expected a date and time, got {brief_repr(text)}"
        ) from None
    if time_s < 0:
        raise source.fault(line, f"{name}: must not be before 1970, got {brief_repr(text)}")
    return time_s
