"""Which open job saves to which directory. Two of them in one would take each other's checkpoints: the second
is refused when it is submitted."""

import os
from collections.abc import Callable, Iterable, Sequence

from fairlead.cluster.front.facade import ConflictError
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.read_job_spec import SPECS
from fairlead.cluster.server.checkpoint_directories import DEFAULT
from fairlead.cluster.store.rows import JobRow
from fairlead.errors import InputError

_ENOUGH = 1000  # claims that are kept though jobs have ended
_WHY = "they would take each other's checkpoints; name another one"


class DirectoryClaims:
    """Checkpoint directories of all jobs that have not ended, from the moment when their rows are made. Used
    by one thread at a time."""

    def __init__(self, has_ended: Callable[[JobRow], bool]) -> None:
        """has_ended: as people are told, which may be before its row says so."""
        self._has_ended = has_ended
        self._rows: dict[str, JobRow] = {}  # by path, in one way of writing it
        self._prune_at = _ENOUGH
        self._condemned: set[str] = set()  # directories that are being removed

    def condemn(self, path: str) -> bool:
        """Have no job name a directory that is about to be removed, nor one in it, nor one that it is in.
        Returns whether it may be removed: no job that has not ended has it, or one in it, and none that was
        known here has named it."""
        path = normal_path(path)
        holders = (row for claimed, row in self._rows.items() if is_within(claimed, path))
        if any(row.open or row.spec.checkpoint_dir for row in holders):
            return False
        self._condemned.add(path)
        return True

    def release(self, path: str) -> None:
        """It is removed, or stays."""
        self._condemned.discard(normal_path(path))

    def check(
        self, specs: Sequence[JobSpec], tenant: str, root: str, state: str | os.PathLike[str]
    ) -> None:
        """Raises ConflictError where a directory that one of these jobs names is that of another job, or
        ``root``, below which are those of jobs that name none; InputError where it is in ``state``, the
        server's own directory, but not below its folder for checkpoints."""
        named: dict[str, int] = {}
        for position, spec in enumerate(specs):
            if not spec.checkpoint_dir:
                continue
            path = normal_path(spec.checkpoint_dir)
            row = self._rows.get(path)
            problem = ""
            where = f"{SPECS}[{position}]" if len(specs) > 1 else "job"
            if _is_of_server(path, normal_path(os.path.abspath(state)), root):
                raise InputError(
                    f"{where}: checkpoint_dir: {spec.checkpoint_dir!r} is in the server's state directory; "
                    "name another one, or none"
                )
            if any(_overlap(path, condemned) for condemned in self._condemned):
                raise ConflictError(
                    f"{where}: checkpoint_dir: {spec.checkpoint_dir!r} is being removed (serve "
                    "--keep-checkpoints); name another one, or try again later"
                )
            if root and path == normal_path(root):
                problem = "all jobs that name none"
            elif path in named:
                problem = f"{_in_batch(named[path], specs)} as well"
            elif row is not None and not self._has_ended(row):
                problem = f"{_of_row(row, tenant)}, which has not ended"
            if problem:
                whose = f" of {spec.name!r}" if spec.name else ""
                what = f"{spec.checkpoint_dir!r}{whose} is that of {problem}"
                raise ConflictError(f"{where}: checkpoint_dir: {what}: {_WHY}")
            named[path] = position

    def add(self, rows: Iterable[JobRow]) -> None:
        """Claim the directories of these jobs."""
        for row in rows:
            if row.checkpoint_dir and row.open:
                self._rows[normal_path(row.checkpoint_dir)] = row
        if len(self._rows) > self._prune_at:
            self._rows = {path: row for path, row in self._rows.items() if row.open}
            self._prune_at = 2 * len(self._rows) + _ENOUGH

    def remove(self, rows: Iterable[JobRow]) -> None:
        """Withdraw the claims of jobs that could not be written."""
        for row in rows:
            path = normal_path(row.checkpoint_dir)
            if self._rows.get(path) is row:
                del self._rows[path]


def _of_row(row: JobRow, tenant: str) -> str:
    if row.tenant != tenant:
        return "a job of another tenant"
    return f"job {row.id}" + _called(row.name)


def _in_batch(position: int, specs: Sequence[JobSpec]) -> str:
    return f"{SPECS}[{position}]" + _called(specs[position].name)


def _called(name: str) -> str:
    return f" ({name!r})" if name else ""


def _is_of_server(path: str, state: str, root: str) -> bool:
    """Return whether a path is the state directory, or in it and not in a folder for checkpoints there."""
    if not is_within(path, state):
        return False
    folders = (f"{state}/{DEFAULT}", *([normal_path(root)] if root else []))
    return not any(is_within(path, folder) for folder in folders if folder != state)


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or in it. Both as ``normal_path`` returns them."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _overlap(one: str, other: str) -> bool:
    """Return whether one of two directories is the other, or in it."""
    return is_within(one, other) or is_within(other, one)


def normal_path(path: str) -> str:
    """One way of writing a path, as far as that is known without looking at the disk of the nodes."""
    return os.path.normpath(f"/{path.lstrip('/')}")
