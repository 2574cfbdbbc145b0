"""Which signals a child process gets: none of a terminal's Ctrl-C, and SIGKILL when its parent ends."""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

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
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
