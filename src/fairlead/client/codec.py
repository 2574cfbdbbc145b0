"""Frozen dataclasses as JSON, checked field by field when they come back.

The training side runs in environments that are not ours, so this is the standard library alone. A message is
an object with its class name under ``type`` and its fields beside it. Decoding accepts fields that it does
not know (a newer peer may send more) and defaults that are missing, and refuses everything else: another
type, a value of another type, numbers that are not finite.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

TAG = "type"

Record = TypeVar("Record")
Check = Callable[[object, str], Any]  # (value, where) -> the value as the field has it


class DecodeError(ValueError):
    """The bytes are not what was expected; the message names the field."""


def encode(message: object) -> bytes:
    """A message with its class name, as compact JSON in ASCII. Raises ValueError for NaN and infinity."""
    return _json({TAG: type(message).__name__, **_builtin_fields(message)}).encode("ascii")


def encode_record(record: object) -> str:
    """A dataclass without its class name, as JSON for people: indented."""
    return _json(_builtin_fields(record), indent=1)


def decode(data: bytes, types: Any) -> Any:
    """The message that these bytes are; types: a dataclass, or a Union of them. Raises DecodeError."""
    values = _parse(data)
    known = _by_name(types)
    name = values.get(TAG)
    if not isinstance(name, str) or name not in known:
        raise DecodeError(f"{TAG}: expected one of {', '.join(sorted(known))}, got {_shown(name)}")
    return _build(known[name], values, name)


def decode_record(data: bytes, record_type: type[Record]) -> Record:
    """A dataclass from what ``encode_record`` has written. Raises DecodeError."""
    return _build(record_type, _parse(data), record_type.__name__)


# --- out ------------------------------------------------------------------------------------------
def _json(values: Mapping[str, object], indent: int | None = None) -> str:
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(values, allow_nan=False, indent=indent, separators=separators)


def _builtin_fields(record: object) -> dict[str, object]:
    assert is_dataclass(record)
    return {field.name: _to_builtin(getattr(record, field.name)) for field in fields(record)}


def _to_builtin(value: object) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {name: _to_builtin(one) for name, one in value.items()}
    return _builtin_fields(value) if is_dataclass(value) else value


# --- in -------------------------------------------------------------------------------------------
def _parse(data: bytes) -> dict[str, object]:
    try:
        values = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:  # UnicodeDecodeError is a ValueError
        raise DecodeError(f"not JSON: {problem}") from None
    if not isinstance(values, dict):
        raise DecodeError(f"expected an object, got {_shown(values)}")
    return values


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _build(record_type: type[Record], values: Mapping[str, object], where: str) -> Record:
    given: dict[str, Any] = {}
    for name, (check, required) in _checks(cast(Any, record_type)).items():
        if name in values:
            given[name] = check(values[name], f"{where}.{name}")
        elif required:
            raise DecodeError(f"{where}: {name} is missing")
    return record_type(**given)


@cache
def _by_name(types: Any) -> dict[str, type]:
    members = get_args(types) if get_origin(types) is Union else (types,)
    return {one.__name__: one for one in members}


@cache
def _checks(record_type: Any) -> dict[str, tuple[Check, bool]]:
    """Field name -> (its check, whether it has no default)."""
    hints = get_type_hints(record_type)
    assert is_dataclass(record_type)
    return {
        field.name: (
            _check_of(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(record_type)
    }


def _check_of(hint: Any) -> Check:
    """Return the check that tells a value of this type from others."""
    if get_origin(hint) is Literal:
        return _literal(get_args(hint))
    if get_origin(hint) is dict:
        return _table(_check_of(get_args(hint)[1]))
    if hint in _SCALARS:
        return _SCALARS[hint]
    return lambda value, where: _build(hint, _object(value, where), where)


def _literal(choices: tuple[object, ...]) -> Check:
    def check(value: object, where: str) -> object:
        if isinstance(value, str) and value in choices:
            return value
        raise _mismatch(where, " or ".join(map(repr, choices)), value)

    return check


def _table(check: Check) -> Check:
    def check_all(value: object, where: str) -> dict[str, Any]:
        items = _object(value, where).items()
        return {name: check(one, f"{where}[{_shown(name)}]") for name, one in items}

    return check_all


def _object(value: object, where: str) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    raise _mismatch(where, "an object", value)


def _int(value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _mismatch(where, "a whole number", value)


def _float(value: object, where: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if isfinite(number):
            return number
    raise _mismatch(where, "a finite number", value)


def _str(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    raise _mismatch(where, "text", value)


def _bool(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _mismatch(where, "true or false", value)


def _bytes(value: object, where: str) -> bytes:
    try:
        return b64decode(_str(value, where), validate=True)
    except ValueError:
        raise _mismatch(where, "base64", value) from None


_SCALARS: Mapping[Any, Check] = {
    int: _int,
    float: _float,
    str: _str,
    bool: _bool,
    bytes: _bytes,
}


def _mismatch(where: str, expected: str, value: object) -> DecodeError:
    return DecodeError(f"{where}: expected {expected}, got {_shown(value)}")


def _shown(value: object) -> str:
    """Return a text in ASCII, cut to fit a sentence."""
    text = ascii(value) if not isinstance(value, (dict, list)) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
