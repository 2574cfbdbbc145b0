"""The output of jobs, which the front takes and shows by itself."""

import asyncio
import sqlite3
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from fairlead.cluster.front.facade import NotFoundError
from fairlead.cluster.front.output_limit import OutputLimit
from fairlead.cluster.front.visible_tenants import may_see
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.messages import AttemptKey, LogChunk, LogOffset
from fairlead.cluster.shortage import is_shortage
from fairlead.cluster.store.database import readable, reader
from fairlead.cluster.store.log_store import LogStore
from fairlead.cluster.store.rows import AttemptRow, JobRow
from fairlead.cluster.store.schema import ATTEMPTS, JOBS, SqlTable
from fairlead.cluster.store.verification import check_row
from fairlead.errors import ConfigError, StoreError

MAX_REMEMBERED = 20_000  # jobs of which the tenant is remembered, and attempts whose nodes are
_JOB = msgspec.msgpack.Decoder(JobRow)
_ATTEMPT = msgspec.msgpack.Decoder(AttemptRow)
_Found = TypeVar("_Found")
_Key = TypeVar("_Key")


class LoggedAttempt(NamedTuple):
    """The facts of an attempt that are needed to keep its output."""

    nodes: tuple[str, ...]  # of each rank: whose output comes from there alone
    log_bytes: int  # of each rank, that are kept


class LogService:
    """Takes pieces of output on one thread, in their order; any thread may read."""

    def __init__(self, directory: Path) -> None:
        """directory: of the cluster's state."""
        self._store = LogStore(directory / "logs")
        self.limit = OutputLimit(self._store, self._tenant, self._is_open)
        self._path = directory / "state.db"
        self._thread = ThreadPoolExecutor(1, "logs")
        self._reader: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # of the connection, and of what is remembered
        self._tenants: OrderedDict[int, str] = OrderedDict()
        self._attempts: OrderedDict[AttemptKey, LoggedAttempt] = OrderedDict()

    def close(self) -> None:
        """Write the output that has come, and end."""
        self._thread.shutdown()

    async def put(self, chunk: LogChunk) -> LogOffset:
        """Keep a piece. The disk is waited for on another thread than the one that renews leases."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._put, chunk)

    def _put(self, chunk: LogChunk) -> LogOffset:
        """Output of attempts that are not here is not kept, nor a rank's from another node than its own."""
        attempt = self.find_attempt((chunk.job, chunk.attempt))
        ranks = 0 if attempt is None else len(attempt.nodes)
        if (
            attempt is None
            or not 0 <= chunk.rank < ranks
            or attempt.nodes[chunk.rank] != chunk.node
        ):
            return LogOffset(offset=chunk.offset + len(chunk.data))
        if chunk.offset >= 1 << 60:
            raise ConfigError(f"offset: must be from 0 to 2^60, got {chunk.offset}")
        try:
            behind = self._store.put(chunk, attempt.log_bytes)
            self.limit.note(chunk.job, len(chunk.data))
            return LogOffset(offset=behind)
        except OSError as problem:
            if is_shortage(problem):
                raise
            raise StoreError(f"output of jobs cannot be written: {problem.strerror}") from None

    def read(self, caller: Caller, job: int, cursor: str, limit: int) -> tuple[str, str]:
        """Output behind the cursor, and the next cursor."""
        self.check_visible(caller, job)
        return self._store.read(job, cursor, min(limit, 1 << 20))

    def check_visible(self, caller: Caller, job: int) -> None:
        """Raises NotFoundError where there is no such job that the caller may see."""
        tenant = self._tenant(job)
        if tenant is None or not may_see(caller, tenant):
            raise NotFoundError(f"job {job}: there is none")

    def _tenant(self, job: int) -> str | None:
        """Whose job it is; None = there is none."""
        with self._lock:
            known = self._tenants.get(job)
            if known is None and (row := self._row(JOBS, _JOB, job)) is not None:
                known = row.tenant
                _remember(self._tenants, job, known)
            return known

    def _is_open(self, job: int) -> bool:
        with self._lock:
            row = self._row(JOBS, _JOB, job)
        return row is not None and row.open

    def find_attempt(self, key: AttemptKey) -> LoggedAttempt | None:
        """Return an attempt; None = there is none."""
        with self._lock:
            known = self._attempts.get(key)
            if known is None and (row := self._row(ATTEMPTS, _ATTEMPT, *key)) is not None:
                job = self._row(JOBS, _JOB, key[0])
                if job is not None:
                    nodes = row.nodes or (row.node,) * len(row.devices)
                    known = LoggedAttempt(nodes, job.spec.log_bytes)
                    _remember(self._attempts, key, known)
            return known

    def _row(
        self, table: SqlTable, decoder: "msgspec.msgpack.Decoder[_Found]", *key: int
    ) -> _Found | None:
        """The row with this key; None = there is none."""
        if any(not 0 <= one < 1 << 62 for one in key):
            return None
        with readable(self._path):
            if self._reader is None:
                self._reader = reader(self._path)
            where = " AND ".join(f"{column} = ?" for column in table.columns[: table.keys])
            found = self._reader.execute(f"{table.select} WHERE {where}", key).fetchone()
        if found is None:
            return None
        check_row(self._path, table, found)
        return decoder.decode(found[-2])


def _remember(known: OrderedDict[_Key, _Found], key: _Key, found: _Found) -> None:
    """Note it, and forget the oldest of many."""
    known[key] = found
    if len(known) > MAX_REMEMBERED:
        known.popitem(last=False)
