"""The reason why a checkpoint could not be saved. Libraries tell of a full disk in words of their own, or in
none at all, so the storage itself is asked."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fairlead.client.storage import (
    PERMISSION_ERRORS,
    STORAGE_ERRORS,
    WRITE_ERRORS,
    directory_sentence,
    names_path_in,
    place_of,
)

PROBE_BYTES = 1 << 18  # whoever has no room for that has none for a checkpoint
_MAX_CHAIN = 20  # exceptions that one may have been raised from
_MAX_TEXT = 200  # characters of what a library says
_OF_STORAGE = STORAGE_ERRORS | PERMISSION_ERRORS


class SaveProblem(NamedTuple):
    """The reason why a checkpoint could not be saved."""

    why: str  # for people, one sentence without a full stop
    place: str = ""  # the directory that is out of order (``storage.place_of``), "" = not known
    of_storage: bool = False  # is it, as far as can be told, no fault of the script's?


def save_problem(problem: Exception, partial: Path) -> SaveProblem:
    """Return the problem behind an error of a save.
    partial: the folder of the unfinished checkpoint, in the directory of all."""
    directory = partial.parent
    found = _of_directory(problem, directory) or _probed(partial)
    text = str(problem) or type(problem).__name__
    if found is None:
        return SaveProblem(text, of_storage=_tells_of_storage(problem))
    why = str(found.strerror or found)
    if found is not problem and why not in text:
        why += f" ({type(problem).__name__}: {text[:_MAX_TEXT]})"
    return SaveProblem(
        directory_sentence(str(directory), why), place_of(found, directory), of_storage=True
    )


def _of_directory(problem: BaseException, directory: Path) -> OSError | None:
    """The error of the storage in a chain of errors that names a path in a directory."""
    for error in _chain(problem):
        if not isinstance(error, OSError) or error.errno not in _OF_STORAGE:
            continue
        if names_path_in(error, directory):
            return error
    return None


def _tells_of_storage(problem: BaseException) -> bool:
    """Return whether an error may be one of storage, though not of which."""
    texts = [os.strerror(number) for number in WRITE_ERRORS]
    return any(
        (isinstance(error, OSError) and error.errno in WRITE_ERRORS)
        or any(text in str(error) for text in texts)
        for error in _chain(problem)
    )


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised from, or while they were handled."""
    error: BaseException | None = problem
    for _ in range(_MAX_CHAIN):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _probed(partial: Path) -> OSError | None:
    """Return the error of storage that takes no bytes, or has less left than the last checkpoint takes.
    None: neither explains a failure. The library may have removed what filled the storage."""
    try:
        _write_probe(partial / ".probe")
        return _no_room(partial)
    except OSError as problem:
        return problem if problem.errno in _OF_STORAGE else None


def _write_probe(path: Path) -> None:
    """Bring some bytes to the disk, and remove them. Raises OSError."""
    try:
        with path.open("wb") as file:
            file.write(os.urandom(PROBE_BYTES))  # a file system may store zeros in no space
            file.flush()
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            path.unlink()


def _no_room(partial: Path) -> OSError | None:
    """The error of a file system that has less left than the checkpoint before takes. Raises OSError."""
    names = [name for name in os.listdir(partial.parent) if name.startswith("step-")]
    if not names:
        return None
    before, now = _size(partial.parent / max(names)), _size(partial)
    left = os.statvfs(partial)
    room, files = left.f_bavail * left.f_frsize, left.f_favail
    if now.bytes + room >= before.bytes and (not left.f_files or now.files + files >= before.files):
        return None
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(partial))


class _Size(NamedTuple):
    bytes: int
    files: int


def _size(folder: Path) -> _Size:
    """Return the size of all files in a folder. Raises OSError."""
    size = files = 0
    for above, _, names in os.walk(folder):
        files += len(names)
        found = [os.lstat(os.path.join(above, name)) for name in names]
        size += sum(min(one.st_size, 512 * one.st_blocks) for one in found)  # it may be sparse
    return _Size(size, files)
