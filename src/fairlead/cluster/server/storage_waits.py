"""Jobs that cannot run because the directory of their checkpoints cannot be made or used. The cluster's own
is the operator's, whatever is the matter with it. One that a job has named is its owner's: a path that can
never be made is the job's fault, storage that is out of order is not."""

from collections import Counter
from collections.abc import Iterable

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.protocol.messages import DirectoryTrouble, Failure
from fairlead.cluster.server.attempts import Attempt
from fairlead.cluster.store.rows import JobRow


def directory_trouble(failure: Failure | None, spec: JobSpec) -> DirectoryTrouble:
    """What was the matter with the checkpoint directory of a start that failed; "" = nothing."""
    if failure is None or not failure.directory:
        return ""
    return failure.directory if spec.checkpoint_dir else "out_of_order"


def failed_for_storage(attempt: Attempt) -> bool:
    """Whether a start has failed for the storage of its checkpoints."""
    if not attempt.failure():
        return False
    return directory_trouble(attempt.root_failure()[1], attempt.row.spec) == "out_of_order"


class StorageWaits:
    """Jobs that wait for the cluster's own directory. On the driver's thread; ``trouble`` on any."""

    def __init__(self) -> None:
        self._why: dict[int, tuple[JobRow, str]] = {}  # job -> what its last try said

    def recover(self, rows: Iterable[JobRow]) -> None:
        """After a restart of the server."""
        for row in rows:
            if row.open and _waits(row):
                self.add(row)

    def add(self, row: JobRow) -> None:
        """The last start of a job has failed for storage."""
        for job in [job for job, (other, _) in self._why.items() if not other.open]:
            del self._why[job]
        if not row.spec.checkpoint_dir:
            self._why[row.id] = row, row.recent_failures[-1].reason.rpartition(": ")[2]

    def discard(self, job: int) -> None:
        """A job waits no more."""
        self._why.pop(job, None)

    def begun(self, attempt: Attempt) -> list[JobRow]:
        """A start has seen its directory. If its job had waited for that, or it had to be made, the storage
        is well again: the jobs that waited for it, and wait no more."""
        row = attempt.row
        was_made = row.id in self._why or attempt.record.attempt == 1
        if not self._why or row.spec.checkpoint_dir or not was_made:
            return []
        rows = [other for other, _ in self._why.values() if other.checkpoints == row.checkpoints]
        for other in rows:
            del self._why[other.id]
        return [other for other in rows if other is not row and other.open]

    @property
    def trouble(self) -> str:
        """What the operator is to be told, without a full stop; "" = nothing."""
        found = [
            (row.checkpoints, why)
            for row, why in list(self._why.values())
            if row.open and row.state != "paused"
        ]
        if not found:
            return ""
        (directory, why), _ = Counter(found).most_common(1)[0]
        jobs = f"{len(found)} job{'s wait' if len(found) > 1 else ' waits'}"
        return f"{directory or 'the directory of checkpoints'}: {why}; {jobs} for it"


def _waits(row: JobRow) -> bool:
    """Whether the newest failure of a job that has not gone on since was one of storage."""
    waits = row.retry_s is not None or row.failed
    return waits and bool(row.recent_failures) and row.recent_failures[-1].of_storage
