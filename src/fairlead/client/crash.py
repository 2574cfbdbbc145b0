"""A file in which a rank leaves the exception that it dies of, for its agent.

The file is named by ``FAIRLEAD_FAILURE_FILE``. Handlers that the script has installed are called as ever.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

VARIABLE = "FAIRLEAD_FAILURE_FILE"
MAX_TRACEBACK = 60_000  # characters; what is between is left out
MAX_MESSAGE = 2_000
MAX_CAUSES = 20  # exceptions that others came of
_LOADED_STEP = "_fairlead_loaded_step"  # attribute of an exception that a script's load has raised
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _unknown() -> int:
    return -1


class _Reporter:
    """Writes at most one exception of a thread, and then that of the main thread."""

    def __init__(self) -> None:
        self.pid = 0  # of the process in which the handlers are installed; its forks write nothing
        self.path = ""
        self.step: Callable[[], int] = _unknown

    def write(self, kind: type[BaseException], error: Any, trace: TracebackType | None) -> None:
        if not issubclass(kind, SystemExit):
            self._put(lambda: _report(kind, error, trace, self.step()))

    def write_storage(self, error: OSError, place: str) -> None:
        """The process is about to leave because its checkpoints cannot be had. place: see
        ``storage.place_of``."""

        def report() -> dict[str, Any]:
            found = _report(type(error), error, error.__traceback__, self.step())
            return {**found, "storage": error.errno, "place": place}

        self._put(report)

    def write_damaged(self, error: Exception) -> None:
        """The process is about to leave because its checkpoints are damaged."""
        told = {"type": name_of(type(error)), "message": str(error)[:MAX_MESSAGE]}
        self._put(lambda: {**told, "time_s": time.time(), "damaged": True})

    def write_left(self, step: int) -> None:
        """The process is about to end, and its script has left its loop after this step."""
        self._put(lambda: {"left": step, "time_s": time.time()})

    def _put(self, report: Callable[[], dict[str, Any]]) -> None:
        if os.getpid() != self.pid or not self.path:
            return
        try:
            content = json.dumps(report())
            partial = f"{self.path}.{self.pid}"
            with open(partial, "w", encoding="utf-8", errors="replace") as file:
                file.write(content)
            os.replace(partial, self.path)
        except Exception:  # whatever it is, it must not hide the exception itself
            return


_reporter = _Reporter()


def install(step: Callable[[], int]) -> None:
    """Report uncaught exceptions from now on; does nothing where no agent wants to know.

    step: of the whole job, asked when it has come to that.
    """
    _reporter.step = step
    path = os.environ.get(VARIABLE, "")
    if not path:
        return
    is_there = _reporter.pid != 0  # the handlers are, also in a fork, and of an earlier attempt
    _reporter.path, _reporter.pid = path, os.getpid()
    if not is_there:
        _chain()


def report_storage(error: OSError, place: str) -> None:
    """Tell the agent that this process leaves for an error of the storage of its checkpoints. place: the
    directory that is out of order."""
    _reporter.write_storage(error, place)


def report_damaged(error: Exception) -> None:
    """Tell the agent that this process leaves because its checkpoints are damaged."""
    _reporter.write_damaged(error)


def report_left(step: int) -> None:
    """Tell the agent after which step the script has left its loop: of a gang, all ranks should agree."""
    _reporter.write_left(step)


@contextmanager
def loading(step: int) -> Iterator[None]:
    """Have the report of an exception of the block say that a checkpoint could not be loaded. step: of it."""
    try:
        yield
    except Exception as error:
        with suppress(AttributeError):  # of a class that lets nothing be set
            setattr(error, _LOADED_STEP, step)
        raise


def _loaded_step(error: BaseException | None) -> int | None:
    """The step of the checkpoint whose loading an exception comes of; None: it does not."""
    for _ in range(MAX_CAUSES):
        if error is None:
            break
        step = getattr(error, _LOADED_STEP, None)
        if isinstance(step, int):
            return step
        error = error.__cause__ or error.__context__
    return None


def _chain() -> None:
    before, before_in_thread = sys.excepthook, threading.excepthook

    def on_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        _reporter.write(kind, error, trace)
        before(kind, error, trace)

    def in_thread(args: Any) -> None:
        if not os.path.exists(_reporter.path):
            _reporter.write(args.exc_type, args.exc_value, args.exc_traceback)
        before_in_thread(args)

    sys.excepthook, threading.excepthook = on_exception, in_thread


def _report(
    kind: type[BaseException], error: Any, trace: TracebackType | None, step: int
) -> dict[str, Any]:
    file, line, function = _location(error, trace)
    message, loaded = _message(error), _loaded_step(error)
    if loaded is not None:
        message = f"loading the checkpoint of step {loaded} failed: {message}"
    text = "".join(traceback.format_exception(kind, error, trace))
    if len(text) > MAX_TRACEBACK:
        text = text[: MAX_TRACEBACK // 3] + "\n...\n" + text[-2 * MAX_TRACEBACK // 3 :]
    return {
        "type": name_of(kind),
        "message": message[:MAX_MESSAGE],
        "file": file,
        "line": line,
        "function": function,
        "step": step
        if loaded is None
        else _unknown(),  # it has done none, and may be of another job
        "time_s": time.time(),
        "traceback": text,
    }


def name_of(kind: type[BaseException]) -> str:
    """Return the name of an exception type as a traceback shows it."""
    module = kind.__module__
    return (
        kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    )


def _message(error: Any) -> str:
    try:
        return str(error)
    except Exception:
        return "<its text cannot be made>"


def _location(error: Any, trace: TracebackType | None) -> tuple[str, int, str]:
    """File, line and function of the innermost frame of the script's own code, else of the innermost."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0, ""
    frames = traceback.extract_tb(trace)
    script_frames = [frame for frame in frames if not _is_library(frame.filename)]
    if not frames:
        return "", 0, ""
    in_files = [
        frame for frame in script_frames if frame.filename != "<string>"
    ]  # dataclasses are made there
    frame = (in_files or script_frames or frames)[-1]
    return frame.filename, frame.lineno or 0, frame.name


def _is_library(file: str) -> bool:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = [_PACKAGE, *(path for path in paths if path)]
    return file.startswith("<frozen") or any(file.startswith(f + os.sep) for f in folders)
