"""Files that are still there after the machine has lost its power."""

import os
from pathlib import Path


def make_durable(path: Path) -> None:
    """Return when the disk holds the content of a file or, of a directory, the names in it. Raises
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
