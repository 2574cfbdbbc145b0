"""One sentence about fields that do not fit the type that they are converted to."""

import bisect
import difflib
import re
from typing import Any, TypeAlias

import msgspec

_Path: TypeAlias = list[str | int]  # keys and positions, from the outermost value inwards
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"object missing required field (\w+)")
_UNKNOWN = re.compile(r"object contains unknown field (.*)", re.IGNORECASE)
_ANY = "..."  # one of the values of a table, or of a list: msgspec does not say which


def describe_error(
    problem: msgspec.MsgspecError, content: Any, type_: Any, *, strict: bool = True
) -> str:
    """Return msgspec's complaint as ``field: what was expected, got value``. content: what was to be
    converted; type_: to what; strict: as ``msgspec.convert`` was told."""
    text, _, at = str(problem).partition(" - at `")
    is_key = at.startswith("key in ")
    text = text.replace("`", "")
    text = text if text[1:2].isupper() else text[:1].lower() + text[1:]  # JSON stays JSON
    if text == "input data was truncated":  # what msgspec says of half of a surrogate pair, too
        return "JSON is malformed: it is cut off, or has half of a surrogate pair"
    if not isinstance(problem, msgspec.ValidationError):
        return text
    path = _path_of(at.rstrip("`").removeprefix("key in "), content, type_, strict)
    field = _field(path)
    if unknown := _UNKNOWN.fullmatch(text):
        return _unknown_field(field, unknown[1], _type_at(type_, path))
    if missing := _MISSING.fullmatch(text):
        return f"{field}{'.' * bool(field)}{missing[1]}: is missing"
    found = None if is_key else _value_at(path, content)
    is_null = text.endswith(", got null")
    text = _expected(text, _type_at(type_, path))
    if found is not None or is_null:
        text = f"{text.partition(', got ')[0]}, got {shown(found)}"
    return f"{field}: {text}" if field else text


def shown(value: object) -> str:
    """Return a value for a sentence: in ASCII, and never longer than fits one."""
    text = "null" if value is None else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_of(values: tuple[object, ...]) -> str:
    """Return the values as "'a', 'b' or 'c'"; truth values as they are written."""
    words = [str(value).lower() if isinstance(value, bool) else repr(value) for value in values]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _expected(text: str, expected: msgspec.inspect.Type | None) -> str:
    """Return what was expected, in words of a file."""
    values = _literals(expected)
    if values:
        return f"must be {one_of(values)}"
    text = text.replace("expected bool", "expected true or false")
    return text.replace("expected array", "expected a list").replace(" | null", "")


def _literals(expected: msgspec.inspect.Type | None) -> tuple[object, ...]:
    """Return the values that are allowed, truth values first, where there is a list of them; else ()."""
    if isinstance(expected, msgspec.inspect.LiteralType):
        return expected.values
    if isinstance(expected, msgspec.inspect.UnionType):
        found = tuple(value for one in expected.types for value in _literals(one))
        is_flag = any(isinstance(one, msgspec.inspect.BoolType) for one in expected.types)
        return (True, False, *found) if found and is_flag else found
    return ()


def _unknown_field(place: str, name: str, table: msgspec.inspect.Type | None) -> str:
    close = difflib.get_close_matches(name, _field_names(table), n=1)
    field = f"{place}{'.' * bool(place)}{shown(name)[1:-1]}"
    return f"{field}: unknown field" + (f"; did you mean {close[0]}?" if close else "")


def _field_names(table: msgspec.inspect.Type | None) -> list[str]:
    """Return the fields that a table may have."""
    if isinstance(table, msgspec.inspect.StructType):
        return [field.name for field in table.fields]
    if isinstance(table, msgspec.inspect.UnionType):
        return [name for one in table.types for name in _field_names(one)]
    return []


def _path_of(text: str, content: Any, type_: Any, strict: bool) -> _Path:
    """Return the place of msgspec's ``$.a[0].b[...].c``, with the key in place of ``[...]``."""
    path: _Path = []
    for name, index in _STEP.findall(text):
        if index == _ANY:
            key = _failing_key(path, content, type_, strict)
            if key is None:
                return path
            path.append(key)
        else:
            path.append(name or int(index))
    return path


def _failing_key(path: _Path, content: Any, type_: Any, strict: bool) -> str | int | None:
    """Return the key of the first value of a table, or of a list, with which it cannot be converted. By
    halves: each try converts all of the content."""
    values = _value_at(path, content)
    items: list[tuple[str | int, Any]]
    if isinstance(values, dict):
        items = list(values.items())
    elif isinstance(values, list):
        items = list(enumerate(values))
    else:
        return None

    def fails(n: int) -> bool:
        first = dict(items[:n]) if isinstance(values, dict) else values[:n]
        try:
            msgspec.convert(_with(content, path, first), type_, strict=strict)
        except msgspec.ValidationError:
            return True
        return False

    if not fails(len(items)):
        return None
    n = bisect.bisect_left(range(len(items)), True, key=fails)
    return items[max(n - 1, 0)][0] if items else None


def _with(content: Any, path: _Path, value: Any) -> Any:
    """Return a copy of the content with this value at the path."""
    if not path:
        return value
    copied: Any = dict(content) if isinstance(content, dict) else list(content)
    copied[path[0]] = _with(copied[path[0]], path[1:], value)
    return copied


def _type_at(type_: Any, path: _Path) -> msgspec.inspect.Type | None:
    """Return the type that the value at the path has to have; None where that is not one."""
    found: msgspec.inspect.Type | None = msgspec.inspect.type_info(type_)
    for key in path:
        found = _inner(found, key)
    return found


def _inner(outer: msgspec.inspect.Type | None, key: str | int) -> msgspec.inspect.Type | None:
    if isinstance(outer, msgspec.inspect.UnionType):
        fits = [inner for one in outer.types if (inner := _inner(one, key)) is not None]
        return fits[0] if fits else None
    if isinstance(outer, msgspec.inspect.StructType):
        return next((field.type for field in outer.fields if field.name == key), None)
    if isinstance(outer, msgspec.inspect.DictType):
        return outer.value_type
    if isinstance(outer, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        return outer.item_type if isinstance(key, int) else None
    return None


def _value_at(path: _Path, content: Any) -> Any:
    """Return the value at the path; None where it leads nowhere."""
    for key in path:
        try:
            content = content[key]
        except (KeyError, IndexError, TypeError):
            return None
    return content


def _field(path: _Path) -> str:
    """Return the path as a sentence names it: ``a[0].b``."""
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in path]
    return "".join(parts).removeprefix(".")
