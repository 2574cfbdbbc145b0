"""The end of a process that is told to stop: its state is durable, and only the interpreter's own
tearing down (modules, objects, a CUDA context) is left, which takes longer than all the rest.

What a script can notice is done as ever: ``finally`` and ``with`` blocks, threads that are waited for, all
functions of ``atexit``. Files that it left open are flushed. Not run: ``__del__`` of what lives to the end.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from contextlib import suppress
from typing import NoReturn

_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def end_quickly() -> None:
    """Leave at once when the interpreter ends. Without effect unless this is the very process that an agent
    has started, which leads its session: below a launcher the end is the launcher's business."""
    if os.getsid(0) == os.getpid():
        atexit.register(_leave)


def leave_stopped(*, quick: bool) -> NoReturn:
    """End a process that was told to stop: its state is durable, and the agent knows."""
    if quick:
        end_quickly()
    raise SystemExit(0)


def _leave() -> None:
    """The first of the functions of ``atexit``, for it was registered last: runs the others, and leaves."""
    atexit.unregister(_leave)
    if getattr(sys, "last_type", None) is not None:
        return  # an exception was not caught: the exit code is not 0
    end_at_once(0)


def end_at_once(code: int) -> NoReturn:
    """End the process here, where the interpreter would pass over a SystemExit."""
    with suppress(Exception):
        atexit._run_exitfuncs()
    flush_files()
    os._exit(code)


def flush_files() -> None:
    """All files that Python or C has open for writing."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    for one in gc.get_objects():
        if issubclass(type(one), _WRITERS):
            with suppress(Exception):
                one.flush()
    if "ctypes" in sys.modules:
        with suppress(Exception):
            sys.modules["ctypes"].CDLL(None).fflush(None)
