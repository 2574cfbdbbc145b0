"""Removal of folders that a job has filled: neither links nor depth may harm whoever removes them."""

import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def remove_folder(parent: str | Path, name: str) -> None:
    """Remove a directory with all that is in it, however deep; no link is followed in it. A link, or anything
    else, that a job has put in its place is removed itself. Raises OSError; then a part of it may be left,
    all of it still in that directory."""
    with _directory(parent) as above:
        if not _is_directory(name, above):
            os.unlink(name, dir_fd=above)
            return
        with _directory(name, above) as top:
            _keep_out(top)
            while _remove_level(top):
                pass
        os.rmdir(name, dir_fd=above)


def _remove_level(top: int) -> bool:
    """Remove what a directory holds, after the directories in these have been moved up into it: a job may
    have made more levels than there are descriptors. Returns whether there was anything."""
    names = os.listdir(top)
    for name in names:
        if not _is_directory(name, top):
            os.unlink(name, dir_fd=top)
            continue
        with _directory(name, top) as inner:
            _keep_out(inner)
            for below in os.listdir(inner):
                if _is_directory(below, inner):
                    os.rename(below, uuid.uuid4().hex, src_dir_fd=inner, dst_dir_fd=top)
                else:
                    os.unlink(below, dir_fd=inner)
        os.rmdir(name, dir_fd=top)
    return bool(names)


def _keep_out(directory: int) -> None:
    """Let nobody but root make anything in a directory, where root removes it: whoever goes on doing so would
    keep it from coming to an end."""
    if os.geteuid() == 0:
        with suppress(OSError):  # a file server that does not let root
            os.fchown(directory, 0, 0)
            os.fchmod(directory, stat.S_IRWXU)


@contextmanager
def _directory(path: str | Path, above: int | None = None) -> Iterator[int]:
    """A descriptor of a directory that is no link; one within another is named as seen from there."""
    kept = 0 if above is None else os.O_NOFOLLOW
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | kept
    descriptor = os.open(path, flags, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_directory(name: str, above: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
