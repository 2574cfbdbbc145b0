"""Which jobs a caller may know of: an admin of all, a user of those of their tenant."""

from fairlead.cluster.front.facade import NotFoundError
from fairlead.cluster.front.visible_tenants import may_see
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.store.rows import JobRow


def seen_by(caller: Caller, row: JobRow | None) -> JobRow | None:
    """The job, if there is one and the caller may know of it."""
    return row if row is not None and may_see(caller, row.tenant) else None


def existing(job: int, row: JobRow | None) -> JobRow:
    """The job. row: as ``seen_by`` gives it. Raises NotFoundError where there is none."""
    if row is None:
        raise NotFoundError(f"job {job}: there is none")
    return row


def task_ids(array: int, row: JobRow | None) -> range:
    """The ids of the tasks of an array. row: its first task, as ``seen_by`` gives it. Raises NotFoundError
    where there is no such array."""
    if row is None or row.array != array:
        raise NotFoundError(f"array {array}: there is none")
    return row.array_ids
