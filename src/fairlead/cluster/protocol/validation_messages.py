"""One sentence about a message that does not fit its struct."""

import re
from functools import cache

import msgspec

# What msgspec raises for bytes from strangers; the last two where a text is not UTF-8, or lists are nested
# without end.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_MAX_SHOWN = 60  # characters of a value that are shown
_MAX_LIST = 1 << 16  # bytes of a list of which an entry is looked for
_Scalar = bool | int | float | str | None
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
    """The value at a path as msgspec writes it, for the end of the sentence; "" if it cannot be told, or is
    none of one part. The rest of the message is passed over, not made: it may be nested without end."""
    value = msgspec.Raw(data)
    try:
        for key, index in _STEP.findall(path):
            if key:
                value = getattr(msgspec.msgpack.decode(value, type=_only(key)), key)
            elif len(value) <= _MAX_LIST:
                value = msgspec.msgpack.decode(value, type=list[msgspec.Raw])[int(index)]
            else:
                return ""
        shown = repr(msgspec.msgpack.decode(value, type=_Scalar))
    except (*UNREADABLE, IndexError, ValueError):
        return ""  # "[...]": somewhere in a list
    return f" (it is {shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + '...'})"


@cache  # the names are those of fields
def _only(key: str) -> type[msgspec.Struct]:
    """A message of which nothing but one field is looked at."""
    return msgspec.defstruct("Only", [(key, msgspec.Raw)])
