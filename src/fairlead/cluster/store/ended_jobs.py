"""Jobs that have ended, and their removal: rows, output and checkpoints."""

import os
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from fairlead.cluster.store.database import readable, reader
from fairlead.cluster.store.removed import REMOVED, read_removed, write_removed
from fairlead.cluster.store.schema import ATTEMPTS, JOBS
from fairlead.cluster.store.store import Store
from fairlead.cluster.store.usage import (
    META_PREFIX,
    BilledAttempt,
    Usage,
    add_attempt,
    keep_usage,
)
from fairlead.cluster.store.verification import check_row

_FOLDER = re.compile(r"(\d+)-[0-9a-f]{8}")


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a ``JobSpec`` that matters here."""

    checkpoint_dir: str = ""


class _JobDirectory(msgspec.Struct, frozen=True):
    spec: _Spec


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a ``JobRow`` that matters here."""

    id: int
    tenant: str
    user: str
    spec: _Spec
    state: str
    ended_s: float | None = None
    folder: str = ""
    checkpoints: str = ""
    search: int = -1

    @property
    def own_checkpoints(self) -> str:
        """The path of its checkpoints where Fairlead alone has given it that directory; "" = there is none,
        or it may be somebody else's, too (``folder`` of an earlier version has no random digits)."""
        named = _FOLDER.fullmatch(self.folder)
        if self.spec.checkpoint_dir or not self.checkpoints or named is None:
            return ""
        return f"{self.checkpoints}/{self.folder}" if int(named[1]) == self.id else ""


def ended_jobs(path: Path, after: int, limit: int) -> list[EndedJob]:
    """Jobs that have ended, behind id ``after``, in order of id. The newest of all jobs is never one of
    them: ids go on from it. path: of ``state.db``. Raises StoreError."""
    where = "WHERE open = 0 AND id > ? AND id < (SELECT max(id) FROM jobs) ORDER BY id LIMIT ?"
    decoder = msgspec.msgpack.Decoder(EndedJob)
    with readable(path), closing(reader(path)) as connection:
        rows = connection.execute(f"{JOBS.select} {where}", (after, limit)).fetchall()
    for row in rows:
        check_row(path, JOBS, row)
    return [decoder.decode(row[-2]) for row in rows]


def named_directories(path: Path) -> list[str]:
    """Directories for checkpoints that jobs have named themselves, whether they have ended or not. path: of
    ``state.db``. Raises StoreError."""
    where = "WHERE instr(row, CAST('checkpoint_dir' AS BLOB)) > 0"
    decoder = msgspec.msgpack.Decoder(_JobDirectory)
    with readable(path), closing(reader(path)) as connection:
        rows = connection.execute(f"{JOBS.select} {where}").fetchall()
    return [named for row in rows if (named := decoder.decode(row[-2]).spec.checkpoint_dir)]


def remove_jobs(store: Store, jobs: Sequence[EndedJob], wall_offset_s: float, clock: str) -> None:
    """Remove rows of jobs and attempts in one transaction, which adds what they were billed to what is kept
    of earlier ones. wall_offset_s: the wall clock less the cluster's time; clock: as it is kept. Raises
    StoreError."""
    usage: Usage = {}
    with store.transaction() as t:
        with readable(store.path), closing(reader(store.path)) as connection:
            for job in jobs:
                for attempt in _billed(connection, store.path, job.id):
                    add_attempt(
                        usage, job.tenant, job.user, attempt, job.ended_s or 0.0, wall_offset_s
                    )
        keep_usage(t, dict(store.metas(META_PREFIX)), usage)
        counts = Counter(read_removed(store.meta(REMOVED))) + Counter(job.state for job in jobs)
        t.set_meta(REMOVED, write_removed(dict(counts)))
        t.set_meta("clock", clock)
        t.delete_jobs([job.id for job in jobs])


def _billed(connection: sqlite3.Connection, path: Path, job: int) -> list[BilledAttempt]:
    rows = connection.execute(f"{ATTEMPTS.select} WHERE job = ?", (job,)).fetchall()
    for row in rows:
        check_row(path, ATTEMPTS, row)
    return [msgspec.msgpack.decode(row[-2], type=BilledAttempt) for row in rows]


def has_folder(parent: str | Path, name: str) -> bool:
    """Return whether there is something of this name in a directory. Raises OSError where the directory
    itself is not there, or cannot be read: its storage may be away."""
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.lstat(name, dir_fd=descriptor)
    except FileNotFoundError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
