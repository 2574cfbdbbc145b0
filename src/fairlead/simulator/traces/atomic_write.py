"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.errors import InputError


@contextmanager
def write_atomically(path: str | Path) -> Iterator[Path]:
    """A temporary path beside ``path``; it takes the name of ``path`` when the block ends well."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise InputError(f"{path}: cannot be written ({problem.strerror or problem})") from None
