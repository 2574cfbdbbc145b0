"""Signals of child processes: no SIGINT from a terminal's Ctrl-C, and SIGKILL when the parent ends. The
second needs prctl(2), which Python's standard library does not have."""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

try:
    import ctypes
except ImportError:  # an interpreter that was built without it
    ctypes = None  # type: ignore[assignment]

_PR_SET_PDEATHSIG = 1


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes that are started in the block never get a SIGINT: their parent decides when they end. A
    handler of their own would come too late, after their imports. Works in any thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends; SIGKILL ends it in the
    middle of anything.

    parent: process id of who started this; where that has ended already, this process ends at once, with
    exit code 0.
    """
    with suppress(OSError):  # without it, the parent has to end the process itself
        prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(0)


def prctl(option: int, argument: int) -> None:
    """Call prctl(2). Raises OSError where it fails, and where the interpreter cannot (a static build)."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.prctl(option, argument, 0, 0, 0) != 0
    except (AttributeError, OSError) as problem:
        raise OSError(errno.ENOSYS, f"prctl cannot be called ({problem})") from None
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")
