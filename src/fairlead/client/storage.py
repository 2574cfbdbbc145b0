"""Errors of the storage that a job's checkpoints are on: no fault of the job, which goes on once it is well.

A process that cannot go on without its checkpoints leaves with ``EXIT_STORAGE``, and tells its agent the
errno.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from fairlead.client import crash
from fairlead.client.rank_environment import EXIT_STORAGE, RankEnvironment, leave
from fairlead.errors import DamagedError

# Nothing is wrong with the path: it can be used when the storage is well.
STORAGE_ERRORS = frozenset(
    {
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EDQUOT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.ENETUNREACH,
        errno.ENODEV,
        errno.ENOLCK,
        errno.ENOSPC,
        errno.ENOTCONN,
        errno.ENXIO,
        errno.EREMOTEIO,
        errno.EROFS,
        errno.ESHUTDOWN,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
# Who may do what is the operator's matter in the cluster's own directory: the server knows which one it is.
PERMISSION_ERRORS = frozenset({errno.EACCES, errno.EPERM})
# That only files have, and not connections: they count also where no path is named, as of a read.
_FILE_ERRORS = frozenset({errno.EIO, errno.EREMOTEIO, errno.ESTALE})
# The same of a write.
WRITE_ERRORS = _FILE_ERRORS | {errno.EDQUOT, errno.ENOSPC, errno.EROFS}


@contextmanager
def own_access(directory: str | os.PathLike[str], environment: RankEnvironment) -> Iterator[None]:
    """Treat an error of storage in the block as one of a checkpoint directory: it touches nothing else."""
    try:
        yield
    except DamagedError as problem:
        _leave_damaged(problem, directory, environment)
    except OSError as problem:
        if problem.errno in STORAGE_ERRORS | PERMISSION_ERRORS:
            _leave(problem, directory, environment)
        raise


@contextmanager
def scripts_access(
    directory: str | os.PathLike[str], environment: RankEnvironment
) -> Iterator[None]:
    """In it the script reads a checkpoint, and may do other things: those are its own."""
    try:
        yield
    except OSError as problem:
        if _is_of(problem, directory):
            _leave(problem, directory, environment)
        raise


def _is_of(problem: OSError, directory: str | os.PathLike[str]) -> bool:
    """Return whether an error is one of the storage that a directory is on."""
    if not isinstance(problem.filename, (str, bytes)):
        return problem.errno in _FILE_ERRORS
    return problem.errno in STORAGE_ERRORS and names_path_in(problem, directory)


def names_path_in(problem: OSError, directory: str | os.PathLike[str]) -> bool:
    """Return whether an error says that it is about a directory, or about what is in it."""
    path = problem.filename
    if not isinstance(path, (str, bytes)):
        return False
    above, path = os.path.abspath(os.fspath(directory)), os.path.abspath(os.fsdecode(path))
    return path == above or path.startswith(os.path.join(above, ""))


def directory_sentence(path: str, why: str) -> str:
    """Return the sentence for an error of a checkpoint directory."""
    return f"checkpoint directory {path!r}: {why}"


def place_of(problem: OSError, directory: str | os.PathLike[str]) -> str:
    """Which directory an error is about, which another one could not be made or used for: the top of its file
    system where that is out of order, else the highest one on the way there that is wrong."""
    path = os.path.abspath(os.fspath(directory))
    ways = [path]
    while ways[0] != os.path.dirname(ways[0]):
        ways.insert(0, os.path.dirname(ways[0]))
    top, device = ways[0], -1
    for above, way in zip([ways[0], *ways], ways):
        try:
            found = os.stat(way)
        except FileNotFoundError:
            if os.path.islink(way):
                return way
            return top if problem.errno in STORAGE_ERRORS else above
        except PermissionError:
            return above
        except OSError:
            return way
        if not stat.S_ISDIR(found.st_mode):
            return way
        if found.st_dev != device:
            top, device = way, found.st_dev
    return top if problem.errno in STORAGE_ERRORS else path


def _leave(
    problem: OSError, directory: str | os.PathLike[str], environment: RankEnvironment
) -> None:
    """Without a scheduler there is nobody to start it again: then the error is the script's to handle."""
    if environment.socket:
        crash.report_storage(problem, place_of(problem, directory))
        leave(EXIT_STORAGE, directory_sentence(os.fspath(directory), str(problem.strerror)))


def _leave_damaged(
    problem: DamagedError, directory: str | os.PathLike[str], environment: RankEnvironment
) -> NoReturn:
    """The job waits until its owner has put them back, or accepts their loss."""
    found = directory_sentence(os.fspath(directory), str(problem))
    if not environment.socket:
        raise DamagedError(f"{found}; put whole ones back, or move these away") from None
    told = (
        f"{found}; put whole ones back, or `fairlead resume {environment.job} --accept-loss`, "
        "which keeps the damaged ones under other names"
    )
    crash.report_damaged(DamagedError(told))
    leave(EXIT_STORAGE, told)
