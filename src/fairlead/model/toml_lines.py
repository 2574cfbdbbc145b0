"""The line of a TOML file that an error is about. ``tomllib`` gives values without their places, so the line
is looked for when there is an error: it is where the shortest part of the file begins to have the key."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from fairlead.errors import InputError

# Of parts of a file; what takes more is told without a line.
MAX_PARSES = 400
MAX_PARSED = 1 << 26  # characters in all
_Key: TypeAlias = str | int
# Within what stands before a colon of a sentence: NAME, .NAME, [NAME], [0] counted from 0, or " 1" from 1.
_PART = re.compile(r"\[(\d+)\]|(?<=\w) (\d+)$|[\w-]+")
_NAMED = re.compile(r"(?:unknown key |)'([^']+)'")


@contextmanager
def naming_lines(path: Path | None) -> Iterator[None]:
    """Errors of the block that say ``FILE: FIELD: what is wrong`` say ``FILE:LINE: FIELD: ...`` of a field
    that a TOML file has. Of one that is missing they name the line of its table. path: None = no file."""
    try:
        yield
    except InputError as problem:
        if path is None or path.suffix == ".json" or not path.is_file():
            raise
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except (OSError, ValueError):
            raise problem from None
        raise type(problem)(with_line(str(problem), str(path), text)) from None


def line_of(text: str, keys: Sequence[_Key], most: int = MAX_PARSED) -> int | None:
    """The line, from 1, on which the statement begins that gives a TOML text this key; None = it has none,
    or it is not found with ``MAX_PARSES``. keys: from the outermost table inwards, positions from 0. most:
    characters that are parsed for it."""
    lines = text.replace("\r\n", "\n").split("\n")
    before, after, left = 0, len(lines), min(MAX_PARSES, most // (len(text) + 1))
    if _table(lines, after) is None or not _has(_table(lines, after), keys):
        return None
    while True:  # the part up to ``before`` does not have the key, the one up to ``after`` does
        middle = (before + after) // 2
        for end in (*range(middle, after), *range(middle - 1, before, -1)):
            if not left or end == before:
                continue
            left -= 1
            table = _table(lines, end)
            if table is not None:
                before, after = (before, end) if _has(table, keys) else (end, after)
                break
        else:
            return before + 1 if left else None


def _table(lines: Sequence[str], end: int) -> dict[str, Any] | None:
    """The table of the first lines; None = they end within a statement."""
    try:
        return tomllib.loads("\n".join(lines[:end]))
    except (ValueError, RecursionError):
        return None


def _has(value: Any, keys: Sequence[_Key]) -> bool:
    for key in keys:
        is_element = isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value)
        if not is_element and not (isinstance(value, dict) and key in value):
            return False
        value = value[key]
    return True


def with_line(sentence: str, name: str, text: str, most: int = MAX_PARSED) -> str:
    """A sentence about a TOML text, ``NAME: FIELD: ...``, as ``NAME:LINE: FIELD: ...``; as it is where
    nothing of what it names is in the text, or to find it would take to parse more than ``most``
    characters."""
    start = f"{name}: "
    if not sentence.startswith(start):
        return sentence
    try:
        keys = _keys(sentence.removeprefix(start), tomllib.loads(text.replace("\r\n", "\n")))
    except (ValueError, RecursionError):
        return sentence
    line = line_of(text, keys, most) if keys else None
    return sentence if line is None else f"{name}:{line}: {sentence.removeprefix(start)}"


def _keys(sentence: str, table: Any) -> list[_Key]:
    """Return as much of the field that a sentence names as the table contains."""
    found: list[_Key] = []
    for words in sentence.split(": "):
        if words == "the file":
            continue
        named = _NAMED.match(words)
        whole = named[1] if named else words
        parts = [(whole, "", "")] if named or _has(table, (*found, whole)) else _parts(words)
        before = len(found)
        for name, position, number in parts:
            key: _Key = name or (int(position) if position else int(number) - 1)
            if not _has(table, (*found, key)):
                return found
            found.append(key)
        if len(found) == before:
            return found
    return found


def _parts(words: str) -> list[tuple[str, str, str]]:
    """(name, position from 0, number from 1) of each part of a field, the two others empty."""
    found = []
    for match in _PART.finditer(words):
        position, number = match[1] or "", match[2] or ""
        found.append(("" if position or number else match[0], position, number))
    return found
