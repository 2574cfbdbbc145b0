"""Numbers out of text, with the field's name in every complaint."""

from math import isfinite

from fairlead.traces.lines import Source, shown


def number(source: Source, line: int, name: str, value: object) -> float:
    """A finite number."""
    try:
        if isinstance(value, str) and "_" in value:
            raise ValueError  # Python would read 1_000 as a number
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise source.fault(line, f"{name}: expected a number, got {shown(value)}") from None
    if not isfinite(result):
        raise source.fault(line, f"{name}: expected a finite number, got {shown(value)}")
    return result


def at_least_zero(source: Source, line: int, name: str, value: object) -> float:
    """A finite number >= 0."""
    result = number(source, line, name, value)
    if result < 0:
        raise source.fault(line, f"{name}: must be >= 0, got {shown(value)}")
    return result


def above_zero(source: Source, line: int, name: str, value: object) -> float:
    """A finite number > 0."""
    result = number(source, line, name, value)
    if result <= 0:
        raise source.fault(line, f"{name}: must be > 0, got {shown(value)}")
    return result


def whole(source: Source, line: int, name: str, value: object, least: int) -> int:
    """A whole number >= least; ``4`` and ``4.0`` both are."""
    result = number(source, line, name, value)
    if result != int(result):
        raise source.fault(line, f"{name}: expected a whole number, got {shown(value)}")
    if result < least:
        raise source.fault(line, f"{name}: must be >= {least}, got {shown(value)}")
    if result >= 2**53:
        raise source.fault(line, f"{name}: must be below 2**53, got {shown(value)}")
    return int(result)
