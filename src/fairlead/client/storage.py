"""Errors of the storage that a job's checkpoints are on: no fault of the job, which goes on once it is well.

A process that cannot go on without its checkpoints leaves with ``EXIT_STORAGE``, and tells its agent the
errno.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.client import crash
from fairlead.client.rank_environment import EXIT_STORAGE, RankEnvironment, leave

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


@contextmanager
def own_access(directory: str | os.PathLike[str], environment: RankEnvironment) -> Iterator[None]:
    """What is done in it concerns the checkpoints in a directory and nothing else."""
    try:
        yield
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
    """Whether an error is one of the storage that a directory is on."""
    path = problem.filename
    if not isinstance(path, (str, bytes)):
        return problem.errno in _FILE_ERRORS
    above = os.path.join(os.path.abspath(os.fspath(directory)), "")
    return problem.errno in STORAGE_ERRORS and os.path.abspath(os.fsdecode(path)).startswith(above)


def _leave(
    problem: OSError, directory: str | os.PathLike[str], environment: RankEnvironment
) -> None:
    """Without a scheduler there is nobody to start it again: then the error is the script's to handle."""
    if environment.socket:
        crash.report_storage(problem)
        leave(EXIT_STORAGE, f"checkpoint directory {os.fspath(directory)!r}: {problem.strerror}")
