"""TOML files and texts, read in one way: every fault is one sentence, and nesting has a limit."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlead.errors import InputError

MAX_DEPTH = 32  # tables and arrays inside each other; whoever walks the result may recurse
MAX_BYTES = 1 << 24
PARTS = ".=[{,"  # outside of strings and comments, each begins a part of a key or a value
MAX_PARTS = 10_000  # of a text that is sent; a job may have 4,096 words, and 1,024 variables
_PLACE = re.compile(r"(?P<said>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)")
_TWICE = "Cannot overwrite a value"
_MAX_KEY = 80  # characters of a key that are shown
_AT_END = " (at end of document)"
_BOM = "\ufeff"  # which editors on Windows put before a text
# What a text consists of, as far as nesting goes: comments and strings, which are passed over; brackets; the
# dots of keys (and of numbers, which have one); whatever ends a key. A string that never ends matches too, so
# that no character is looked at twice.
_TOKEN = re.compile(
    r"""\#[^\n]*|\"{3}(?:[^"\\]|\\.|"(?!""))*+(?:\"{3})?|'{3}(?:[^']|'(?!''))*+(?:'{3})?"""
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|(?P<mark>[][{}.=,\n])""",
    re.DOTALL,
)


def read_toml(path: Path, error: type[InputError]) -> dict[str, Any]:
    """The table that a file holds. Raises ``error`` with the file's name where it is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise error(f"{path}: is larger than {MAX_BYTES:,} bytes")
        text = path.read_bytes().decode()
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror})") from None
    except UnicodeDecodeError as problem:
        raise error(f"{path}: not UTF-8 text at byte {problem.start}") from None
    return parse_toml(text, str(path), error)


def parse_sent_toml(text: str, where: str, error: type[InputError]) -> dict[str, Any]:
    """As ``parse_toml``, of a text that somebody sends to a server: one with more parts than any job has is
    refused before it is parsed, which would take a second and megabytes."""
    parts = sum(token["mark"] in PARTS for token in _TOKEN.finditer(text) if token["mark"])
    if parts > MAX_PARTS:
        raise error(
            f"{where}: has too many keys and values: more than {MAX_PARTS:,} of {' '.join(PARTS)}"
        )
    return parse_toml(text, where, error)


def parse_toml(text: str, where: str, error: type[InputError]) -> dict[str, Any]:
    """The table that a text holds. where: what messages call the text."""
    if nesting_of(text) > MAX_DEPTH:
        raise error(f"{where}: is nested too deeply: more than {MAX_DEPTH} levels")
    try:
        table = tomllib.loads(text.removeprefix(_BOM).replace("\r\n", "\n"))
    except ValueError as problem:  # also numbers and dates that Python cannot hold
        line, what = _told(str(problem), text)
        place = f"{where}:{line}" if line else where
        raise error(f"{place}: is not valid TOML: {what}") from None
    except RecursionError:
        raise error(f"{where}: is nested too deeply") from None
    if any(depth > MAX_DEPTH for depth in _depths(table)):
        raise error(f"{where}: is nested too deeply: more than {MAX_DEPTH} levels")
    return table


def _told(said: str, text: str) -> tuple[int, str]:
    """Return the line that the parser means, 0 = it says none, and what is wrong there."""
    if place := _PLACE.fullmatch(said):
        line, said, at = int(place["line"]), place["said"], f"column {place['column']}"
    elif said.endswith(_AT_END):
        line = text.rstrip().count("\n") + 1
        said, at = said.removesuffix(_AT_END), "at the end"
    else:
        return 0, said
    key, equals, _ = text.split("\n")[line - 1].partition("=")
    if said == _TWICE and equals:
        return line, f"the key {key.strip()[:_MAX_KEY]} is given twice"
    return line, f"{said} ({at})"


def nesting_of(text: str) -> int:
    """Return how deep a TOML text nests by its brackets, or by the parts of one key, as soon as that is more
    than ``MAX_DEPTH``. In linear time: the parser takes time and memory with the square of a key's parts."""
    depth = deepest = 0
    dots = 0  # of the key under way
    for token in _TOKEN.finditer(text):
        mark = token["mark"]
        if mark == ".":
            dots += 1
        elif mark is not None:
            dots = 0
            depth += (mark in "[{") - (mark in "]}")
        deepest = max(deepest, depth, dots + 1)
        if deepest > MAX_DEPTH:
            break
    return deepest


def _depths(table: dict[str, Any]) -> Iterator[int]:
    """Yield how deep each table and array stands, the outermost at 1, without recursion."""
    stack: list[tuple[Any, int]] = [(table, 1)]
    while stack:
        value, depth = stack.pop()
        yield depth
        if depth > MAX_DEPTH:
            continue
        inside = value.values() if isinstance(value, dict) else value
        stack.extend((one, depth + 1) for one in inside if isinstance(one, dict | list))
