"""Files that lie where jobs may write: opened, read and replaced without trusting what is there.

A job may put anything in place of a file that is its to write, and of those beside it: a pipe that nobody
writes to, a device that never ends, a link to somewhere else. None of it may hold up or end a process that
serves all jobs of the node. So whatever is no regular file of our own user is refused without being waited
for, links are not followed, the folder of the file included, and no more than so many bytes are read.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotRegularError(OSError):
    """Raised for a path that is no regular file, or may not be used as one."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "is not a regular file", str(path))


def open_regular(path: Path, access: int = os.O_RDONLY, *, of_folder: bool = False) -> int:
    """A descriptor of a regular file of our user. Raises NotRegularError, OSError.

    access: flags of ``open``. What is to be written to must have no other name: that could be anybody's.
    of_folder: the file must belong to whoever its folder belongs to, a job's user for example, and not to us
    if that is another: it could be another name of any file of ours.
    """
    with _folder(path) as folder:
        owner = os.fstat(folder).st_uid if of_folder else os.geteuid()
        try:
            descriptor = os.open(path.name, access | _OPEN_FLAGS, 0o600, dir_fd=folder)
        except OSError as problem:
            # ELOOP: a link. ENXIO: a socket, or a pipe without a reader. EISDIR: a directory.
            if problem.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise NotRegularError(path) from None
            raise
    found = os.fstat(descriptor)
    mine = stat.S_ISREG(found.st_mode) and found.st_uid == owner
    if mine and (access & os.O_ACCMODE == os.O_RDONLY or found.st_nlink == 1):
        return descriptor
    os.close(descriptor)
    raise NotRegularError(path)


def read_regular(path: Path, most: int, *, of_folder: bool = False) -> bytes:
    """The first bytes of a regular file, at most so many: see ``open_regular``. Raises NotRegularError,
    OSError."""
    with opened(path, of_folder=of_folder) as descriptor:
        return read_from(descriptor, 0, most)


def read_linked(path: Path, most: int) -> bytes:
    """``read_regular`` of a file of the user's, who may have put a link there. Raises NotRegularError,
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | _OPEN_FLAGS & ~os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularError(path)
        return read_from(descriptor, 0, most)
    finally:
        os.close(descriptor)


def read_end(path: Path, most: int, *, of_folder: bool = False) -> bytes:
    """The last bytes of a regular file, at most so many: see ``open_regular``. Raises NotRegularError,
    OSError."""
    with opened(path, of_folder=of_folder) as descriptor:
        return read_from(descriptor, max(0, os.fstat(descriptor).st_size - most), most)


def size_of(path: Path) -> int:
    """Bytes of a regular file, 0 = there is none."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    return 0


@contextlib.contextmanager
def opened(path: Path, access: int = os.O_RDONLY, *, of_folder: bool = False) -> Iterator[int]:
    """``open_regular``, closed afterwards."""
    descriptor = open_regular(path, access, of_folder=of_folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_from(descriptor: int, offset: int, most: int) -> bytes:
    """Bytes of a regular file from an offset, at most so many, however it grows meanwhile. Raises OSError."""
    parts: list[bytes] = []
    while most > 0 and (part := os.pread(descriptor, min(most, 1 << 20), offset)):
        parts.append(part)
        offset += len(part)
        most -= len(part)
    return b"".join(parts)


def open_to_append(path: Path) -> int:
    """A descriptor to append to a file that is made if need be, in a folder that is made if need be. What
    stands in the way of either is given another name. Raises OSError."""
    make_folder(path.parent)
    access = os.O_WRONLY | os.O_APPEND
    try:
        descriptor = open_regular(path, access | os.O_CREAT)
    except (NotRegularError, PermissionError):
        move_out_of_the_way(path)
        descriptor = open_regular(path, access | os.O_CREAT | os.O_EXCL)
    os.set_blocking(descriptor, True)  # as processes expect their output to be
    return descriptor


def write_anew(path: Path, data: bytes) -> None:
    """Write a file that is not there, or in place of what is. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(descriptor, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    """The folder of a path; a link is none."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path.parent, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those that it is in. What stands in their place, or cannot be written to, is given
    another name. Raises OSError."""
    if not path.parent.is_dir():  # not there, or something else stands in its place
        make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True)
    found = path.lstat()
    usable = stat.S_ISDIR(found.st_mode) and os.access(path, os.R_OK | os.W_OK | os.X_OK)
    if not usable:
        move_out_of_the_way(path)
        path.mkdir()


def move_out_of_the_way(path: Path) -> None:
    """Give another name to what stands in a place. Raises OSError."""
    path.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
