"""One process at a time writes a run's folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.errors import RunError


def lock_folder(folder: Path) -> int:
    """Return a file descriptor that holds the folder until it is closed. Raises RunError where another
    process does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RunError(f"{folder}: another process writes this run") from None
    return descriptor


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Hold a folder for the block. Raises RunError where another process does."""
    descriptor = lock_folder(folder)
    try:
        yield
    finally:
        os.close(descriptor)
