"""Which signals a child process gets: none of a terminal's Ctrl-C, and SIGKILL when its parent ends. And
prctl(2), which says so to the kernel, and which Python does not offer itself."""

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


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, in the middle of anything.

    parent: process id of who started this; where that has ended already, this process ends at once, with
    exit code 0.
    """
    with suppress(OSError):  # then its owner has to end it
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def prctl(option: int, argument: int) -> None:
    """Raises OSError; also where this interpreter cannot call it, as one that is linked statically."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.prctl(option, argument, 0, 0, 0) != 0
    except (AttributeError, OSError) as problem:
        raise OSError(errno.ENOSYS, f"prctl cannot be called ({problem})") from None
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")
