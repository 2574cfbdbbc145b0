"""Processes that a terminal's Ctrl-C is not for, though it reaches the whole group."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes that are started in the block never get a SIGINT: their parent decides when they end. A
    handler of their own would come too late, after their imports. Works in any thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
