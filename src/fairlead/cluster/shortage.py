"""File descriptors and memory run out now and then, for a while, without any fault of who needs them."""

import contextlib
import errno
import logging
import os
import time
from collections.abc import Iterator

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)  # of an OSError: this process has none, or nobody
_SHORTAGES = (*NO_DESCRIPTORS, errno.ENOMEM, errno.ENOBUFS)
_SILENT_S = 60.0  # between two lines of the log
_log = logging.getLogger(__name__)


def is_shortage(problem: BaseException) -> bool:
    """Return whether something has run out, and may be there again later."""
    if isinstance(problem, OSError):
        return problem.errno in _SHORTAGES
    return isinstance(problem, MemoryError)


def lacking(shortage: BaseException) -> str:
    """Return what has run out, for people."""
    return getattr(shortage, "strerror", None) or "no memory"


def check_descriptors(count: int) -> None:
    """Raise OSError where this process may not have so many more file descriptors."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(count))
    finally:
        for descriptor in opened:
            os.close(descriptor)


class Shortage:
    """A guard of work that is given up where something runs out, and has to be done again later."""

    def __init__(self) -> None:
        self._told_s = -_SILENT_S

    @contextlib.contextmanager
    def outlasts(self) -> Iterator[None]:
        """Raises what the block raises for other reasons."""
        try:
            yield
        except (OSError, MemoryError) as problem:
            if not is_shortage(problem):
                raise
            self.log(problem)

    def log(self, shortage: BaseException) -> None:
        """Write what has run out to the log, once a minute."""
        now = time.monotonic()
        if now - self._told_s >= _SILENT_S:
            self._told_s = now
            _log.warning("%s: tried again until there is some", lacking(shortage))
