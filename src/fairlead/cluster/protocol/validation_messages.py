"""One sentence about a message that does not fit its struct."""

import re
from typing import Any

import msgspec

# What msgspec raises for bytes from strangers; the last two where a text is not UTF-8, or lists are nested
# without end.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_MAX_SHOWN = 60  # characters of a value that are shown
_AT = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def describe_decode_error(name: str, data: bytes, problem: Exception) -> str:
    """Return the fault of ``data``, a message of this name: the field, what is expected, the value."""
    if not isinstance(problem, msgspec.ValidationError):
        return f"{name}: {len(data)} bytes that are not a whole message ({problem})"
    text = str(problem)
    at = _AT.search(text)
    expected = (text[: at.start()] if at else text).rstrip(".").replace("`", "")
    path = at.group(1) if at else ""
    return f"{name}{path}: {expected[:1].lower()}{expected[1:]}{_value(data, path)}"


def _value(data: bytes, path: str) -> str:
    """The value at a path as msgspec writes it, for the end of the sentence; "" if it cannot be told."""
    try:
        value: Any = msgspec.msgpack.decode(data)
        for key, index in _STEP.findall(path):
            value = value[key] if key else value[int(index)]
    except (*UNREADABLE, KeyError, IndexError, TypeError, ValueError):
        return ""  # "[...]": somewhere in a list
    if isinstance(value, dict | list | tuple):
        return ""
    shown = repr(value)
    return f" (it is {shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + '...'})"
