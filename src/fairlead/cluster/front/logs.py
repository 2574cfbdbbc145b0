"""The output of jobs, which the front takes and shows by itself."""

import asyncio
import sqlite3
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead.cluster.front.facade import NotFoundError
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.messages import LogChunk, LogOffset
from fairlead.cluster.store.database import readable, reader
from fairlead.cluster.store.log_store import LogStore
from fairlead.cluster.store.rows import JobRow
from fairlead.cluster.store.schema import JOBS
from fairlead.cluster.store.verification import check_row
from fairlead.errors import ConfigError

MAX_KNOWN_OWNERS = 20_000  # jobs whose owners are remembered
_ROW = msgspec.msgpack.Decoder(JobRow)


class LoggedJob(NamedTuple):
    """What has to be known of a job to keep its output, and to show it."""

    tenant: str
    log_bytes: int
    attempt: int  # its newest attempt


class LogService:
    """Takes pieces of output on one thread, in their order; any thread may read."""

    def __init__(self, directory: Path) -> None:
        """directory: of the cluster's state."""
        self._store = LogStore(directory / "logs")
        self._path = directory / "state.db"
        self._thread = ThreadPoolExecutor(1, "logs")
        self._reader: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # of the connection, and of what is known
        self._known: OrderedDict[int, LoggedJob] = OrderedDict()

    def close(self) -> None:
        """What has come is written."""
        self._thread.shutdown()

    async def put(self, chunk: LogChunk) -> LogOffset:
        """Keep a piece. The disk is waited for on another thread than the one that renews leases."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._put, chunk)

    def _put(self, chunk: LogChunk) -> LogOffset:
        """Output of jobs that are not here is not kept."""
        job = self._job(chunk.job, chunk.attempt)
        if job is None or not 0 < chunk.attempt <= job.attempt or chunk.rank < 0:
            return LogOffset(offset=chunk.offset + len(chunk.data))
        if not 0 <= chunk.offset < 1 << 60 or chunk.rank > 1 << 20:
            raise ConfigError(f"offset: must be from 0 to 2^60, got {chunk.offset}")
        return LogOffset(offset=self._store.put(chunk, job.log_bytes))

    def read(self, caller: Caller, job: int, cursor: str, limit: int) -> tuple[str, str]:
        """Output behind the cursor, and the next cursor."""
        known = self._job(job, 0)
        if known is None or (caller.role != "admin" and known.tenant != caller.tenant):
            raise NotFoundError(f"job {job}: there is none")
        return self._store.read(job, cursor, min(limit, 1 << 20))

    def _job(self, number: int, attempt: int) -> LoggedJob | None:
        """The job, as new as this attempt of it."""
        with self._lock:
            known = self._known.get(number)
            if known is None or known.attempt < attempt:
                known = self._find(number)
                if known is not None:
                    self._known[number] = known
                if len(self._known) > MAX_KNOWN_OWNERS:
                    self._known.popitem(last=False)
            return known

    def _find(self, number: int) -> LoggedJob | None:
        if not 0 <= number < 1 << 62:
            return None
        with readable(self._path):
            if self._reader is None:
                self._reader = reader(self._path)
            query = f"{JOBS.select} WHERE id = ?"
            found = self._reader.execute(query, (number,)).fetchone()
        if found is None:
            return None
        check_row(self._path, JOBS, found)
        row = _ROW.decode(found[-2])
        return LoggedJob(row.tenant, row.spec.log_bytes, row.attempt)
