"""Arrays of jobs, as text: ``0-99%10``, ``0-9:3,20,30``."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MAX_TASKS = 10_000  # of an array, and of one submission
MAX_INDEX = 999_999_999
_PART = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
_LARGEST = re.compile(r"0*[0-9]{1,9}")  # a number up to MAX_INDEX


class ArrayRange(NamedTuple):
    """The tasks of an array."""

    indices: tuple[int, ...]  # ascending
    limit: int  # tasks that may take part at once; 0 = all


@lru_cache(64)
def parse_array(text: str) -> ArrayRange:
    """The tasks that a text like ``0-9:3,20,30%2`` describes: ranges that include their ends, with or without
    a step, and single indices; after ``%`` how many of them may take part at once. Raises ValueError, which
    says what is wrong."""
    listed, percent, most = text.partition("%")
    indices: set[int] = set()
    for part in listed.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError("expected indices like 0-99, 0-9:3 or 1,4,7, and perhaps %LIMIT")
        _check_sizes(found.groups(""))
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first:
            raise ValueError(f"the range {part} ends before it begins")
        if step < 1:
            raise ValueError(f"the range {part} has a step of 0")
        named = range(first, last + 1, step)
        if len(named) > MAX_TASKS or len(indices.union(named)) > MAX_TASKS:
            raise ValueError(f"an array has at most {MAX_TASKS:,} tasks")
        if not indices.isdisjoint(named):
            raise ValueError(f"{part} names an index that was named before")
        indices.update(named)
    if percent and not re.fullmatch(r"[0-9]*[1-9][0-9]*", most):
        raise ValueError("after % comes how many tasks may take part at once, at least 1")
    _check_sizes((most,))
    return ArrayRange(tuple(sorted(indices)), int(most) if percent else 0)


def _check_sizes(numbers: Iterable[str]) -> None:
    """Raise ValueError for a number that is larger than any index."""
    for number in numbers:
        if number and not _LARGEST.fullmatch(number):
            told = number if len(number) <= 40 else f"{number[:37]}..."
            raise ValueError(f"{told} is larger than {MAX_INDEX:,}, the largest index")
