"""Calls of code that is not Fairlead's: it gets read-only arrays, and its errors name it."""

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from fairlead.errors import FairleadError, SolveError
from fairlead.model.argument_checks import brief_repr

T = TypeVar("T")

_OUR_FILES = f"{Path(__file__).parents[1]}/"


def is_built_in(made: object) -> bool:
    """Return whether an object is of one of Fairlead's own classes, which are tested and asked as they
    are."""
    return type(made).__module__.startswith("fairlead.")


@contextmanager
def errors_prefixed(where: str) -> Iterator[None]:
    """Put ``where`` before the message of each FairleadError raised in the block, unless it is there."""
    try:
        yield
    except FairleadError as problem:
        if str(problem).startswith(f"{where}:"):
            raise
        raise type(problem)(f"{where}: {problem}") from None


@contextmanager
def third_party_call(where: str, error: type[FairleadError] = SolveError) -> Iterator[None]:
    """Make one sentence that begins with ``where`` of whatever is raised in the block. An exception that is
    not Fairlead's, ``SystemExit`` too, becomes ``error``, and the sentence ends with the line of code."""
    with errors_prefixed(where):
        try:
            yield
        except FairleadError:
            raise
        except (Exception, SystemExit) as problem:
            raise error(f"{where}: {_sentence(problem)}") from problem


def _sentence(problem: Exception | SystemExit) -> str:
    """Return what was raised, and the last line of others' code that led to it, if it got that far."""
    what = " ".join(f"{type(problem).__name__}: {problem}".split())
    if isinstance(problem, SystemExit):
        what = f"ended the process (sys.exit), got {brief_repr(problem.code)}"
    # Methods that Python makes itself, as those of dataclasses, have no file but "<string>".
    theirs = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not frame.filename.startswith((_OUR_FILES, "<"))
    ]
    return f"{what} ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else what


def read_only(record: T) -> T:
    """Return the record with read-only views of its arrays and of those of records in it."""
    if isinstance(record, np.ndarray):
        view: Any = record.view()
        view.flags.writeable = False
        return view  # type: ignore[no-any-return]
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return type(record)(*map(read_only, record))
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **_views(record, record.__struct_fields__))
    if not is_dataclass(record) or isinstance(record, type):
        return record
    changed = _views(record, [field.name for field in fields(record)])
    return replace(record, **changed) if changed else record


def _views(record: object, names: Iterable[str]) -> dict[str, Any]:
    """The fields of a record, by name, that ``read_only`` changes."""
    views = {name: read_only(getattr(record, name)) for name in names}
    return {name: view for name, view in views.items() if view is not getattr(record, name)}
