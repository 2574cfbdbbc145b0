"""Jobs that cannot run because the directory of their checkpoints cannot be made or used. The cluster's own
is the operator's, whatever is the matter with it. One that a job has named is its owner's: a path that can
never be made is the job's fault, storage that is out of order is not, nor is a folder that a node does not
let the job's OS user use."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fairlead.cluster.protocol.api_models import jobs_wait
from fairlead.cluster.protocol.messages import DirectoryTrouble, Failure
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.rows import JobRow

_NO_ROOM = frozenset(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))


def is_clusters(path: str, row: JobRow) -> bool:
    """Return whether a directory that cannot be used is that of the checkpoints of all jobs, or above it, and
    not the folder of a job alone. path: "" = not known."""
    return not path or Path(row.checkpoints).is_relative_to(path)


def directory_trouble(failure: Failure | None, row: JobRow) -> DirectoryTrouble:
    """Return the trouble with the checkpoint directory of an attempt that failed; "" = none. One with which
    its job has run is no path that can never be made: a node may not let the job use it, others do."""
    if failure is None or not failure.directory:
        return ""
    may_be_wrong = row.spec.checkpoint_dir and not row.has_run
    return failure.directory if may_be_wrong else "out_of_order"


def failed_for_storage(attempt: Attempt) -> bool:
    """Return whether an attempt has failed for the storage of its checkpoints."""
    if not attempt.failure():
        return False
    return directory_trouble(attempt.root_failure()[1], attempt.row) == "out_of_order"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A job that waits, and what its last try said."""

    row: JobRow
    why: str
    of_its_folder: bool  # its checkpoints are away, or damaged: what others do says nothing of them
    is_own: bool  # nothing is wrong but with its own folder

    @property
    def for_room(self) -> bool:
        """Return whether others that find their checkpoints may lack it as well."""
        return self.why in _NO_ROOM

    @property
    def trouble(self) -> str:
        """For the operator."""
        place = self.row.checkpoint_dir if self.of_its_folder else self.row.checkpoints
        return f"{place or 'the directory of checkpoints'}: {self.why}"


class StorageWaits:
    """Jobs that wait for the cluster's own directory. On the driver's thread; what is told on any."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}  # by job

    def recover(self, rows: Iterable[JobRow]) -> None:
        """After a restart of the server."""
        for row in rows:
            if row.open and _waits(row):
                self.add(row)

    def add(self, row: JobRow) -> None:
        """The last attempt of a job has failed for storage."""
        for job in [job for job, other in self._waiting.items() if not other.row.open]:
            del self._waiting[job]
        if not row.spec.checkpoint_dir:
            last = row.recent_failures[-1]
            self._waiting[row.id] = _Waiting(
                row=row,
                why=last.reason.rpartition(": ")[2],
                of_its_folder=last.of_checkpoints,
                is_own=not is_clusters("" if row.failure is None else row.failure.path, row),
            )

    def discard(self, job: int) -> None:
        """A job waits no more."""
        self._waiting.pop(job, None)

    def begun(self, attempt: Attempt) -> list[JobRow]:
        """An attempt has seen its directory, so the storage is well again: the jobs that waited for it, and
        wait no more. For room, and for folders that are away, it is only if its job had waited for that as
        well, or its folder had to be made."""
        row = attempt.row
        was_made = row.id in self._waiting or attempt.record.attempt == 1
        seen = was_made or not row.spec.unmanaged
        return self._end_waits(
            row, lambda one: was_made or (seen and not one.of_its_folder and not one.for_room)
        )

    def saved(self, attempt: Attempt) -> list[JobRow]:
        """End the waits that a save ends, as it shows that there is space. Returns the other jobs that
        waited."""
        return self._end_waits(attempt.row, lambda one: not one.of_its_folder)

    def _end_waits(self, row: JobRow, is_over: Callable[[_Waiting], bool]) -> list[JobRow]:
        """End the waits, for which ``is_over`` holds, of a job and of others that share its directory.
        Returns the others."""
        if not self._waiting or row.spec.checkpoint_dir:
            return []
        found = [
            other
            for other in self._waiting.values()
            if other.row.checkpoints == row.checkpoints
            and not (other.is_own and other.row is not row)
            and is_over(other)
        ]
        for other in found:
            del self._waiting[other.row.id]
        return [other.row for other in found if other.row is not row and other.row.open]

    def reasons(self) -> dict[str, str]:
        """Directory -> why jobs wait for its storage, not only for their own folders in it."""
        return {
            one.row.checkpoints: one.why
            for one in list(self._waiting.values())
            if one.row.open and not one.of_its_folder and not one.is_own
        }

    @property
    def count(self) -> int:
        """Return the number of jobs that wait."""
        return len(self._shared())

    @property
    def trouble(self) -> str:
        """Return the trouble that the operator is to be told, without a full stop; "" = none.
        It names folders of any tenant."""
        found = self._shared()
        if not found:
            return ""
        jobs = jobs_wait(len(found))
        ((said, count),) = Counter(one.trouble for one in found).most_common(1)
        if count < len(found):
            return f"{said}; {jobs} for checkpoints, {count} of them for these"
        return f"{said}; {jobs} for it"

    def _shared(self) -> list[_Waiting]:
        """Return the waits that are not for a job's own folder alone."""
        return [
            one
            for one in list(self._waiting.values())
            if one.row.open and one.row.state != "paused" and not one.is_own
        ]


def waits_for_checkpoints(row: JobRow) -> bool:
    """Return whether a job waits because its own checkpoints are away, or damaged."""
    return _waits(row) and row.recent_failures[-1].of_checkpoints


def tries_for_checkpoints(row: JobRow, newest: Attempt | None) -> bool:
    """Return whether an attempt of a job that waited for its own checkpoints looks whether they are back.
    newest: its newest attempt that has not ended."""
    return found_no_storage(row, newest) and row.recent_failures[-1].of_checkpoints


def found_no_storage(row: JobRow, newest: Attempt | None) -> bool:
    """Return whether a job waits for the storage of its checkpoints, or tries whether it is back. newest: its
    newest attempt that has not ended."""
    if not row.recent_failures or row.loss_accepted:
        return False
    last = row.recent_failures[-1]
    tries = newest is not None and not _has_begun(newest)
    return last.of_storage and last.attempt >= row.attempt - tries


def _has_begun(attempt: Attempt) -> bool:
    """Return whether an attempt has found its checkpoints; an unmanaged one, the directory for them."""
    if attempt.row.spec.unmanaged:
        return attempt.leader is not None and attempt.leader.state != "starting"
    return attempt.record.trained_s is not None


def _waits(row: JobRow) -> bool:
    """Return whether the newest failure of a job that has not gone on since was one of storage."""
    waits = row.retry_s is not None or row.failed
    return waits and bool(row.recent_failures) and row.recent_failures[-1].of_storage
