"""Calls of functions as files: what is to be called, and what came of it.

All files of one submission are in a folder, which whoever submits and the jobs see under the same path::

    calls                  the function and the arguments of each call, pickled one by one
    results/INDEX/ATTEMPT  what an attempt of the job has returned or raised

Whatever is in such a folder is unpickled, which may run any code: it is made for its owner alone.
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import traceback
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from fairlead.client.durable import make_durable
from fairlead.errors import ConfigError

_COUNT = struct.Struct("<Q")


class CallError(Exception):
    """A call ended without a value, and without an exception of its function's."""


class RemoteTracebackError(Exception):
    """The traceback of an exception in the process that raised it. It is the cause of that exception here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class CallResult(NamedTuple):
    """The result of a call: its value or, pickled if that could be done, its exception."""

    is_value: bool
    content: bytes  # pickled; b"" = that could not be done
    problem: str  # what was raised, or why it could not be pickled, in words
    remote_traceback: str

    def value(self) -> Any:
        """The value. Raises the exception of the call, its remote traceback as the cause; CallError where
        either cannot be unpickled here."""
        try:
            content = pickle.loads(self.content) if self.content else None
        except Exception as problem:
            what = "value" if self.is_value else f"exception ({self.problem})"
            raise CallError(
                f"the {what} cannot be unpickled here: {_words(problem)}"
            ) from RemoteTracebackError(self.remote_traceback)
        if self.is_value and self.content:
            return content
        if not isinstance(content, BaseException):
            content = CallError(self.problem)
        raise content from RemoteTracebackError(self.remote_traceback)


def call_result(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> CallResult:
    """Call a function, and return what came of it. What ends a process (``SystemExit``) ends this one."""
    try:
        value = function(*arguments, **named)
    except Exception as problem:
        return _raised(problem)
    try:
        return CallResult(True, _dumps(value), "", "")
    except Exception as problem:
        return CallResult(False, b"", f"the value cannot be pickled: {_words(problem)}", "")


def _raised(problem: Exception) -> CallResult:
    text = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
    try:
        content = _dumps(problem)
        pickle.loads(content)  # exceptions with arguments of their own often cannot be made again
    except Exception:
        content = b""
    return CallResult(False, content, _words(problem), text)


def _words(problem: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(problem), problem)).strip()


class CallFolder:
    """The files of one submission."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_calls(
        self,
        function: Callable[..., Any],
        calls: Iterable[tuple[tuple[Any, ...], dict[str, Any]]],
    ) -> None:
        """Write what is to be called. Raises ConfigError for what cannot be pickled, or written."""
        pieces = [dump_for_jobs(function), *map(dump_for_jobs, calls)]
        offsets = [_COUNT.size * (len(pieces) + 2)]
        for piece in pieces:
            offsets.append(offsets[-1] + len(piece))
        head = b"".join(map(_COUNT.pack, [len(pieces), *offsets]))
        try:
            self.path.mkdir(mode=0o700)
            _write(self.path / "calls", [head, *pieces])
        except OSError as problem:
            raise ConfigError(f"{self.path}: cannot be written: {problem.strerror}") from None

    def read_call(self, number: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function and the arguments of one of the calls, counted from 0."""
        with (self.path / "calls").open("rb") as file:
            function = pickle.loads(_piece(file, 0))
            arguments, named = pickle.loads(_piece(file, number + 1))
        return function, arguments, named

    def write_result(self, number: int, attempt: int, result: CallResult) -> None:
        """Write what came of a call: whole, or not at all."""
        path = self._results(number) / str(attempt)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(f".{attempt}.{os.getpid()}")
        _write(partial, [pickle.dumps(tuple(result))])
        partial.replace(path)
        make_durable(path.parent)

    def read_result(self, number: int, attempt: int) -> CallResult | None:
        """Return the result of the newest attempt up to this one that has written one; None = none has."""
        try:
            names = [int(name) for name in os.listdir(self._results(number)) if name.isdecimal()]
        except FileNotFoundError:
            return None
        written = [name for name in names if name <= attempt]
        if not written:
            return None
        content = (self._results(number) / str(max(written))).read_bytes()
        return CallResult(*pickle.loads(content))

    def _results(self, number: int) -> Path:
        return self.path / "results" / str(number)


def dump_for_jobs(content: object) -> bytes:
    """Pickle what a job is to unpickle. Raises ConfigError where it could not do that."""
    try:
        return _dumps(content, _PortablePickler)
    except ConfigError:
        raise
    except Exception as problem:
        raise ConfigError(
            f"{_name(content)} cannot be passed on to a job ({_words(problem)}): use what is defined at the "
            "top of a module that jobs can import, or install cloudpickle here and in the jobs' Python"
        ) from None


class _PortablePickler(pickle.Pickler):
    """Refuses what pickle would name by ``__main__``, which is another module in a job."""

    def reducer_override(self, content: Any) -> Any:
        if isinstance(content, (type, FunctionType)) and content.__module__ == "__main__":
            raise ConfigError(
                f"{content.__qualname__} is defined in the script that runs, which jobs cannot import: move "
                "it to a module, or install cloudpickle here and in the jobs' Python"
            )
        return NotImplemented


def _dumps(content: object, plain: type[pickle.Pickler] = pickle.Pickler) -> bytes:
    """Pickle, by cloudpickle where that is installed."""
    try:
        pickler = importlib.import_module("cloudpickle").Pickler
    except ImportError:
        pickler = plain
    written = BytesIO()
    pickler(written).dump(content)
    return written.getvalue()


def _name(content: object) -> str:
    name = getattr(content, "__qualname__", "")
    return name or "what a function is called with"


def _piece(file: Any, number: int) -> bytes:
    file.seek(_COUNT.size * (number + 1))
    first, end = struct.unpack("<2Q", file.read(2 * _COUNT.size))
    file.seek(first)
    content: bytes = file.read(end - first)
    return content


def _write(path: Path, pieces: Sequence[bytes]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
