"""What is wrong with JSON that is well formed, and yet cannot be used: numbers beyond what a number may be,
NaN, half of a surrogate pair. msgspec names neither its place nor, for the latter, the thing itself."""

import json
from math import isinf
from typing import Any, NamedTuple

from fairlead.cluster.protocol.conversion_errors import shown

_MAX_DIGITS = 20  # of an integer of 64 bits, with its sign


class _Unusable(NamedTuple):
    """A value of no use."""

    text: str
    why: str


def json_problem(data: bytes) -> str:
    """Return ``FIELD: what is wrong, got VALUE`` of the first value that cannot be used; "" = there is none,
    or the text is no JSON at all."""
    try:
        content = json.loads(
            data, parse_int=_integer, parse_float=_number, parse_constant=_constant
        )
    except (ValueError, RecursionError):
        return ""
    return _first(content, "")


def _integer(text: str) -> Any:
    number = int(text) if len(text) <= _MAX_DIGITS else 1 << 64
    return number if -(1 << 63) <= number < 1 << 64 else _Unusable(text, "integer out of range")


def _number(text: str) -> Any:
    return _Unusable(text, "number out of range") if isinf(float(text)) else 0.0


def _constant(text: str) -> Any:
    return _Unusable(text, "JSON has no such number")


def _first(value: Any, field: str) -> str:
    """Return what is wrong with the first unusable part of a value. field: its place."""
    if isinstance(value, _Unusable):
        text = value.text if len(value.text) <= 40 else f"{value.text[:37]}..."
        return f"{field}{': ' * bool(field)}{value.why}, got {text}"
    if isinstance(value, str) and _is_torn(value):
        return f"{field}{': ' * bool(field)}is not valid Unicode, got {shown(value)}"
    parts: list[tuple[str, Any]] = []
    if isinstance(value, list):
        parts = [(f"{field}[{position}]", one) for position, one in enumerate(value)]
    elif isinstance(value, dict):
        for name, one in value.items():
            if _is_torn(name):
                return f"{field}{': ' * bool(field)}the name {shown(name)} is not valid Unicode"
            parts.append((f"{field}{'.' * bool(field)}{name}", one))
    return next((found for place, one in parts if (found := _first(one, place))), "")


def _is_torn(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
