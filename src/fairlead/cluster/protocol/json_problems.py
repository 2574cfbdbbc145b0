"""What is wrong with JSON that is well formed, and yet cannot be used: numbers beyond what a number may be,
NaN, half of a surrogate pair. msgspec names neither its place nor, for the latter, the thing itself."""

import json
import re
from math import isinf
from typing import Any, NamedTuple

from fairlead.cluster.protocol.conversion_errors import shown

_MAX_DIGITS = 20  # of an integer of 64 bits, with its sign


_MAX_NAME = 200  # characters of the place of a value
_TORN = re.compile("[\ud800-\udfff]")


class _Place(NamedTuple):
    """The place of a value: a name or a position within another."""

    outer: "_Place | None"
    key: str | int


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
    return _first(content)


def _integer(text: str) -> Any:
    number = int(text) if len(text) <= _MAX_DIGITS else 1 << 64
    return number if -(1 << 63) <= number < 1 << 64 else _Unusable(text, "integer out of range")


def _number(text: str) -> Any:
    return _Unusable(text, "number out of range") if isinf(float(text)) else 0.0


def _constant(text: str) -> Any:
    return _Unusable(text, "JSON has no such number")


def _first(content: Any) -> str:
    """Return what is wrong with the first unusable part of a value. Places are put into words only once one
    is found, and without recursion: a name may be as long as the text, and nested as deep."""
    stack: list[tuple[Any, _Place | None]] = [(content, None)]
    while stack:
        value, place = stack.pop()
        if isinstance(value, _Unusable):
            text = value.text if len(value.text) <= 40 else f"{value.text[:37]}..."
            return f"{_named(place)}{value.why}, got {text}"
        if isinstance(value, str) and _TORN.search(value):
            return f"{_named(place)}is not valid Unicode, got {shown(value)}"
        if isinstance(value, list):
            stack.extend((value[i], _Place(place, i)) for i in reversed(range(len(value))))
        elif isinstance(value, dict):
            torn = next((name for name in value if _TORN.search(name)), None)
            if torn is not None:
                return f"{_named(place)}the name {shown(torn)} is not valid Unicode"
            stack.extend((one, _Place(place, name)) for name, one in reversed(value.items()))
    return ""


def _named(place: _Place | None) -> str:
    """Return the place as ``a[0].b: ``, never longer than fits a sentence; "" for the whole."""
    parts = []
    while place is not None:
        key = place.key
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key[: _MAX_NAME + 1]}")
        place = place.outer
    field = "".join(reversed(parts)).removeprefix(".")
    if len(field) > _MAX_NAME:
        field = f"{field[: _MAX_NAME - 3]}..."
    return f"{field}{': ' * bool(field)}"
